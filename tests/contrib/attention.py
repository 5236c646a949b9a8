"""Attention with its masks, biases and pasts; rotary embeddings."""

import numpy as np
from case import Cases, Fixed, dequantized, f32, softmax


def heads_of(x, heads):
    """[B, rows, heads * size] as [B, heads, rows, size]."""
    return np.moveaxis(np.float64(x).reshape(*x.shape[:2], heads, -1), 2, 1)


def attend(q, k, v, scale=None, mask=None, bias=None, causal=False, window=None):
    """Heads apart. mask: which keys are seen, -10000 for the others; behind them a causal query sees nothing at all."""
    scores = q @ np.swapaxes(k, -1, -2) * (scale or 1 / np.sqrt(q.shape[-1]))
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores + np.where(mask, 0.0, -10000.0)
    if causal:
        past = k.shape[2] - q.shape[2]
        behind = past + np.arange(q.shape[2])[:, None] - np.arange(k.shape[2])
        scores = np.where((behind >= 0) & (behind < (window or k.shape[2])), scores, -np.inf)
    y = softmax(scores) @ v
    return np.moveaxis(y, 1, 2).reshape(y.shape[0], y.shape[2], -1)


B, S, N, H = 2, 6, 3, 8
D = N * H
PADDED = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], np.int32)
LENGTHS = np.array([4, 6], np.int32)
SPANS = np.array([5, 6, 1, 2], np.int32)  # ends, then starts
PLACES = np.arange(S)
SPANNED = (PLACES < SPANS[:2, None]) & (PLACES >= SPANS[2:, None])


def masks(c):
    """(variant, input, what is seen [B, 1, S or 1, S])"""
    each = c.rng.integers(0, 2, (B, S, S)).astype(np.int32)
    each[:, :, 0] = 1
    return (
        ("no_mask", None, None),
        ("padding", PADDED, PADDED[:, None, None] > 0),
        ("lengths", LENGTHS, (PLACES < LENGTHS[:, None])[:, None, None]),
        ("spans", SPANS, SPANNED[:, None, None]),
        ("each_query", each, each[:, None] > 0),
        ("same_for_all", np.ones((B, 1), np.int32), None),
    )


def of_one_input(c):
    x, weights, bias = c.real(B, S, 20), c.real(20, 3 * D, low=-0.4, high=0.4), c.real(3 * D)
    fixed = [Fixed(weights), Fixed(bias)]
    q, k, v = (heads_of(t, N) for t in np.split(np.float64(x) @ weights + bias, 3, axis=-1))
    for variant, mask, seen in masks(c):
        for causal in (0, 1):
            inputs = [x, *fixed] + [mask] * (mask is not None)
            attributes = {"num_heads": N, **({"unidirectional": 1} if causal else {})}
            # Queries that see hidden keys only have scores around -10000: few digits are left of what they were.
            loose = {"atol": 3e-3} if variant == "spans" and causal else {}
            c.add("Attention", variant + "_causal" * causal, inputs, f32(attend(q, k, v, mask=seen, causal=bool(causal))), **attributes, **loose)
    y = f32(attend(*(heads_of(t, N) for t in np.split(np.float64(x) @ weights, 3, axis=-1)), scale=0.2))
    c.add("Attention", "no_bias", [x, Fixed(weights)], y, num_heads=N, scale=0.2)
    hidden = np.zeros((B, 1, 1, S), bool)  # all keys of a query alike: the filter cancels out
    c.add("Attention", "all_hidden", [x, *fixed, np.zeros((B, S), np.int32)], f32(attend(q, k, v, mask=hidden)), num_heads=N, atol=3e-3)
    scores = np.where(PADDED[:, None, None] > 0, 0.0, -3.0)
    c.add("Attention", "filter", [x, *fixed, PADDED], f32(attend(q, k, v, bias=scores)), num_heads=N, mask_filter_value=-3.0)
    for variant, shape in (("whole", (B, N, S, S)), ("shared", (1, N, S, S)), ("of_batch", (B, 1, S, S))):
        extra = c.real(*shape)
        c.add("Attention", f"bias_{variant}", [x, *fixed, None, None, extra], f32(attend(q, k, v, bias=extra)), num_heads=N)
        both = f32(attend(q, k, v, bias=extra, mask=PADDED[:, None, None] > 0))
        c.add("Attention", f"bias_{variant}_padding", [x, *fixed, PADDED, None, extra], both, num_heads=N)
    # Values of another size than queries and keys.
    wide, wide_bias = c.real(20, 2 * D + 2 * N, low=-0.4, high=0.4), c.real(2 * D + 2 * N)
    parts = np.split(np.float64(x) @ wide + wide_bias, [D, 2 * D], axis=-1)
    y = f32(attend(*(heads_of(t, N) for t in parts)))
    c.add("Attention", "sizes", [x, Fixed(wide), Fixed(wide_bias)], y, num_heads=N, qkv_hidden_sizes=[D, D, 2 * N])
    # What lies before, and what will have.
    past = c.real(2, B, N, 4, H)
    all_k, all_v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    present = f32(np.stack([all_k, all_v]))
    y = f32(attend(q, all_k, all_v, causal=True))
    c.add("Attention", "past", [x, *fixed, None, past], [y, present], num_heads=N, unidirectional=1)
    seen = np.concatenate([np.zeros((B, 2), np.int32), np.ones((B, 8), np.int32)], 1)
    y = f32(attend(q, all_k, all_v, mask=seen[:, None, None] > 0, causal=True))
    c.add("Attention", "past_padding", [x, *fixed, seen, past], [y, present], num_heads=N, unidirectional=1)
    c.add("Attention", "present", [x, *fixed], [f32(attend(q, k, v)), f32(np.stack([k, v]))], num_heads=N)
    one = x[:, :1]
    q1, k1, v1 = (heads_of(t, N) for t in np.split(np.float64(one) @ weights + bias, 3, axis=-1))
    y = f32(attend(q1, np.concatenate([past[0], k1], 2), np.concatenate([past[1], v1], 2)))
    present = f32(np.stack([np.concatenate([past[0], k1], 2), np.concatenate([past[1], v1], 2)]))
    c.add("Attention", "past_one", [one, *fixed, None, past], [y, present], num_heads=N, unidirectional=1)


def quantised(c):
    for variant, a_type, w_type, columns, mask, causal in (
        ("plain", np.uint8, np.int8, False, None, 0),
        ("padding", np.uint8, np.int8, True, PADDED, 0),
        ("lengths_causal", np.uint8, np.uint8, False, LENGTHS, 1),
        ("no_zeros", np.int8, np.int8, False, LENGTHS, 0),
    ):
        x, w, bias = c.bytes(a_type, B, S, 20), c.bytes(w_type, 20, 3 * D), c.real(3 * D)
        x_scale, x_zero = np.float32(0.011), None if variant == "no_zeros" else a_type(117)
        w_scale = c.real(3 * D, low=0.002, high=0.006) if columns else np.float32(0.0043)
        w_zero = None if variant == "no_zeros" else np.zeros(3 * D, w_type) if columns else w_type(3)
        product = dequantized(x, x_scale, x_zero or 0) @ dequantized(w, w_scale, 0 if w_zero is None else w_zero, 1 if columns else None)
        q, k, v = (heads_of(t, N) for t in np.split(product + bias, 3, axis=-1))
        seen = None if mask is None else (PADDED > 0 if mask is PADDED else PLACES < LENGTHS[:, None])[:, None, None]
        inputs = [x, Fixed(w), Fixed(bias), x_scale, Fixed(w_scale), mask, x_zero, None if w_zero is None else Fixed(w_zero)]
        c.add("QAttention", variant, inputs, f32(attend(q, k, v, mask=seen, causal=bool(causal))), num_heads=N, unidirectional=causal, atol=1e-4)


def of_three_inputs(c):
    rows = 7  # of keys and values
    q, k, v, bias = c.real(B, S, D), c.real(B, rows, D), c.real(B, rows, 2 * N), c.real(2 * D + 2 * N)
    apart = [heads_of(t, N) for t in (q, k, v)]
    c.add("MultiHeadAttention", "cross", [q, k, v], f32(attend(*apart)), num_heads=N)
    biased = [heads_of(t + b, N) for t, b in zip((q, k, v), np.split(bias, [D, 2 * D]))]
    c.add("MultiHeadAttention", "bias", [q, k, v, Fixed(bias)], f32(attend(*biased, scale=0.3)), num_heads=N, scale=0.3)
    seen = c.rng.integers(0, 2, (B, rows)).astype(np.int32)
    seen[:, 0] = 1
    c.add("MultiHeadAttention", "padding", [q, k, v, None, seen], f32(attend(*apart, mask=seen[:, None, None] > 0)), num_heads=N)
    each = c.rng.integers(0, 2, (B, S, rows)).astype(np.int32)
    each[:, :, 0] = 1
    c.add("MultiHeadAttention", "each_query", [q, k, v, None, each], f32(attend(*apart, mask=each[:, None] > 0)), num_heads=N)
    lengths = np.array([7, 3], np.int32)
    shorter = (np.arange(rows) < lengths[:, None])[:, None, None]
    c.add("MultiHeadAttention", "lengths", [q, k, v, None, lengths], f32(attend(*apart, mask=shorter)), num_heads=N)
    extra = c.real(1, N, S, rows)
    both = f32(attend(*apart, mask=seen[:, None, None] > 0, bias=extra))
    c.add("MultiHeadAttention", "score_bias", [q, k, v, None, seen, extra], both, num_heads=N)
    k4, v4 = f32(apart[1]), f32(apart[2])
    c.add("MultiHeadAttention", "heads_apart", [q, k4, v4], f32(attend(apart[0], k4, v4)), num_heads=N)
    same = c.real(B, S, D), c.real(B, S, D)
    own = [apart[0], *(heads_of(t, N) for t in same)]
    c.add("MultiHeadAttention", "causal", [q, *same], f32(attend(*own, causal=True)), num_heads=N, unidirectional=1)
    present = [f32(own[1]), f32(own[2])]
    c.add("MultiHeadAttention", "present", [q, *same], [f32(attend(*own)), *present], num_heads=N)
    past = c.real(B, N, 3, H), c.real(B, N, 3, H)
    longer = [np.concatenate([p, t], 2) for p, t in zip(past, own[1:])]
    y = f32(attend(own[0], *longer, causal=True))
    c.add("MultiHeadAttention", "past", [q, *same, None, None, None, *past], [y, *map(f32, longer)], num_heads=N, unidirectional=1)
    packed = np.stack([np.moveaxis(t, 1, 2) for t in own], 3)  # [B, S, N, 3, H]
    c.add("MultiHeadAttention", "packed", [f32(packed)], f32(attend(*own)), num_heads=N)
    c.add("MultiHeadAttention", "packed_keys", [q, f32(packed[:, :, :, 1:])], f32(attend(*own)), num_heads=N)


def of_open_sizes(c):
    """One library for several batches, lengths and pasts, of no rows among them."""
    weights, bias = c.real(20, 3 * D, low=-0.4, high=0.4), c.real(3 * D)
    sizes = ((2, 6, 4), (1, 1, 9), (3, 5, 0), (2, 1, 1), (1, 30, 3))

    def lengths_of(batch, total):
        return c.integers(1, total + 1, batch, dtype=np.int32)

    def one_input(batch, rows, before, mask=None, causal=False):
        x, past = c.real(batch, rows, 20), c.real(2, batch, N, before, H)
        q, k, v = (heads_of(t, N) for t in np.split(np.float64(x) @ weights + bias, 3, axis=-1))
        k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
        given = seen = None
        if mask == "padding":
            given = c.integers(0, 2, batch, before + rows)
            given[:, 0] = 1
            seen = given[:, None, None] > 0
        elif mask == "lengths":
            given = lengths_of(batch, before + rows)
            seen = (np.arange(before + rows) < given[:, None])[:, None, None]
        y = attend(q, k, v, mask=seen, causal=causal)
        return [x, Fixed(weights), Fixed(bias), given, past], [f32(y), f32(np.stack([k, v]))]

    def three_inputs(batch, rows, before, mask=None, causal=False, score_bias=False):
        q, k, v = (c.real(batch, rows, D) for _ in range(3))
        past = c.real(batch, N, before, H), c.real(batch, N, before, H)
        q4, k4, v4 = (heads_of(t, N) for t in (q, k, v))
        k4, v4 = np.concatenate([past[0], k4], 2), np.concatenate([past[1], v4], 2)
        given = lengths_of(batch, before + rows) if mask else None
        seen = (np.arange(before + rows) < given[:, None])[:, None, None] if mask else None
        extra = c.real(1, N, rows, before + rows) if score_bias else None
        y = attend(q4, k4, v4, mask=seen, bias=extra, causal=causal)
        return [q, k, v, None, given, extra, *past], [f32(y), f32(k4), f32(v4)]

    row = ("B", "S", None)
    for mask, dims in ((None, None), ("padding", ("B", "T")), ("lengths", ("B",))):
        for causal in (0, 1):
            variant = f"open_{mask or 'no_mask'}" + "_causal" * causal
            # Queries of which causality hides what the mask shows have scores around -10000: few digits are left of what they were.
            loose = {"atol": 3e-3} if mask and causal else {}
            runs = [one_input(*each, mask, bool(causal)) for each in sizes]
            c.add("Attention", variant, *runs[0], dims=[row, None, None, dims, (None, "B", None, "P", None)], more=runs[1:], num_heads=N,
                  unidirectional=causal, **loose)
            if mask == "padding":
                continue
            runs = [three_inputs(*each, mask, bool(causal), not causal) for each in sizes]
            c.add("MultiHeadAttention", variant, *runs[0], dims=[row, row, row, None, dims, (None, None, "S", "T"), *[("B", None, "P", None)] * 2],
                  more=runs[1:], num_heads=N, unidirectional=causal, **loose)


def turned(x, cos, sin, positions, interleaved):
    """x: [B, heads, rows, size]; the first 2 * cos.shape[1] of each head turn."""
    half = cos.shape[1]
    a, b = np.float64(cos)[positions][:, None], np.float64(sin)[positions][:, None]
    y = np.float64(x).copy()
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    y[..., first] = x[..., first] * a - x[..., second] * b
    y[..., second] = x[..., first] * b + x[..., second] * a
    return y


def joined(x):
    return np.moveaxis(x, 1, 2).reshape(x.shape[0], x.shape[2], -1)


def rotary(c):
    angles = c.real(16, H // 2, low=-3, high=3)
    cos, sin = np.cos(angles), np.sin(angles)
    tables = [Fixed(cos), Fixed(sin)]
    flat, places = c.real(B, S, D), c.integers(0, 16, B, S, dtype=np.int64)
    x = heads_of(flat, N)
    c.add("RotaryEmbedding", "rank_3", [flat, places, *tables], f32(joined(turned(x, cos, sin, places, False))))
    c.add("RotaryEmbedding", "rank_4", [f32(x), places, *tables], f32(turned(x, cos, sin, places, False)))
    c.add("RotaryEmbedding", "interleaved", [flat, places, *tables], f32(joined(turned(x, cos, sin, places, True))), interleaved=1)
    start = np.array([5], np.int64)
    along = np.broadcast_to(5 + PLACES, (B, S))
    c.add("RotaryEmbedding", "start", [flat, start, *tables], f32(joined(turned(x, cos, sin, along, False))))

    def run(batch, rows, first=None):
        x = c.real(batch, rows, D)
        at = c.integers(0, 16, batch, rows, dtype=np.int64) if first is None else np.broadcast_to(first + np.arange(rows), (batch, rows))
        given = at if first is None else np.array([first], np.int64)
        return [x, given, *tables], [f32(joined(turned(heads_of(x, N), cos, sin, at, False)))]

    runs = [run(2, 6), run(1, 1), run(3, 16)]
    c.add("RotaryEmbedding", "open", *runs[0], dims=[("B", "S", None), ("B", "S")], more=runs[1:])
    runs = [run(2, 6, 5), run(1, 1, 15), run(3, 16, 0)]
    c.add("RotaryEmbedding", "open_start", *runs[0], dims=[("B", "S", None), (None,)], more=runs[1:])
    part = [Fixed(cos[:, :2]), Fixed(sin[:, :2])]
    y = f32(joined(turned(x, cos[:, :2], sin[:, :2], places, False)))
    c.add("RotaryEmbedding", "partial", [flat, places, *part], y, num_heads=N, rotary_embedding_dim=4)

    heads, shared = 4, 2
    q, k, v = c.real(B, S, heads * H), c.real(B, S, shared * H), c.real(B, S, shared * H)
    ends = [np.full(B, S - 1, np.int32), np.array(S, np.int32)]
    names = {"num_heads": heads, "kv_num_heads": shared}
    own = [heads_of(q, heads), heads_of(k, shared), heads_of(v, shared)]

    def grouped(q, k, v, **options):
        return f32(attend(q, *(np.repeat(t, heads // shared, 1) for t in (k, v)), causal=True, **options))

    present = [f32(t) for t in own[1:]]
    c.add("GroupQueryAttention", "plain", [q, k, v, None, None, *ends], [grouped(*own), *present], **names)
    packed = np.concatenate([q, k, v], -1)
    c.add("GroupQueryAttention", "packed", [packed, None, None, None, None, *ends], [grouped(*own), *present], scale=0.3, **names)
    c.all[-1].outputs[0] = grouped(*own, scale=0.3)
    c.add("GroupQueryAttention", "window", [q, k, v, None, None, *ends], [grouped(*own, window=3), *present], local_window_size=3, **names)
    along = np.broadcast_to(PLACES, (B, S))
    for variant, interleaved in (("rotary", 0), ("rotary_interleaved", 1)):
        qr, kr = (turned(t, cos, sin, along, interleaved) for t in own[:2])
        y = [grouped(qr, kr, own[2]), f32(kr), present[1]]
        c.add("GroupQueryAttention", variant, [q, k, v, None, None, *ends, *tables], y, do_rotary=1, rotary_interleaved=interleaved, **names)


def cases():
    c = Cases(4)
    for make in (of_one_input, quantised, of_three_inputs, of_open_sizes, rotary):
        make(c)
    return c.all
