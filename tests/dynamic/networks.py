"""Whole small networks with open dimensions, in f32 and f16: what a GPU's tensor cores multiply."""

import dataclasses

import numpy as np
from onnx import TensorProto

from models import Model, ints, mlp, weights

HALF = TensorProto.FLOAT16


def half(model):
    return dataclasses.replace(model, name=f"{model.name}_f16", element=HALF)


class Nodes:
    def __init__(self):
        self.list, self.constants = [], {}

    def __call__(self, op, inputs, output, **attributes):
        self.list.append((op, inputs, [output], attributes))
        return output

    def constant(self, name, value):
        self.constants[name] = value
        return name


def residual(name="residual", height=24, width=24):
    """A stem, blocks of two convolutions with a residual, the second with a stride, and what classifies."""
    n = Nodes()

    def conv(x, name, inputs, outputs, size, stride=1):
        n.constant(name + ".w", 2 * weights(outputs, inputs, size, size))
        n.constant(name + ".b", weights(outputs))
        return n("Conv", [x, name + ".w", name + ".b"], name, pads=[size // 2] * 4, strides=[stride] * 2)

    x = n("Relu", [conv("x", "stem", 3, 16, 3)], "stem.relu")
    x = n("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for i, (inputs, outputs, stride) in enumerate(((16, 16, 1), (16, 32, 2))):
        a = n("Relu", [conv(x, f"a{i}", inputs, outputs, 3, stride)], f"a{i}.relu")
        b = conv(a, f"b{i}", outputs, outputs, 3)
        x = conv(x, f"s{i}", inputs, outputs, 1, stride) if stride > 1 else x
        x = n("Relu", [n("Add", [b, x], f"sum{i}")], f"out{i}")
    n("GlobalAveragePool", [x], "mean")
    n("Flatten", ["mean"], "flat")
    n("Gemm", ["flat", n.constant("fc", weights(32, 10))], "y")
    ranges = {d: limits for d, limits in (("N", (1, 4)), ("H", (8, 64)), ("W", (8, 64))) if d in ("N", height, width)}
    sizes = tuple({d: s for d, s in zip("NHW", of) if d in ranges} for of in ((1, 24, 24), (3, 17, 30), (2, 8, 40)))
    return Model(name, n.list, {"x": ["N", 3, height, width]}, ("y",), ranges, n.constants, sizes)


def pictures():
    """The same with open heights and widths."""
    return residual("pictures", "H", "W")


def transformer():
    """A layer over tokens, with a mask: sequences of any length."""
    width, heads, words = 32, 4, 50
    n = Nodes()
    for name, value in (("zero", np.int64(0)), ("one", np.int64(1)), ("axis", ints(0)), ("heads", ints(heads)), ("depth", ints(width // heads)),
                        ("width", ints(width)), ("i0", ints(0)), ("axes", ints(1, 2)), ("scale", np.float32(8 ** -0.5)), ("far", np.float32(-1e4)),
                        ("whole", np.float32(1)), ("words", 4 * weights(words, width)), ("places", weights(64, width))):
        n.constant(name, value)
    for i, name in enumerate("nt"):
        n("Unsqueeze", [n("Gather", [n("Shape", ["ids"], name + ".s"), "one" if i else "zero"], name + ".g"), "axis"], name)
    n("Concat", ["n", "t", "heads", "depth"], "apart", axis=0)
    n("Concat", ["n", "t", "width"], "together", axis=0)
    x = n("Add", [n("Gather", ["words", "ids"], "tokens"), n("Slice", ["places", "i0", "t"], "at")], "x")
    far = n("Mul", [n("Sub", ["whole", n("Unsqueeze", ["mask", "axes"], "mask4")], "hidden"), "far"], "bias")
    for k in "qkv":
        n.constant("w" + k, 2 * weights(width, width))
        n.constant("b" + k, weights(width))
        split = n("Reshape", [n("Add", [n("MatMul", [x, "w" + k], k + "0"), "b" + k], k + "1"), "apart"], k + "2")
        n("Transpose", [split], k, perm=[0, 2, 3, 1] if k == "k" else [0, 2, 1, 3])
    scores = n("Add", [n("Mul", [n("MatMul", ["q", "k"], "qk"), "scale"], "scaled"), far], "scores")
    o = n("MatMul", [n("Softmax", [scores], "p", axis=-1), "v"], "o")
    o = n("Reshape", [n("Transpose", [o], "o1", perm=[0, 2, 1, 3]), "together"], "o2")
    for name, rows, columns in (("wo", width, width), ("wf", width, 4 * width), ("wg", 4 * width, width)):
        n.constant(name, 2 * weights(rows, columns))
    for name in ("g1", "g2", "b1", "b2"):
        n.constant(name, 1 + weights(width))
    x = n("LayerNormalization", [n("Add", [x, n("MatMul", [o, "wo"], "mixed")], "sum1"), "g1", "b1"], "n1", axis=-1)
    f = n("Tanh", [n("MatMul", [x, "wf"], "f")], "g")
    n("LayerNormalization", [n("Add", [x, n("MatMul", [f, "wg"], "h")], "sum2"), "g2", "b2"], "y", axis=-1)
    return Model("transformer", n.list, {"ids": ["N", "T"], "mask": ["N", "T"]}, ("y",), {"N": (1, 4), "T": (1, 64)}, n.constants,
                 tuple({"N": a, "T": t} for a, t in ((1, 1), (3, 9), (1, 64), (2, 33))), {"ids": words})


def causal():
    """Attention in which no token sees a later one: heads of one projection, lengths around a part of the keys (64)."""
    width, heads = 32, 2
    n = Nodes()
    for name, value in (("zero", np.int64(0)), ("one", np.int64(1)), ("axis", ints(0)), ("last", ints(1)), ("apart", ints(0, 0, heads, width // heads)),
                        ("together", ints(0, 0, width)), ("root", np.float32(4)), ("far", np.float32(-1e4)), ("w", 2 * weights(width, 3 * width)),
                        ("b", weights(3 * width)), ("wo", weights(width, width))):
        n.constant(name, value)
    n.list.append(("Split", [n("Add", [n("MatMul", ["x", "w"], "p0"), "b"], "p")], ["q0", "k0", "v0"], {"axis": 2}))
    for k in "qkv":
        n("Transpose", [n("Reshape", [k + "0", "apart"], k + "1")], k, perm=[0, 2, 3, 1] if k == "k" else [0, 2, 1, 3])
    at = n("Range", ["zero", n("Gather", [n("Shape", ["x"], "shape"), "one"], "t"), "one"], "at")
    sees = n("LessOrEqual", [n("Unsqueeze", [at, "axis"], "key"), n("Unsqueeze", [at, "last"], "query")], "sees")
    scores = n("Where", [sees, n("Div", [n("MatMul", ["q", "k"], "qk"), "root"], "scaled"), "far"], "scores")
    o = n("Transpose", [n("MatMul", [n("Softmax", [scores], "p2", axis=-1), "v"], "o")], "o1", perm=[0, 2, 1, 3])
    n("MatMul", [n("Reshape", [o, "together"], "o2"), "wo"], "y")
    return Model("causal", n.list, {"x": ["N", "T", width]}, ("y",), {"N": (1, 3), "T": (1, 256)}, n.constants,
                 tuple({"N": a, "T": t} for a, t in ((1, 1), (2, 16), (1, 63), (1, 64), (3, 65), (1, 128), (1, 200))))


def crossed():
    """Queries of one length, keys of another, values that are wider."""
    n = Nodes()
    n.constant("root", np.float32(0.2))
    scores = n("Mul", [n("MatMul", ["q", n("Transpose", ["k"], "kt", perm=[0, 1, 3, 2])], "qk"), "root"], "scores")
    n("MatMul", [n("Softmax", [scores], "p", axis=-1), "v"], "y")
    inputs = {"q": ["N", 2, "Q", 24], "k": ["N", 2, "K", 24], "v": ["N", 2, "K", 40]}
    return Model("crossed", n.list, inputs, ("y",), {"N": (1, 3), "Q": (1, 128), "K": (1, 256)}, n.constants,
                 tuple({"N": a, "Q": q, "K": k} for a, q, k in ((1, 1, 1), (2, 17, 65), (1, 70, 7), (3, 5, 130))))


ALL = [causal, crossed, mlp, residual, pictures, transformer]
