"""Linear attention, convolutions along time, gates and norms of language models with states of one size."""

import numpy as np

from case import Cases, Fixed


def f32(x):
    return np.asarray(x, np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def linear_attention(q, k, v, state, decay, beta, heads, states, rule, scale):
    """Row by row, as the operator's documentation says, in f64."""
    batch, rows = q.shape[:2]
    width = q.shape[-1] // heads
    q, k, v = (t.astype(np.float64).reshape(batch, rows, -1, size) for t, size in ((q, width), (k, width), (v, v.shape[-1] // states)))
    q, k, s = np.repeat(q, max(1, states // heads), 2), np.repeat(k, states // k.shape[2], 2), state.astype(np.float64)
    sharing = q.shape[2] // states
    out = np.zeros((batch, rows, q.shape[2], v.shape[-1]))
    for t in range(rows):
        if "gated" in rule:
            g = decay.astype(np.float64)[:, t].reshape(batch, states, -1)
            s = s * np.exp(g)[..., None]
        change = v[:, t]
        if "delta" in rule:
            change = (change - np.einsum("bhkv,bhk->bhv", s, k[:, t])) * beta.astype(np.float64)[:, t][..., None]
        s = s + np.einsum("bhk,bhv->bhkv", k[:, t], change)
        out[:, t] = np.einsum("bhk,bhkv->bhv", q[:, t], np.repeat(s, sharing, 1)) * (scale or width**-0.5)
    return out.reshape(batch, rows, -1), s


def linear(c):
    for variant, rule, heads, states, key, value, decay_by_key, one_beta, has_past, scale in (
        ("gated_delta", "gated_delta", 4, 4, 16, 64, False, False, True, 0.0),
        ("gated_delta_without_past", "gated_delta", 2, 2, 8, 16, False, True, False, 0.5),
        ("gated_delta_by_key", "gated_delta", 2, 2, 24, 48, True, False, True, 0.0),
        ("shared_states", "gated_delta", 6, 2, 8, 20, False, False, True, 0.0),
        ("more_states", "gated_delta", 2, 4, 8, 32, False, False, True, 0.0),
        ("more_states_than_keys", "gated_delta", 2, 4, 8, 32, False, False, True, 0.0),
        ("gated", "gated", 2, 2, 16, 16, True, False, True, 0.0),
        ("delta", "delta", 3, 3, 16, 33, False, False, True, 0.0),
        ("linear", "linear", 4, 2, 16, 32, False, False, True, 1.0),
    ):

        keys = heads if variant == "more_states_than_keys" else states

        def run(batch, rows):
            q, k, v = c.real(batch, rows, heads * key), c.real(batch, rows, keys * key) / key**0.5, c.real(batch, rows, states * value)
            past = c.real(batch, states, key, value) if has_past else None
            decay = c.real(batch, rows, states * key if decay_by_key else states, low=-2, high=0) if "gated" in rule else None
            beta = c.real(batch, rows, 1 if one_beta else states, low=0, high=1) if "delta" in rule else None
            before = np.zeros((batch, states, key, value)) if past is None else past
            y, s = linear_attention(q, k, v, before, decay, beta, heads, states, rule, scale)
            inputs = [q, k, v, past, decay, beta]
            while inputs[-1] is None:
                inputs.pop()
            return inputs, [f32(y), f32(s)]

        words = {"q_num_heads": heads, "kv_num_heads": states, "update_rule": rule, "scale": scale}
        dims = [("B", "T", None)] * 3 + [("B", None, None, None) if has_past else None] + [("B", "T", None)] * 2
        c.add("LinearAttention", variant, *run(2, 5), **words)
        c.add("LinearAttention", f"{variant}_open", *run(2, 5), dims=dims, more=[run(1, 1), run(3, 40)], **words)


def gates(c):
    bias, scale = c.real(6), c.real(6, low=-2, high=0)

    def run(*shape):
        a, b = c.real(*shape, 6, low=-5, high=5), c.real(*shape, 6)
        return [a, Fixed(bias), Fixed(scale), b], [f32(scale * np.log1p(np.exp((a + bias).astype(np.float64)))), f32(sigmoid(b))]

    c.add("LinearAttentionGate", "both", *run(2, 5))
    c.add("LinearAttentionGate", "open", *run(2, 5), dims=[("B", "T", None)] * 4, more=[run(1, 1), run(3, 30)])
    inputs, outputs = run(1, 4)
    c.add("LinearAttentionGate", "decay", inputs[:3], outputs[:1])
    x, y, gate = c.real(2, 5, 12), c.real(2, 5, 12), c.real(2, 5, 1)
    c.add("GatedAdd", "rows", [x, y, gate], f32(x + y * gate))
    c.add("ScaledSiLU", "alpha", [x], f32(silu(1.7 * x)), alpha=1.7)
    c.add("ScaledSiLU", "scale", [x, np.array(0.3, np.float32)], f32(silu(0.3 * x)))


def convolution(x, w, bias, past, dilation, activation):
    """x [B, C, L], past [B, C, (k - 1) * dilation]."""
    taps = w.shape[-1]
    whole = np.concatenate([past, x], 2).astype(np.float64)
    y = sum(whole[:, :, j * dilation : j * dilation + x.shape[2]] * w[:, 0, j][:, None] for j in range(taps)) + bias[:, None]
    reach = (taps - 1) * dilation
    return silu(y) if activation != "none" else y, whole[:, :, whole.shape[2] - reach :]


def convolutions(c):
    for variant, channels, taps, dilation, has_bias, has_past, activation, last in (
        ("4", 24, 4, 1, True, True, "silu", None),
        ("4_plain", 10, 4, 1, False, True, "none", None),
        ("3_without_past", 16, 3, 1, True, False, "swish", None),
        ("dilated", 8, 3, 2, True, True, "silu", None),
        ("channels_last", 24, 4, 1, True, True, "silu", (24,)),
        ("channels_last_in_two_axes", 24, 4, 1, False, True, "none", (4, 6)),
        ("channels_last_without_past", 12, 2, 1, True, False, "silu", (12,)),
    ):
        w, bias = c.real(channels, 1, taps), c.real(channels)
        reach = (taps - 1) * dilation

        def given(t):
            return t if last is None else np.ascontiguousarray(t.transpose(0, 2, 1)).reshape(t.shape[0], t.shape[2], *last)

        def run(batch, rows):
            x, past = c.real(batch, channels, rows), c.real(batch, channels, reach) * has_past
            y, state = convolution(x, w, bias * has_bias, past, dilation, activation)
            inputs = [given(x), Fixed(w), Fixed(bias) if has_bias else None, given(past) if has_past else None]
            while inputs[-1] is None:
                inputs.pop()
            return inputs, [f32(given(y)), f32(given(state))]

        words = {"activation": activation}
        if dilation > 1:
            words["dilation"] = dilation
        if last:
            words["channels_last"] = 1
        inner = (None,) * len(last or (0,))
        dims = [("B", None, "T") if last is None else ("B", "T", *inner), None, None, ("B", None, *inner)]
        c.add("CausalConvWithState", variant, *run(2, 9), **words)
        c.add("CausalConvWithState", f"{variant}_one_row", *run(2, 1), **words)
        c.add("CausalConvWithState", f"{variant}_open", *run(2, 9), dims=dims, more=[run(1, 1), run(3, 40)], **words)


def rms(x, epsilon):
    return x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + epsilon)


def norms(c):
    for variant, columns, groups, activation, epsilon in (("one", 32, 1, "silu", 1e-5), ("heads", 16, 4, "swish", 1e-6), ("sigmoid", 16, 2, "sigmoid", 1e-3)):
        scale = c.real(columns, low=0.5, high=2)

        def run(*rows):
            x, gate = c.real(*rows, columns * groups), c.real(*rows, columns * groups, low=-4, high=4)
            y = (rms(x.reshape(*rows, groups, columns), epsilon) * scale).reshape(x.shape)
            return [x, Fixed(scale), gate], [f32(y * (sigmoid(gate) if activation == "sigmoid" else silu(gate)))]

        words = {"activation": activation, "epsilon": epsilon}
        c.add("GatedRMSNorm", variant, *run(2, 5), **words)
        c.add("GatedRMSNorm", f"{variant}_open", *run(2, 5), dims=[("B", "T", None), None, ("B", "T", None)], more=[run(1, 1), run(2, 33)], **words)
    x = c.real(2, 5, 3, 16)
    for variant, shape in (("each", (3, 16)), ("each_flat", (48,)), ("same", (16,)), ("none", None)):
        scale = None if shape is None else c.real(*shape)
        y = rms(x, 1e-5) * (1 if scale is None else scale.reshape(3, 16) if scale.size == 48 else scale)
        inputs = [] if scale is None else [Fixed(scale)]
        c.add("BranchwiseRMSNorm", variant, [x, *inputs], f32(y))
        c.add("BranchwiseRMSNorm", f"{variant}_of_rows", [x.reshape(2, 5, 48), *inputs], f32(y.reshape(2, 5, 48)), num_branches=3)


def rotations(c):
    for variant, rank, heads, head, dim, section, layout, interleaved in (
        ("sections", 3, 4, 16, 0, (2, 3, 3), 0, 0),
        ("sections_of_heads", 4, 4, 16, 0, (2, 3, 3), 0, 0),
        ("in_turn", 3, 2, 24, 0, (4, 4, 4), 1, 0),
        ("in_turn_part", 3, 2, 32, 16, (4, 2, 2), 1, 0),
        ("sections_of_neighbours", 4, 2, 16, 0, (4, 2, 2), 0, 1),
    ):
        angles, most = sum(section), 20
        angle = c.real(most, angles, low=-3, high=3)
        cos, sin = np.cos(angle), np.sin(angle)
        which = np.repeat([0, 1, 2], section)
        if layout:
            which = np.zeros(angles, int)
            for axis in (1, 2):
                which[axis : 3 * section[axis] : 3] = axis

        def run(batch, rows):
            x = c.real(batch, heads, rows, head)
            places = c.integers(0, most, 3, batch, rows, dtype=np.int64)
            co, si = (np.stack([table[places[which[a]], a] for a in range(angles)], -1)[:, None] for table in (cos, sin))
            turned, rest = x[..., : 2 * angles], x[..., 2 * angles :]
            a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else (turned[..., :angles], turned[..., angles:])
            y = np.stack([a * co - b * si, b * co + a * si], -1).reshape(turned.shape) if interleaved else np.concatenate([a * co - b * si, b * co + a * si], -1)
            y = np.concatenate([y, rest], -1)
            flat = (lambda t: t.transpose(0, 2, 1, 3).reshape(batch, rows, -1)) if rank == 3 else (lambda t: t)
            return [flat(x), places, Fixed(f32(cos)), Fixed(f32(sin))], [f32(flat(y))]

        words = {"mrope_section": section, "mrope_layout": layout, "interleaved": interleaved}
        if rank == 3:
            words["num_heads"] = heads
        if dim:
            words["rotary_embedding_dim"] = dim
        dims = [("B", "T", None) if rank == 3 else ("B", None, "T", None), (None, "B", "T"), None, None]
        c.add("MRotaryEmbedding", variant, *run(2, 5), **words)
        c.add("MRotaryEmbedding", f"{variant}_open", *run(2, 5), dims=dims, more=[run(1, 1), run(2, 30)], **words)


def cases():
    c = Cases(17)
    for make in (linear, gates, convolutions, norms, rotations):
        make(c)
    return c.all
