"""Recurrent layers whose weights are bytes."""

import itertools

import numpy as np
from case import Cases, Fixed, f32, sigmoid

DEFAULT = (sigmoid, np.tanh, np.tanh)


def rounded(v, axis=None):
    """What the bytes of DynamicQuantizeLinear stand for, with one scale, or one for all along an axis."""
    v = f32(v)
    low, high = np.minimum(v.min(axis=axis, keepdims=True), 0), np.maximum(v.max(axis=axis, keepdims=True), 0)
    scale = (high - low) / np.float32(255)
    scale[scale == 0] = 1
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return (np.clip(np.rint(v / scale) + zero, 0, 255) - zero) * scale


def lstm(x, w, r, bias, lengths, h, c, peephole, activations=DEFAULT, clip=np.inf, coupled=False, backwards=False):
    """One direction, whose states are rounded, each row by itself: x [time, batch, input], w [input, 4 * hidden], gates in the order input, output, forget, cell."""
    of_gates, of_cell, of_hidden = activations
    (time, batch, _), hidden = x.shape, r.shape[0]
    h, c, y = np.float64(h), np.float64(c), np.zeros((time, batch, hidden))
    p_in, p_out, p_forget = np.split(np.float64(peephole), 3)
    for t in range(time):
        running = t < lengths
        at = np.where(running, lengths - 1 - t, 0) if backwards else np.full(batch, t)
        gates = np.float64(x[at, np.arange(batch)]) @ w + np.float64(rounded(h, 1)) @ r + bias[: 4 * hidden] + bias[4 * hidden :]
        i, o, f, g = np.split(gates, 4, axis=1)
        bounded = lambda v: np.clip(v, -clip, clip)
        i = of_gates(bounded(i + p_in * c))
        f = 1 - i if coupled else of_gates(bounded(f + p_forget * c))
        new_c = f * c + i * of_cell(bounded(g))
        new_h = of_gates(bounded(o + p_out * new_c)) * of_hidden(bounded(new_c) if np.isfinite(clip) else new_c)
        h, c = np.where(running[:, None], new_h, h), np.where(running[:, None], new_c, c)
        y[at[running], np.flatnonzero(running)] = new_h[running]
    return y, h, c


def real_weights(q, scale, zero):
    """Of weights [direction, input, gate] with a scale and a zero point for each direction, or each of its gates."""
    wide = lambda v: np.float64(v).reshape(q.shape[0], 1, -1)
    return (q - wide(zero)) * wide(scale)


def layers(c):
    hard = lambda x: np.clip(0.3 * x + 0.4, 0, 1)
    relu = lambda x: np.maximum(x, 0)
    variants = (
        ("plain", 1, np.int8, False, "", {}),
        ("unsigned", 1, np.uint8, False, "bias", {}),
        ("each_gate", 1, np.int8, True, "bias", {}),
        ("reverse", 1, np.uint8, True, "bias lengths", {"direction": "reverse"}),
        ("both", 2, np.int8, True, "bias lengths states", {"direction": "bidirectional", "hidden_size": 6}),
        ("both_unsigned", 2, np.uint8, False, "bias states peephole", {"direction": "bidirectional"}),
        ("mixed", 1, np.int8, "of_inputs", "states", {}),
        ("coupled", 1, np.int8, False, "bias peephole", {"input_forget": 1}),
        ("clipped", 1, np.int8, True, "bias", {"clip": 0.75}),
        ("activations", 1, np.int8, False, "bias", {"activations": ["HardSigmoid", "Relu", "Tanh"], "activation_alpha": [0.3], "activation_beta": [0.4]}),
        ("batch_first", 1, np.uint8, True, "bias states", {"layout": 1}),
        ("symmetric", 1, np.int8, False, "bias symmetric", {}),
        ("symmetric_each_gate", 1, np.int8, True, "states symmetric", {"direction": "reverse"}),
        ("symmetric_unsigned", 1, np.uint8, False, "bias lengths peephole symmetric", {"clip": 0.75}),
        ("symmetric_activations", 1, np.int8, False, "symmetric", {"activations": ["HardSigmoid", "Relu", "Tanh"], "activation_alpha": [0.3], "activation_beta": [0.4]}),
        ("symmetric_both", 2, np.int8, False, "bias lengths states peephole symmetric", {"direction": "bidirectional"}),
    )
    # Gates of whole vectors, whose weights have no zero point, are multiplied as bytes where there are instructions for it, others as floats.
    layers_of_sizes = list(itertools.product((6, 8), variants))
    # So many that each step is worth launches of its own on a GPU.
    layers_of_sizes += [(256, ("wide", 1, np.int8, False, "bias lengths states symmetric", {})), (192, ("wide_both", 2, np.int8, True, "bias", {"direction": "bidirectional"}))]
    for hidden, (variant, directions, dtype, each_gate, given, attributes) in layers_of_sizes:
        time, batch, inputs = 5, 3, 7
        if "hidden_size" in attributes:
            attributes["hidden_size"] = hidden
        x = c.real(time, batch, inputs)
        w, r = c.bytes(dtype, directions, inputs, 4 * hidden), c.bytes(dtype, directions, hidden, 4 * hidden)
        scales, zeros = [], []
        for of_each in (each_gate in (True, "of_inputs"), each_gate is True):
            shape = (directions, 4 * hidden) if of_each else (directions,)
            scales.append(c.real(*shape, low=0.002, high=0.006))
            zeros.append(c.integers(100, 150, *shape, dtype=np.uint8) if dtype == np.uint8 else c.integers(-5, 6, *shape, dtype=np.int8))
            if "symmetric" in given:
                zeros[-1][...] = 128 if dtype == np.uint8 else 0
        bias = c.real(directions, 8 * hidden, low=-0.3, high=0.3) if "bias" in given else None
        lengths = np.array([5, 2, 3], np.int32) if "lengths" in given else None
        states = [c.real(directions, batch, hidden) for _ in range(2)] if "states" in given else [None, None]
        peephole = c.real(directions, 3 * hidden, low=-0.5, high=0.5) if "peephole" in given else None
        results = []
        for d in range(directions):
            zero_state = np.zeros((batch, hidden))
            results.append(lstm(
                rounded(x), real_weights(w, scales[0], zeros[0])[d], real_weights(r, scales[1], zeros[1])[d],
                np.zeros(8 * hidden) if bias is None else bias[d], np.full(batch, time) if lengths is None else lengths,
                *[zero_state if s is None else s[d] for s in states], np.zeros(3 * hidden) if peephole is None else peephole[d],
                (hard, relu, np.tanh) if "activations" in attributes else DEFAULT, np.float32(attributes.get("clip", np.inf)),
                bool(attributes.get("input_forget")), d == 1 or attributes.get("direction") == "reverse"))
        outputs = [f32(np.stack(of, axis=axis)) for of, axis in zip(zip(*results), (1, 0, 0))]
        if attributes.get("layout"):
            x, states, outputs = x.swapaxes(0, 1), [s.swapaxes(0, 1) for s in states], [np.moveaxis(outputs[0], 2, 0), *[o.swapaxes(0, 1) for o in outputs[1:]]]
        fixed = lambda v: None if v is None else Fixed(v)
        tensors = [x, Fixed(w), Fixed(r), fixed(bias), lengths, *states, fixed(peephole), Fixed(scales[0]), Fixed(zeros[0]), Fixed(scales[1]), Fixed(zeros[1])]
        c.add("DynamicQuantizeLSTM", f"{variant}_{hidden}", tensors, outputs, **attributes)
        if variant == "both":
            c.add("DynamicQuantizeLSTM", f"last_state_{hidden}", tensors, [None, outputs[1]], **attributes)
        if variant == "plain":
            tensors[1], tensors[2] = w, r
            c.add("DynamicQuantizeLSTM", f"weights_at_run_time_{hidden}", tensors, outputs, **attributes)


def cases():
    c = Cases(11)
    layers(c)
    return c.all
