"""Products, convolutions and activations with what is fused into them."""

import math

import numpy as np
from case import Cases, Fixed, f32, sigmoid

ERF = np.vectorize(math.erf)


def gelu(x):
    x = np.asarray(x, np.float64)
    return x * 0.5 * (1 + ERF(x / math.sqrt(2)))


def tanh_gelu(x):
    x = np.asarray(x, np.float64)
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def activations(c):
    x, bias = c.real(2, 5, 12, low=-4, high=4), c.real(12)
    c.add("Gelu", "plain", [x], f32(gelu(x)))
    c.add("Gelu", "half", [x.astype(np.float16)], gelu(x.astype(np.float16)).astype(np.float16), rtol=2e-3, atol=1e-3)
    c.add("BiasGelu", "plain", [x, Fixed(bias)], f32(gelu(x + bias)))
    c.add("FastGelu", "plain", [x], f32(tanh_gelu(x)))
    c.add("FastGelu", "bias", [x, Fixed(bias)], f32(tanh_gelu(x + bias)))
    c.add("QuickGelu", "plain", [x], f32(x * sigmoid(np.float32(1.702) * np.float64(x))))
    c.add("QuickGelu", "alpha", [x], f32(x * sigmoid(2.5 * np.float64(x))), alpha=2.5)
    skip = c.real(2, 5, 12)
    c.add("BiasAdd", "plain", [x, Fixed(bias), skip], f32(x + bias + skip))
    left, right = np.split(np.float64(x + bias), 2, axis=-1)
    c.add("BiasSplitGelu", "plain", [x, Fixed(bias)], f32(left * gelu(right)))
    for variant, axis, inner, shape in (("outer", 2, 0, (1, 1, 5, 12)), ("inner", 3, 1, (2, 1, 1, 12))):
        data, mask = c.real(2, 3, 5, 12), c.real(*shape, low=-3)
        scores = np.float64(data + mask).reshape(int(np.prod((2, 3, 5, 12)[:axis])), -1)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        want = f32((powers / powers.sum(axis=1, keepdims=True)).reshape(data.shape))
        c.add("BiasSoftmax", variant, [data, mask], want, axis=axis, is_inner_broadcast=inner)


def products(c):
    def both(variant, a, b, want, **attributes):
        for op in ("FusedMatMul", "TransposeMatMul"):
            if op == "FusedMatMul" or not any("Batch" in name for name in attributes):
                c.add(op, variant, [a, b], f32(want), **attributes)

    a, b = c.real(2, 3, 5, 7), c.real(2, 3, 7, 6)
    want = np.float64(a) @ np.float64(b)
    both("plain", a, b, want)
    both("alpha", a, b, 0.125 * want, alpha=0.125)
    both("trans_a", np.swapaxes(a, -1, -2), b, want, transA=1)
    both("trans_b", a, np.swapaxes(b, -1, -2), want, transB=1)
    both("trans_both", np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), 3 * want, transA=1, transB=1, alpha=3.0)
    both("broadcast", a, b[0, 0].T, np.float64(a) @ np.float64(b[0, 0]), transB=1)
    both("vector", a[0, 0, 0], b, np.float64(a[0, 0, 0]) @ np.float64(b), transA=1)
    # The rows ahead of the batch.
    both("trans_batch_a", np.moveaxis(a, 2, 0), b, want, transBatchA=1)
    both("trans_batch_b", a, np.moveaxis(b, 2, 0), want, transBatchB=1)
    both("trans_batch_both", np.moveaxis(np.swapaxes(a, -1, -2), 2, 0), np.moveaxis(np.swapaxes(b, -1, -2), 2, 0), want, transA=1, transB=1, transBatchA=1, transBatchB=1)
    y = np.float64(a) @ np.float64(b)
    c.add("FusedMatMulActivation", "relu", [a, b], f32(np.maximum(2 * y, 0)), activation="Relu", alpha=2.0)
    bias = c.real(6)
    c.add("GemmFastGelu", "bias", [a[0], Fixed(b[0, 0]), Fixed(bias)], f32(tanh_gelu(np.float64(a[0]) @ b[0, 0] + bias)))
    c.add("GemmFastGelu", "plain", [a[0], Fixed(b[0, 0])], f32(tanh_gelu(np.float64(a[0]) @ b[0, 0])))


ACTIVATIONS = (
    ("Relu", (), lambda x: np.maximum(x, 0)),
    ("Tanh", (), np.tanh),
    ("Sigmoid", (), sigmoid),
    ("LeakyRelu", (0.2,), lambda x: np.where(x < 0, np.float32(0.2) * x, x)),
    ("HardSigmoid", (0.3, 0.4), lambda x: np.clip(np.float32(0.3) * x + np.float32(0.4), 0, 1)),
    ("Elu", (0.7,), lambda x: np.where(x < 0, np.float32(0.7) * np.expm1(x), x)),
)


def gemms(c):
    a, b, bias = c.real(5, 7), c.real(7, 9), c.real(9)
    product = np.float64(a) @ b
    c.add("FusedGemm", "none", [a, Fixed(b), Fixed(bias)], f32(product + bias))
    for name, parameters, f in ACTIVATIONS:
        given = dict(zip(("activation_alpha", "activation_beta"), parameters))
        c.add("FusedGemm", name, [a, Fixed(b), Fixed(bias)], f32(f(product + bias)), activation=name, **given)
    want = np.maximum(0.5 * product + 2 * bias, 0)
    c.add("FusedGemm", "scaled", [a.T, Fixed(b.T), Fixed(bias)], f32(want), activation="Relu", transA=1, transB=1, alpha=0.5, beta=2.0)
    c.add("FusedGemm", "no_bias", [a, Fixed(b)], f32(np.maximum(product, 0)), activation="Relu")


def convolution(x, w, pads):
    """Stride 1, one group, each tap by itself."""
    x = np.pad(np.float64(x), ((0, 0), (0, 0), (pads, pads), (pads, pads)))
    height, width = x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1
    y = np.zeros((x.shape[0], w.shape[0], height, width))
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            y += np.einsum("nchw,mc->nmhw", x[:, :, i : i + height, j : j + width], w[:, :, i, j])
    return y


def convolutions(c):
    x, w, bias = c.real(1, 4, 6, 6), c.real(8, 4, 3, 3), c.real(8)
    y = convolution(x, w, 1) + bias[:, None, None]
    other = c.real(1, 8, 6, 6)
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    for name, parameters, f in (*ACTIVATIONS[:5], ("Clip", (-0.5, 0.75), lambda v: np.clip(v, -0.5, 0.75))):
        given = {"activation_params": list(parameters)} if parameters else {}
        c.add("FusedConv", name, [x, Fixed(w), Fixed(bias)], f32(f(y)), activation=name, **given, **window)
    c.add("FusedConv", "sum", [x, Fixed(w), Fixed(bias), other], f32(np.maximum(y + other, 0)), activation="Relu", **window)
    c.add("FusedConv", "sum_alone", [x, Fixed(w), None, other], f32(convolution(x, w, 1) + other), **window)
    c.add("FusedConv", "no_pads", [x, Fixed(w)], f32(np.maximum(convolution(x, w, 0), 0)), activation="Relu")


def cases():
    c = Cases(2)
    for make in (activations, products, gemms, convolutions):
        make(c)
    return c.all
