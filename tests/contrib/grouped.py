"""Attention whose keys and values several heads share, behind what is remembered of earlier rows: fixed and open sizes."""

import dataclasses

import numpy as np
from attention import heads_of, joined, turned
from case import Cases, Fixed

HEADS, SHARED, SIZE, MOST = 4, 2, 16, 64


@dataclasses.dataclass
class Sizes:
    """Of a run: new rows, those that the past has room for, keys in all, and how many of these each sequence has."""

    rows: int
    past: int
    total: int
    lengths: tuple


PROMPT, SHORTER, ROOM = Sizes(6, 0, 6, (6, 6)), Sizes(6, 0, 6, (4, 6)), Sizes(6, 16, 6, (4, 6))
STEP, UNEQUAL, STEP_IN_ROOM = Sizes(1, 6, 7, (7, 7)), Sizes(1, 6, 7, (4, 7)), Sizes(1, 16, 7, (4, 7))
CHUNK, UNEQUAL_CHUNK, CHUNK_IN_ROOM = Sizes(3, 6, 9, (9,)), Sizes(3, 6, 9, (6, 9)), Sizes(3, 16, 9, (6, 9))
LONG, FIRST = Sizes(40, 0, 40, (40, 17, 39)), Sizes(1, 0, 1, (1,))
ALL = (PROMPT, SHORTER, ROOM, STEP, UNEQUAL, STEP_IN_ROOM, CHUNK, UNEQUAL_CHUNK, CHUNK_IN_ROOM, LONG, FIRST)


@dataclasses.dataclass
class Form:
    """Which inputs and attributes there are."""

    heads: int = HEADS
    shared: int = SHARED
    packed: bool = False
    rotary: bool = True
    interleaved: bool = False
    part: int = SIZE  # of each head, which turns
    positions: bool = False
    bias: bool = False
    sink: bool = False
    smooth: bool = False
    norms: bool = False
    window: int = -1
    cap: float = 0.0
    scale: float | None = None
    causal: bool = True
    dtype: type = np.float32

    def attributes(self):
        words = {"num_heads": self.heads, "kv_num_heads": self.shared, "do_rotary": int(self.rotary)}
        if self.interleaved:
            words["rotary_interleaved"] = 1
        if self.smooth:
            words["smooth_softmax"] = 1
        if self.window > 0:
            words["local_window_size"] = self.window
        if self.cap:
            words["softcap"] = self.cap
        if self.scale:
            words["scale"] = self.scale
        if not self.causal:
            words["causal"] = 0
        return words


def remembered(past, now, starts, rows):
    """[B, heads, rows, size]: what there is of the past, the new rows behind it, and nothing behind these."""
    y = np.zeros((*now.shape[:2], rows, now.shape[3]))
    for b, start in enumerate(starts):
        y[b, :, :start] = past[b, :, :start]
        count = min(now.shape[2], rows - start)
        y[b, :, start : start + count] = now[b, :, :count]
    return y


def normalised(x, weights):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weights


def run(c, form, sizes, fixed):
    """Inputs and outputs of the operator. fixed: tables and weights, which all runs of a model share."""
    batch, starts = len(sizes.lengths), np.maximum(np.array(sizes.lengths) - sizes.rows, 0)

    def real(*shape):
        return c.real(*shape).astype(form.dtype)

    q, k, v = (real(batch, sizes.rows, heads * SIZE) for heads in (form.heads, form.shared, form.shared))
    pasts = [real(batch, form.shared, sizes.past, SIZE) for _ in range(2)]
    apart = [heads_of(x, heads) for x, heads in ((q, form.heads), (k, form.shared), (v, form.shared))]
    inputs = [np.concatenate([q, k, v], -1), None, None] if form.packed else [q, k, v]
    inputs += [*pasts, np.array(sizes.lengths, np.int32) - 1, np.array(sizes.total, np.int32)]
    if form.norms:
        apart[:2] = (normalised(x, np.float64(w.value)) for x, w in zip(apart, (fixed["q_norm"], fixed["k_norm"])))
    places = starts[:, None] + np.arange(sizes.rows)
    at = c.integers(0, MOST - sizes.rows, *places.shape, dtype=np.int64) if form.positions else places
    if form.rotary:
        is_prompt = form.positions and sizes.rows == sizes.total  # whose first position alone counts
        taken = np.broadcast_to(at[0, 0] + np.arange(sizes.rows), at.shape) if is_prompt else at
        apart[:2] = (turned(x, fixed["cos"].value, fixed["sin"].value, taken, form.interleaved) for x in apart[:2])
    inputs += [fixed["cos"], fixed["sin"]] if form.rotary else [None, None]
    bias = real(1, form.heads, sizes.rows, sizes.total) if form.bias else None
    inputs += [at if form.positions else None, bias, fixed["sink"] if form.sink else None, None, None]
    inputs += [fixed["q_norm"], fixed["k_norm"]] if form.norms else []
    while inputs[-1] is None:
        inputs.pop()

    present = [remembered(past, now, starts, max(sizes.past, sizes.total)) for past, now in zip(pasts, apart[1:])]
    keys, values = (np.repeat(x[:, :, : sizes.total], form.heads // form.shared, 1) for x in present)
    scores = apart[0] @ np.swapaxes(keys, -1, -2) * (form.scale or 1 / np.sqrt(SIZE))
    if form.cap:
        scores = form.cap * np.tanh(scores / form.cap)
    if bias is not None:
        scores = scores + bias
    key = np.arange(sizes.total)
    if form.causal:
        behind = places[:, None, :, None] - key
        scores = np.where((behind >= 0) & ((behind < form.window) | (form.window <= 0)), scores, -np.inf)
    else:
        scores = np.where(key < np.array(sizes.lengths)[:, None, None, None], scores, -np.inf)
    powers = np.exp(scores)
    sums = powers.sum(-1, keepdims=True)
    if form.sink:
        sums = sums + np.exp(np.float64(fixed["sink"].value))[:, None, None]
    elif form.smooth:
        sums = sums + 1
    y = joined(powers / sums @ values)
    return inputs, [x.astype(form.dtype) for x in (y, *present)]


def kept(total, room, window):
    """How many of so many keys a memory with that room holds."""
    if total <= room:
        return total
    step = room - window + 1
    return total - step * -(-(total - room) // step)


def run_of_window(c, form, rows, room, lengths, fixed):
    """The same where what is remembered are the last keys alone. What the present has behind them nobody defines: lengths are such that
    it is full, or only the first output is one."""
    batch, starts = len(lengths), np.maximum(np.array(lengths) - rows, 0)
    q, k, v = (c.real(batch, rows, heads * SIZE).astype(form.dtype) for heads in (form.heads, form.shared, form.shared))
    pasts = [c.real(batch, form.shared, room, SIZE).astype(form.dtype) for _ in range(2)]
    places = starts[:, None] + np.arange(rows)
    apart = [heads_of(x, heads) for x, heads in ((q, form.heads), (k, form.shared), (v, form.shared))]
    apart[:2] = (turned(x, fixed["cos"].value, fixed["sin"].value, places, False) for x in apart[:2])
    inputs = [q, k, v, *pasts, np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32), fixed["cos"], fixed["sin"]]
    inputs += [None, None, fixed["sink"]] if form.sink else []

    y = np.zeros((batch, form.heads, rows, SIZE))
    presents = [np.zeros(past.shape) for past in pasts]
    full = all(kept(total, room, form.window) == room for total in lengths)
    for b, total in enumerate(lengths):
        start, before = starts[b], kept(starts[b], room, form.window)
        new = total - start
        keys, values = (np.concatenate([past[b, :, :before], now[b, :, :new]], 1).astype(np.float64) for past, now in zip(pasts, apart[1:]))
        place = start - before + np.arange(before + new)
        if full:
            for present, x in zip(presents, (keys, values)):
                present[b] = x[:, -room:]
        scores = apart[0][b, :, :new] @ np.swapaxes(np.repeat(keys, form.heads // form.shared, 0), -1, -2) / np.sqrt(SIZE)
        behind = (start + np.arange(new))[:, None] - place
        powers = np.exp(np.where((behind >= 0) & (behind < form.window), scores, -np.inf))
        sums = powers.sum(-1, keepdims=True) + (np.exp(np.float64(fixed["sink"].value))[:, None, None] if form.sink else 0)
        y[b, :, :new] = powers / sums @ np.repeat(values, form.heads // form.shared, 0)
    outputs = [joined(y).astype(form.dtype)] + ([x.astype(form.dtype) for x in presents] if full else [None, None])
    return inputs, outputs


def names(form):
    """What the dimensions of the inputs are called."""
    row, past = ("B", "S", None), ("B", None, "P", None)
    return [row, None if form.packed else row, None if form.packed else row, past, past, ("B",), (), None, None, ("B", "S"), (None, None, "S", "T")]


def cases():
    c = Cases(11)

    def add(variant, form, sizes, is_open=False, **more):
        half = form.part // 2
        angles = c.real(MOST, half, low=-3, high=3)
        fixed = {"cos": np.cos(angles), "sin": np.sin(angles), "sink": c.real(form.heads), "q_norm": c.real(SIZE), "k_norm": c.real(SIZE)}
        fixed = {name: Fixed(value.astype(form.dtype)) for name, value in fixed.items()}
        runs = [run(c, form, each, fixed) for each in (sizes if is_open else [sizes])]
        c.add("GroupQueryAttention", variant, *runs[0], dims=names(form) if is_open else None, more=runs[1:], **form.attributes(), **more)

    plain = Form()
    for name, sizes in (("prompt", SHORTER), ("prompt_in_room", ROOM), ("step", UNEQUAL), ("step_in_room", STEP_IN_ROOM),
                        ("chunk", CHUNK), ("unequal_chunk", UNEQUAL_CHUNK), ("chunk_in_room", CHUNK_IN_ROOM)):
        add(f"past_{name}", plain, sizes)
    add("past_of_nothing", plain, PROMPT)
    forms = {"packed": Form(packed=True), "window": Form(window=3), "softcap": Form(cap=0.5), "smooth": Form(smooth=True), "sink": Form(sink=True),
             "interleaved": Form(interleaved=True), "partly_turned": Form(part=8), "positions": Form(positions=True), "unturned": Form(rotary=False),
             "bias": Form(bias=True), "bias_softcap": Form(bias=True, cap=0.5), "norms": Form(norms=True), "scale": Form(scale=0.4),
             "both_ways": Form(causal=False), "apart": Form(shared=HEADS), "one_shared": Form(shared=1)}
    add("positions", forms["positions"], PROMPT)
    for name, form in forms.items():
        add(f"past_{name}", form, UNEQUAL_CHUNK)
        add(f"open_{name}", form, ALL, is_open=True)
    add("open", plain, ALL, is_open=True)
    for name, form, room, runs in (
        ("full", Form(window=6), 6, ((1, (9,)), (3, (9,)), (10, (10,)), (1, (7, 12)), (1, (6, 7, 30)))),
        ("with_room", Form(window=6), 8, ((1, (11,)), (4, (11,)), (1, (8, 14)), (20, (20,)))),
        ("sink", Form(window=4, sink=True), 4, ((1, (9, 5)), (5, (8,)))),
        ("not_full", Form(window=6), 8, ((1, (9, 13, 3)), (5, (5,)), (1, (2,)), (5, (6,)))),
    ):
        angles = c.real(MOST, SIZE // 2, low=-3, high=3)
        fixed = {"cos": Fixed(np.cos(angles)), "sin": Fixed(np.sin(angles)), "sink": Fixed(c.real(form.heads))}
        made = [run_of_window(c, form, rows, room, lengths, fixed) for rows, lengths in runs]
        row, past = ("B", "S", None), ("B", None, "C", None)
        words = form.attributes() | {"sliding_window_cache": 1}
        c.add("GroupQueryAttention", f"memory_of_window_{name}", *made[0], **words)
        c.add("GroupQueryAttention", f"memory_of_window_{name}_open", *made[0], dims=[row, row, row, past, past, ("B",), (), None, None, None, None, None],
              more=made[1:], **words)
    half = Form(dtype=np.float16, packed=True)
    add("past_halves", half, UNEQUAL, rtol=5e-3, atol=5e-3)
    add("open_halves", half, ALL, is_open=True, rtol=5e-3, atol=5e-3)
    return c.all
