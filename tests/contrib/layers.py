"""Normalisations, with sums and embeddings in front of them."""

import numpy as np
from case import Cases, Fixed, dequantized, f32, sigmoid


def layer_norm(x, gamma, beta=None, epsilon=1e-12, axis=-1):
    """The result, the mean and the inverse deviation."""
    x = np.asarray(x, np.float64)
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = x.mean(axis=axes, keepdims=True)
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + epsilon)
    y = (x - mean) * inverse * gamma
    return (y if beta is None else y + beta), mean, inverse


def rms_norm(x, gamma, epsilon=1e-12, axis=-1):
    x = np.asarray(x, np.float64)
    inverse = 1 / np.sqrt((x * x).mean(axis=tuple(range(axis % x.ndim, x.ndim)), keepdims=True) + epsilon)
    return x * inverse * gamma, inverse


def plain(c):
    x, gamma, beta = c.real(2, 5, 24), c.real(24, low=0.5), c.real(24)
    y, mean, inverse = layer_norm(x, gamma, beta, 1e-5)
    # ONNX has it from opset 17 on, onnxruntime before.
    for opset in (11, 13, 17):
        c.add("LayerNormalization", f"opset{opset}", [x, Fixed(gamma), Fixed(beta)], f32(y), domain="", opset=opset)
    c.add("LayerNormalization", "all", [x, Fixed(gamma), Fixed(beta)], [f32(y), f32(mean), f32(inverse)], domain="", opset=12)
    two = c.real(5, 24, low=0.5)
    c.add("LayerNormalization", "axis", [x, Fixed(two)], f32(layer_norm(x, two, None, 0.01, 1)[0]), domain="", opset=12, axis=1, epsilon=0.01)
    y, inverse = rms_norm(x, gamma, 1e-5)
    for opset in (11, 17, 21):
        c.add("SimplifiedLayerNormalization", f"opset{opset}", [x, Fixed(gamma)], f32(y), domain="", opset=opset)
    c.add("SimplifiedLayerNormalization", "inverse", [x, Fixed(gamma)], [f32(y), f32(inverse)], domain="")
    c.add("SimplifiedLayerNormalization", "own_domain", [x, Fixed(gamma)], f32(y), stash_type=1)
    y, inverse = rms_norm(x, two, 0.01, 1)
    c.add("SimplifiedLayerNormalization", "axis", [x, Fixed(two)], [f32(y), f32(inverse)], domain="", axis=-2, epsilon=0.01)
    half = x.astype(np.float16)
    c.add("SimplifiedLayerNormalization", "mixed", [half, Fixed(gamma)], f32(rms_norm(half, gamma, 1e-5)[0]), domain="")


def skips(c):
    x, gamma, beta, bias = c.real(2, 5, 24), c.real(24, low=0.5), c.real(24), c.real(24)
    for variant, shape in (("whole", (2, 5, 24)), ("one", (1, 5, 24)), ("flat", (5, 24))):
        skip = c.real(*shape)
        y = layer_norm(x + skip, gamma, beta)[0]
        c.add("SkipLayerNormalization", variant, [x, skip, Fixed(gamma), Fixed(beta)], f32(y))
    skip = c.real(2, 5, 24)
    total = np.float64(x) + skip + bias
    y, mean, inverse = layer_norm(total, gamma, beta, 0.001)
    everything = [x, skip, Fixed(gamma), Fixed(beta), Fixed(bias)]
    c.add("SkipLayerNormalization", "bias", everything, f32(y), epsilon=0.001)
    c.add("SkipLayerNormalization", "all", everything, [f32(y), f32(mean), f32(inverse), f32(total)], epsilon=0.001)
    c.add("SkipLayerNormalization", "sum", everything, [f32(y), None, None, f32(total)], epsilon=0.001)
    c.add("SkipLayerNormalization", "no_beta", [x, skip, Fixed(gamma)], f32(layer_norm(x + skip, gamma)[0]))
    c.add("SkipLayerNormalization", "rows", [x[0], skip[0], Fixed(gamma), Fixed(beta)], f32(layer_norm(x[0] + skip[0], gamma, beta)[0]))
    # The default epsilon counts where there is no deviation at all.
    still = np.full((1, 2, 24), 0.5, np.float32)
    c.add("SkipLayerNormalization", "still", [still, still, Fixed(gamma), Fixed(beta)], f32(np.broadcast_to(beta, still.shape)))
    y, inverse = rms_norm(total, gamma, 0.001)
    c.add("SkipSimplifiedLayerNormalization", "plain", [x, skip, Fixed(gamma)], f32(rms_norm(np.float64(x) + skip, gamma)[0]))
    c.add("SkipSimplifiedLayerNormalization", "all", [x, skip, Fixed(gamma), Fixed(bias)], [f32(y), None, f32(inverse), f32(total)], epsilon=0.001)


def embeddings(c):
    words, positions, segments = c.real(40, 24), c.real(16, 24), c.real(2, 24)
    gamma, beta = c.real(24, low=0.5), c.real(24)
    ids, kinds = c.integers(0, 40, 2, 7), c.integers(0, 2, 2, 7)
    mask = np.array([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]], np.int32)
    tables, scale = [Fixed(words), Fixed(positions)], [Fixed(gamma), Fixed(beta)]
    total = np.float64(words[ids]) + positions[:7] + segments[kinds]
    y = f32(layer_norm(total, gamma, beta)[0])
    everything = [ids, kinds, *tables, Fixed(segments), *scale]
    c.add("EmbedLayerNormalization", "segments", everything, y)
    c.add("EmbedLayerNormalization", "mask", [*everything, mask], [y, np.array([5, 7], np.int32)])
    c.add("EmbedLayerNormalization", "no_mask", everything, [y, np.zeros(2, np.int32)], mask_index_type=1)
    c.add("EmbedLayerNormalization", "sum", everything, [y, None, f32(total)])
    plain_total = np.float64(words[ids]) + positions[:7]
    bare = [ids, None, *tables, None, *scale]
    c.add("EmbedLayerNormalization", "no_segments", bare, f32(layer_norm(plain_total, gamma, beta, 0.01)[0]), epsilon=0.01)
    for variant, rows in (("positions", 2), ("positions_once", 1)):
        places = c.integers(0, 16, rows, 7)
        total = np.float64(words[ids]) + positions[places]
        c.add("EmbedLayerNormalization", variant, [*bare, None, places], f32(layer_norm(total, gamma, beta)[0]))

    def table(*shape):
        data = c.bytes(np.uint8, *shape)
        scale, zero = np.float32(c.rng.uniform(0.01, 0.03)), np.uint8(c.rng.integers(100, 150))
        return data, scale, zero, dequantized(data, scale, zero)

    parts = [table(40, 24), table(16, 24), table(2, 24), table(24), table(24)]
    real = [p[3] for p in parts]
    y = f32(layer_norm(real[0][ids] + real[1][:7] + real[2][kinds], real[3], real[4])[0])
    data, scales, zeros = ([Fixed(p[k]) for p in parts] for k in range(3))
    c.add("QEmbedLayerNormalization", "mask", [ids, kinds, *data, mask, *scales, *zeros], [y, np.array([5, 7], np.int32)])
    y = f32(layer_norm(real[0][ids] + real[1][:7], real[3], real[4])[0])
    for k in (data, scales, zeros):
        k[2] = None
    c.add("QEmbedLayerNormalization", "no_segments", [ids, None, *data, None, *scales, *zeros], [y])


def group_norm(x, gamma, beta, groups, epsilon):
    """Channels are second."""
    rest = (x.shape[0], groups, -1)
    y = layer_norm(np.float64(x).reshape(rest), 1.0, None, epsilon)[0].reshape(x.shape)
    line = (1, -1) + (1,) * (x.ndim - 2)
    return y * gamma.reshape(line) + beta.reshape(line)


def groups(c):
    gamma, beta, bias = c.real(12, low=0.5), c.real(12), c.real(12)
    for variant, last, activation, dtype in (("last", 1, 0, np.float32), ("second", 0, 0, np.float32), ("silu", 1, 1, np.float32), ("mixed", 1, 1, np.float16)):
        x = c.real(2, 12, 4, 5).astype(dtype)
        skip = c.real(2, 12, 4, 5).astype(dtype)
        outside = (lambda t: np.ascontiguousarray(np.moveaxis(t, 1, -1))) if last else (lambda t: t)
        f = (lambda t: t * sigmoid(t)) if activation else (lambda t: t)
        attributes = {"groups": 3, "activation": activation, "channels_last": last, "epsilon": 0.001}
        loose = {"rtol": 4e-3, "atol": 4e-3} if dtype == np.float16 else {}
        y = f(group_norm(x, gamma, beta, 3, np.float32(0.001))).astype(dtype)
        c.add("GroupNorm", variant, [outside(x), Fixed(gamma), Fixed(beta)], outside(y), **loose, **attributes)
        if dtype == np.float16:
            continue
        total = np.float64(x) + skip + bias[:, None, None]
        y = f(group_norm(total, gamma, beta, 3, np.float32(0.001))).astype(dtype)
        c.add("SkipGroupNorm", variant, [outside(x), Fixed(gamma), Fixed(beta), outside(skip), Fixed(bias)], [outside(y), outside(f32(total))], **attributes)
    x, each = c.real(2, 4, 5, 12), c.real(2, 12)
    total = np.float64(x) + each[:, None, None]
    y = np.moveaxis(group_norm(np.moveaxis(total, -1, 1), gamma, beta, 4, np.float32(1e-5)), 1, -1)
    c.add("SkipGroupNorm", "skip_of_images", [x, Fixed(gamma), Fixed(beta), each], f32(y), groups=4, activation=0)
    c.add("SkipGroupNorm", "skip_of_rank_4", [x, Fixed(gamma), Fixed(beta), each.reshape(2, 1, 1, 12)], f32(y), groups=4, activation=0)


def cases():
    c = Cases(3)
    for make in (plain, skips, embeddings, groups):
        make(c)
    return c.all
