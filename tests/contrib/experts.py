"""Mixtures of experts: each row through a few of many small networks."""

import numpy as np

from case import Cases, Fixed, f32, sigmoid, softmax


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


PLAIN = {
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "gelu": gelu,
    "silu": lambda x: x * sigmoid(x),
    "identity": lambda x: x,
}


def expert(x, layers, words):
    """One row through one expert; layers: (weights [N, K], bias) of fc1, fc2 and, where there is one, fc3."""
    (first, a), (second, b), *third = layers
    kind, fusion = words["activation_type"], words.get("swiglu_fusion", 0)
    y = first @ x + a
    linear = third[0][0] @ x + third[0][1] if third else 1
    if kind in ("swiglu", "geglu") and fusion:
        y, linear = (y[0::2], y[1::2]) if fusion == 1 else np.split(y, 2)
    if kind == "swiglu":
        limit = words.get("swiglu_limit", np.inf)
        y, linear = np.minimum(y, limit), np.clip(linear, -limit, limit)
        y, linear = y * sigmoid(words.get("activation_alpha", 1) * y), linear + words.get("activation_beta", 0)
    else:
        y = PLAIN["gelu" if kind == "geglu" else kind](y)
    return second @ (y * linear) + b


def mixture(x, scores, layers, words, weights=None):
    rows, k = x.reshape(-1, x.shape[-1]).astype(np.float64), words.get("k", 1)
    shares = softmax(scores) if weights is None else weights.astype(np.float64)
    y = np.zeros(rows.shape)
    for t, row in enumerate(rows):
        chosen = np.argsort(-scores[t], kind="stable")[:k]
        share = shares[t, chosen]
        if words.get("normalize_routing_weights"):
            share = share / share.sum()
        for e, part in zip(chosen, share):
            y[t] += part * expert(row, [(w[e], b[e]) for w, b in layers], words)
    return y.reshape(x.shape)


def columns_of(words, inner):
    is_fused = words["activation_type"] in ("swiglu", "geglu") and words.get("swiglu_fusion", 0)
    return 2 * inner if is_fused else inner


def plain(c):
    swiglu = {"activation_type": "swiglu", "swiglu_fusion": 1}
    for variant, tokens, experts, width, inner, third, bias, rank, words in (
        ("relu", 5, 6, 16, 24, False, True, 2, {"activation_type": "relu", "k": 2}),
        ("one", 7, 4, 16, 24, False, True, 2, {"activation_type": "relu2"}),
        ("normal", 5, 6, 20, 33, False, True, 2, {"activation_type": "silu", "k": 3, "normalize_routing_weights": 1}),
        ("without_bias", 5, 6, 16, 24, False, False, 2, {"activation_type": "gelu", "k": 2}),
        ("gated", 5, 6, 16, 24, True, True, 2, {"activation_type": "silu", "k": 2}),
        ("in_turn", 3, 16, 16, 24, False, True, 2, {**swiglu, "k": 2}),
        ("in_turn_limited", 5, 6, 16, 24, False, True, 3, {**swiglu, "k": 4, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 1.5}),
        ("halves", 5, 6, 16, 24, False, True, 2, {"activation_type": "swiglu", "swiglu_fusion": 2, "k": 2}),
        ("apart", 5, 6, 16, 24, True, True, 2, {"activation_type": "swiglu", "k": 2}),
        ("geglu", 5, 6, 16, 24, False, True, 2, {"activation_type": "geglu", "swiglu_fusion": 1, "k": 2}),
        ("few_of_many", 2, 32, 48, 64, False, True, 3, {**swiglu, "k": 4, "normalize_routing_weights": 1}),
        ("many_rows", 150, 4, 48, 64, False, True, 3, {**swiglu, "k": 2}),
    ):
        sizes = [(columns_of(words, inner), width), (width, inner), (inner, width)][: 3 if third else 2]
        layers = [(c.real(experts, *size, low=-0.3, high=0.3), c.real(experts, size[0]) if bias else np.zeros((experts, size[0]))) for size in sizes]
        given = [Fixed(x) for w, b in layers for x in ((w, f32(b)) if bias else (w,))]
        if not bias:
            given = [given[0], None, given[1]]

        def run(tokens):
            x, scores = c.real(*((1,) if rank == 3 else ()), tokens, width), c.real(tokens, experts, low=-3, high=3)
            return [x, scores, *given], [f32(mixture(x, scores, layers, words))]

        c.add("MoE", variant, *run(tokens), **words)
        dims = [(*((None,) if rank == 3 else ()), "T", None), ("T", None), *[None] * len(given)]
        c.add("MoE", f"{variant}_open", *run(tokens), dims=dims, more=[run(1), run(40)], **words)


def halves(c):
    """In 16 bits, which tensor cores of GPUs multiply in tiles."""
    experts, width, inner, words = 3, 64, 48, {"activation_type": "swiglu", "swiglu_fusion": 1, "k": 2, "normalize_routing_weights": 1}
    layers = [tuple(x.astype(np.float16) for x in (c.real(experts, n, k, low=-0.3, high=0.3), c.real(experts, n))) for n, k in ((2 * inner, width), (width, inner))]

    def run(tokens):
        x, scores = c.real(tokens, width).astype(np.float16), c.real(tokens, experts, low=-3, high=3).astype(np.float16)
        y = mixture(x, scores, [(w.astype(np.float64), b.astype(np.float64)) for w, b in layers], words)
        return [x, scores, *(Fixed(x) for layer in layers for x in layer)], [y.astype(np.float16)]

    c.add("MoE", "in_16_bits", *run(60), rtol=1e-2, atol=1e-2, **words)
    c.add("MoE", "in_16_bits_open", *run(60), rtol=1e-2, atol=1e-2, dims=[("T", None), ("T", None), *[None] * 4], more=[run(1), run(7)], **words)


def packed(numbers, bits):
    """Along the last axis, the first in the lowest bits."""
    each = 8 // bits
    numbers = np.concatenate([numbers, np.zeros((*numbers.shape[:-1], -numbers.shape[-1] % each), int)], -1)
    parts = numbers.reshape(*numbers.shape[:-1], -1, each)
    return sum(parts[..., i] << (i * bits) for i in range(each)).astype(np.uint8)


def quantized(c):
    oss = {"activation_type": "swiglu", "swiglu_fusion": 1, "k": 2, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0}
    for variant, tokens, experts, width, inner, bits, block, zeros, router, words in (
        ("blocks", 5, 6, 64, 96, 4, 32, False, False, {**oss, "normalize_routing_weights": 1}),
        ("zeros", 5, 6, 64, 96, 4, 32, True, False, oss),
        ("bytes", 5, 6, 64, 96, 8, 16, True, False, oss),
        ("two_bits", 5, 6, 64, 96, 2, 32, True, False, oss),
        ("columns", 5, 6, 64, 96, 4, 0, False, False, oss),
        ("columns_with_zeros", 5, 6, 62, 98, 4, 0, True, False, oss),
        ("router", 5, 6, 64, 96, 4, 32, False, True, {"activation_type": "silu", "k": 2}),
        ("router_normal", 5, 6, 64, 96, 4, 32, False, True, {"activation_type": "silu", "k": 2, "normalize_routing_weights": 1}),
        ("kept", 9, 3, 512, 1056, 4, 32, True, False, oss),
        ("kept_of_many", 2, 8, 512, 1056, 4, 32, False, False, oss),
        ("kept_bytes", 9, 3, 512, 1056, 8, 0, False, False, oss),
    ):
        layers, given = [], []
        for columns, depth in ((columns_of(words, inner), width), (width, inner)):
            blocks = depth // block if block else 1
            numbers, scales = c.integers(0, 2**bits, experts, columns, depth), c.real(experts, columns, blocks, low=0.01, high=0.2) / 2 ** (bits - 1)
            zero = c.integers(0, 2**bits, experts, columns, blocks) if zeros else np.full((experts, columns, blocks), 2 ** (bits - 1))
            every = depth // blocks
            real = (numbers - np.repeat(zero, every, 2)) * np.repeat(scales, every, 2)
            bias = c.real(experts, columns)
            layers.append((real, bias))
            given.append([packed(numbers, bits), f32(scales) if block else f32(scales[..., 0]), bias, packed(zero if block else zero[..., 0], bits)])
        (w1, s1, b1, z1), (w2, s2, b2, z2) = ([Fixed(x) for x in layer] for layer in given)

        def run(tokens):
            x, scores = c.real(tokens, width), c.real(tokens, experts, low=-3, high=3)
            weights = c.real(tokens, experts, low=0.1, high=1) if router else None
            inputs = [x, scores, w1, s1, b1, w2, s2, b2, None, None, None, z1 if zeros else None, z2 if zeros else None, None, weights]
            while inputs[-1] is None:
                inputs.pop()
            return inputs, [f32(mixture(x, scores, layers, words, weights))]

        words = {**words, "expert_weight_bits": bits, **({"block_size": block} if block else {})}
        of_tokens = ("T", None)
        dims = [of_tokens, of_tokens, *[None] * 12, of_tokens]
        c.add("QMoE", variant, *run(tokens), rtol=1e-3, atol=1e-4, **words)
        c.add("QMoE", f"{variant}_open", *run(tokens), rtol=1e-3, atol=1e-4, dims=dims, more=[run(1), run(40)], **words)


def cases():
    c = Cases(19)
    for make in (plain, halves, quantized):
        make(c)
    return c.all
