"""Arrays: what is moved, picked, counted and sampled; distances, products of words, poolings."""

import itertools

import numpy as np
from case import Cases, Fixed, f32

HALF = {"rtol": 2e-3, "atol": 1e-3}


def triangles(c):
    x = c.real(2, 3, 5, 4)
    for k in (None, -2, 0, 1, 3, 7, -9):
        for upper in (0, 1):
            given = None if k is None else Fixed(np.array(k, np.int64))
            want = (np.triu if upper else np.tril)(x, k or 0)
            name = "none" if k is None else str(k).replace("-", "minus")
            c.add("Trilu", f"{'upper' if upper else 'lower'}_{name}", [x] if k is None else [x, given], want, upper=upper)
    c.add("Trilu", "default", [x[0, 0]], np.triu(x[0, 0]))
    c.add("Trilu", "by_input", [x, np.array([-1], np.int64)], np.tril(x, -1), upper=0)
    for dtype in (np.int64, np.float64, np.float16, np.uint8, np.bool_):
        numbers = c.integers(0, 100, 4, 6).astype(dtype)
        c.add("Trilu", np.dtype(dtype).name, [numbers, Fixed(np.array(1, np.int64))], np.triu(numbers, 1))
    c.add("Trilu", "empty", [x[:, :, :0]], x[:, :, :0])
    more = c.real(3, 6, 7)
    c.add("Trilu", "open", [x[0], Fixed(np.array(-1, np.int64))], np.triu(x[0], -1), dims=[["B", "N", "M"], None], more=[([more, None], [np.triu(more, -1)])])


def new_axes(c):
    x = c.real(3, 4, 5)
    for axis in (0, 2, 3, -1, -3, -4):
        y = np.expand_dims(x, axis)
        c.add("ExpandDims", f"axis{axis}".replace("-", "_minus"), [x, Fixed(np.array(axis, np.int32))], y)
    c.add("ExpandDims", "list", [x, Fixed(np.array([1], np.int32))], x[:, None])
    half = x.astype(np.float16)
    c.add("ExpandDims", "half", [half, Fixed(np.array(1, np.int32))], half[:, None])
    c.add("ExpandDims", "scalar", [np.float32(3), Fixed(np.array(0, np.int32))], f32([3]))
    c.add("ExpandDims", "empty", [x[:0], Fixed(np.array(-2, np.int32))], x[:0, :, None])
    more = c.real(7, 4, 1)
    c.add("ExpandDims", "open", [x, Fixed(np.array(-2, np.int32))], x[:, :, None], dims=[["A", None, "B"], None], more=[([more, None], [more[:, :, None]])])


def ranges(c):
    def add(variant, dtype, numbers, shape=()):
        given = [Fixed(np.full(shape, n, dtype)) for n in numbers]
        c.add("Range", variant, given, np.arange(*numbers).astype(dtype))

    add("plain", np.float32, (1.5, 8.0, 2.25))
    add("default_delta", np.float32, (-2.5, 3.0))
    add("backwards", np.float64, (3.0, -3.0, -0.75))
    for dtype in (np.int16, np.int32, np.int64):
        add(np.dtype(dtype).name, dtype, (3, 20, 4))
    add("lists", np.int64, (2, 9, 3), (1,))
    add("lists_default_delta", np.float32, (2, 9), (1,))
    add("empty", np.int32, (5, 5, 1))
    add("other_way", np.float32, (5, 2, 1))
    limits = [([np.array([n], np.int64)], [np.arange(2, n)]) for n in (9, 4, 1)]
    c.add("Range", "limit_of_data", [Fixed(np.array([2])), limits[0][0][0]], limits[0][1], dims=[None, [None]],
          more=[([None, *given], wanted) for given, wanted in limits[1:]])


def paddings(c):
    x = c.real(2, 3, 4)
    pads = [0, 2, 1, 1, 0, 2]
    widths = list(zip(pads[:3], pads[3:]))
    flat, row = Fixed(np.array(pads)), Fixed(np.array([pads]))
    for variant, given in (("flat", flat), ("row", row)):
        c.add("Pad", variant, [x, given], np.pad(x, widths))
    c.add("Pad", "value", [x, row, Fixed(f32(2.5))], np.pad(x, widths, constant_values=2.5))
    c.add("Pad", "value_by_input", [x, flat, f32([-1.5])], np.pad(x, widths, constant_values=-1.5))
    for mode in ("reflect", "edge", "wrap"):
        c.add("Pad", mode, [x, row], np.pad(x, widths, mode), mode=mode)
    c.add("Pad", "cropped", [x, Fixed(np.array([0, -1, 1, -1, 0, -2]))], np.pad(x, ((0, 0), (0, 0), (1, 0)))[:1, 1:, :3])
    c.add("Pad", "cropped_wrap", [x, Fixed(np.array([0, -1, 2, 1, 2, -1]))], np.pad(x[:, 1:, :3], ((0, 1), (0, 2), (2, 0)), "wrap"), mode="wrap")
    for dtype in (np.float16, np.float64):
        c.add("Pad", np.dtype(dtype).name, [x.astype(dtype), row], np.pad(x, widths).astype(dtype))
    more = c.real(5, 3, 9)
    c.add("Pad", "open", [x, row], np.pad(x, widths, "edge"), dims=[["A", None, "B"], None], more=[([more, None], [np.pad(more, widths, "edge")])], mode="edge")


def gathered(c):
    x = c.real(3, 4, 5)

    def add(variant, data, indices, **options):
        c.add("GatherND", variant, [data, indices], data[tuple(np.moveaxis(np.asarray(getattr(indices, "value", indices)), -1, 0))], **options)

    add("elements", x, np.array([[0, 1, 2], [2, 3, 4]]))
    add("rows", x, np.array([[0, 1], [2, 0], [1, 3]]))
    add("matrices", x, np.array([[[2]], [[0]]]))
    add("one", x, np.array([1, 2]))
    add("int32", x, np.array([[0, 1], [2, 3]], np.int32))
    add("negative", x, np.array([[-1, -2], [0, -4]]))
    add("fixed", x, Fixed(np.array([[0, 3], [2, 1]], np.int32)))
    add("half", x.astype(np.float16), np.array([[1, 1], [2, 2]]))
    add("integers", c.integers(-9, 9, 4, 4), np.array([[1], [3]]))
    add("none", x, np.zeros((0, 2), np.int64))
    data, places = c.real(2, 6, 5), np.array([[1, 5], [0, 0], [1, 2]])
    add("open", x, np.array([[0, 1], [2, 3]]), dims=[["A", "B", None], ["N", None]], more=[([data, places], [data[places[:, 0], places[:, 1]]])])


def uniques(c):
    def wanted(x):
        values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(first)
        return [values[order], np.argsort(order)[inverse].astype(np.int64), counts[order].astype(np.int64)]

    x = f32([2, 1, 1, 3, 4, 3])
    c.add("Unique", "plain", [x], wanted(x))
    many = c.integers(0, 40, 200).astype(np.float32)
    c.add("Unique", "many", [many], wanted(many))
    c.add("Unique", "items", [many], [wanted(many)[0], None, None])
    c.add("Unique", "groups", [many], [None, wanted(many)[1], None])
    same = np.full(5, 0.5, np.float32)
    c.add("Unique", "same", [same], wanted(same))
    for dtype in (np.int64, np.float16, np.uint8):
        c.add("Unique", np.dtype(dtype).name, [many.astype(dtype)], wanted(many.astype(dtype)))
    c.add("Unique", "open", [x], wanted(x), dims=[["N"]], more=[([given], wanted(given)) for given in (many, many[:1])])


# ---- Samples ----


def cubic_weights(t, a=-0.75):
    near, far = lambda d: ((a + 2) * d - (a + 3)) * d * d + 1, lambda d: ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return [far(1 + t), near(t), near(1 - t), far(2 - t)]


def sampled(x, grid, mode="bilinear", padding="zeros", align=0):
    """x: [N, C, H, W]; grid: [N, rows, columns, 2], of which the first is along W."""

    def reflected(p, size):
        low, high = (0, size - 1) if align else (-0.5, size - 0.5)
        span = high - low
        if span == 0:
            return low
        turns, rest = divmod(abs(p - low), span)
        return high - rest if turns % 2 else low + rest

    def place(p, size):
        p = (p + 1) / 2 * (size - 1) if align else ((p + 1) * size - 1) / 2
        if mode == "nearest":
            p = np.rint(p)
        if padding == "border" and mode != "bicubic":
            p = min(max(p, 0), size - 1)
        if padding == "reflection":
            low, high = (0, size - 1) if align else (-0.5, size - 0.5)
            p = p if low <= p <= high else reflected(p, size)
        return p

    def taps(p, size):
        if mode == "nearest":
            return [(int(np.rint(p)), 1.0)]
        first = int(np.floor(p))
        if mode == "bilinear":
            return [(first, 1 - (p - first)), (first + 1, p - first)]
        return list(zip(range(first - 1, first + 3), cubic_weights(p - first)))

    def inside(k, size):
        if padding == "zeros":
            return k if 0 <= k < size else None
        if padding == "reflection" and not 0 <= k < size:
            k = int(reflected(k, size))
        return min(max(k, 0), size - 1)

    (n, channels, height, width), (_, rows, columns, _) = x.shape, grid.shape
    y = np.zeros((n, channels, rows, columns))
    for b, i, j in itertools.product(range(n), range(rows), range(columns)):
        across, down = place(float(grid[b, i, j, 0]), width), place(float(grid[b, i, j, 1]), height)
        for (r, weight_r), (s, weight_s) in itertools.product(taps(down, height), taps(across, width)):
            r, s = inside(r, height), inside(s, width)
            if r is not None and s is not None:
                y[b, :, i, j] += x[b, :, r, s] * (weight_r * weight_s)
    return y


def grids(c):
    x, grid = c.real(2, 3, 5, 7), c.real(2, 4, 6, 2, low=-1.4, high=1.4)
    for mode, padding, align in itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (0, 1)):
        want = sampled(x, grid, mode, padding, align)
        c.add("GridSample", f"{mode}_{padding}_{align}", [x, grid], f32(want), mode=mode, padding_mode=padding, align_corners=align)
    c.add("GridSample", "default", [x, grid], f32(sampled(x, grid)))
    half = x.astype(np.float16)
    c.add("GridSample", "half", [half, grid.astype(np.float16)], sampled(half, grid.astype(np.float16)).astype(np.float16), **HALF)
    other, places = c.real(1, 3, 9, 4), c.real(1, 2, 5, 2, low=-1.4, high=1.4)
    c.add("GridSample", "open", [x, grid], f32(sampled(x, grid)), dims=[["N", None, "H", "W"], ["N", "R", "S", None]], more=[([other, places], [f32(sampled(other, places))])])


def cropped(x, boxes, images, size, mode="bilinear", outside=0.0):
    """x: [N, C, H, W]; boxes: [crops, 4], from row and column to row and column, as parts of what there is."""
    y = np.full((len(boxes), x.shape[1], *size), float(outside))
    for n, (box, image) in enumerate(zip(boxes.astype(np.float64), images)):
        lines = []
        for k in (0, 1):
            first, last, count = box[k], box[k + 2], size[k]
            parts = np.linspace(first, last, count) if count > 1 else [(first + last) / 2]
            lines.append([part * (x.shape[2 + k] - 1) for part in parts])
        for (i, row), (j, column) in itertools.product(enumerate(lines[0]), enumerate(lines[1])):
            if not (0 <= row <= x.shape[2] - 1 and 0 <= column <= x.shape[3] - 1):
                continue
            if mode == "nearest":
                y[n, :, i, j] = x[image, :, int(np.floor(row + 0.5)), int(np.floor(column + 0.5))]
                continue
            top, left = int(np.floor(row)), int(np.floor(column))
            bottom, right = int(np.ceil(row)), int(np.ceil(column))
            a, b = row - top, column - left
            of = lambda r, s: x[image, :, r, s].astype(np.float64)
            y[n, :, i, j] = (1 - a) * ((1 - b) * of(top, left) + b * of(top, right)) + a * ((1 - b) * of(bottom, left) + b * of(bottom, right))
    return y


def crops(c):
    x, images = c.real(3, 2, 7, 9), np.array([1, 0, 2, 1], np.int32)
    boxes = f32([[0, 0, 1, 1], [0.1, 0.2, 0.83, 0.61], [0.9, 0.77, 0.2, 0.13], [-0.23, 0.3, 1.1, 1.27]])

    def add(variant, size, dtype=np.float32, mode="bilinear", **options):
        data, places = x.astype(dtype), boxes.astype(dtype)
        wanted = cropped(data, places, images, size, mode, options.get("extrapolation_value", 0))
        inputs = [data, places, images, Fixed(np.array(size, np.int32))]
        c.add("CropAndResize", variant, inputs, wanted.astype(dtype), mode=mode, **options)

    for mode in ("bilinear", "nearest"):
        add(f"{mode}_plain", (5, 4), mode=mode)
        add(f"{mode}_outside", (6, 11), mode=mode, extrapolation_value=2.5)
        add(f"{mode}_one", (1, 1), mode=mode)
        add(f"{mode}_row", (1, 4), mode=mode)
    add("double", (5, 4), np.float64)
    add("half", (5, 4), np.float16, **HALF)
    # The size by data.
    given, more = [x, boxes, images], [c.real(2, 2, 5, 12), boxes[:2], images[1::-1]]
    sizes = [np.array(size, np.int32) for size in ((5, 4), (3, 1))]
    c.add("CropAndResize", "open", [*given, sizes[0]], f32(cropped(*given, sizes[0])), dims=[["N", None, "H", "W"], ["R", None], ["R"], [None]],
          more=[([*more, sizes[1]], [f32(cropped(*more, sizes[1]))])])


# ---- Poolings ----


def pooled(x, kernel, strides=None, pads=None, dilations=None, ceil=False):
    """x: [N, spatial..., C]."""
    n = len(kernel)
    strides, pads, dilations = strides or [1] * n, pads or [0] * (2 * n), dilations or [1] * n
    counts = []
    for k in range(n):
        reach = x.shape[1 + k] + pads[k] + pads[n + k] - (kernel[k] - 1) * dilations[k] - 1
        count = (-(-reach // strides[k]) if ceil else reach // strides[k]) + 1
        if ceil and (count - 1) * strides[k] >= x.shape[1 + k] + pads[k]:
            count -= 1
        counts.append(count)
    y = np.zeros((x.shape[0], *counts, x.shape[-1]), x.dtype)
    for place in np.ndindex(*counts):
        begin = [p * s - pad for p, s, pad in zip(place, strides, pads)]
        lines = [[p for p in range(b, b + k * d, d) if 0 <= p < size] for b, k, d, size in zip(begin, kernel, dilations, x.shape[1:])]
        y[(slice(None), *place)] = np.stack([x[(slice(None), *at)] for at in itertools.product(*lines)]).max(axis=0)
    return y


def poolings(c):
    for dtype in (np.int8, np.uint8):
        x, name = c.bytes(dtype, 2, 7, 9, 5), np.dtype(dtype).name
        c.add("NhwcMaxPool", f"{name}_plain", [x], pooled(x, [3, 2]), kernel_shape=[3, 2])
        given = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1]}
        c.add("NhwcMaxPool", f"{name}_padded", [x], pooled(x, *given.values()), **given)
        c.add("NhwcMaxPool", f"{name}_ceil", [x], pooled(x, *given.values(), ceil=True), ceil_mode=1, **given)
        c.add("NhwcMaxPool", f"{name}_dilated", [x], pooled(x, [2, 3], dilations=[3, 2]), kernel_shape=[2, 3], dilations=[3, 2])
        c.add("NhwcMaxPool", f"{name}_same", [x], pooled(x, [2, 3], [1, 2], [0, 1, 1, 1]), kernel_shape=[2, 3], strides=[1, 2], auto_pad="SAME_UPPER")
        line, solid = c.bytes(dtype, 2, 11, 4), c.bytes(dtype, 1, 4, 5, 6, 3)
        c.add("NhwcMaxPool", f"{name}_line", [line], pooled(line, [4], [3], [1, 1]), kernel_shape=[4], strides=[3], pads=[1, 1])
        c.add("NhwcMaxPool", f"{name}_solid", [solid], pooled(solid, [2, 3, 2]), kernel_shape=[2, 3, 2])
        more = c.bytes(dtype, 1, 12, 6, 5)
        c.add("NhwcMaxPool", f"{name}_open", [x], pooled(x, *given.values()), dims=[["N", "H", "W", None]], more=[([more], [pooled(more, *given.values())])], **given)


def pooled_with_mask(x, mask, kernel, strides=None, pads=None):
    """x: [N, C, spatial...], mask: [spatial...]. A row of a window, along the last axis, ends where the mask is 0; the very first place of an image or a solid ends none."""
    n = len(kernel)
    strides, pads = strides or [1] * n, pads or [0] * (2 * n)
    counts = [(size + pads[k] + pads[n + k] - kernel[k]) // strides[k] + 1 for k, size in enumerate(mask.shape)]
    y = np.full((*x.shape[:2], *counts), np.finfo(np.float32).min)
    for place in np.ndindex(*counts):
        *lines, row = ([p for p in range(b, b + k) if 0 <= p < size] for b, k, size in zip((p * s - pad for p, s, pad in zip(place, strides, pads)), kernel, mask.shape))
        for line in itertools.product(*lines):
            for at in row:
                if mask[(*line, at)] == 0 and (n == 1 or any((*line, at))):
                    break
                y[(..., *place)] = np.maximum(y[(..., *place)], x[(..., *line, at)])
    return f32(y)


def masked_poolings(c):
    def add(variant, shape, *window, **attributes):
        x, mask = c.real(*shape), (c.rng.uniform(size=shape[2:]) < 0.8).astype(np.int32)
        mask[(0,) * mask.ndim] = 0
        for k, name in enumerate(("kernel_shape", "strides", "pads")[: len(window)]):
            attributes.setdefault(name, window[k])
        c.add("MaxpoolWithMask", variant, [x, mask[None, None]], pooled_with_mask(x, mask, *window), **attributes)

    add("line", (2, 3, 20), [4])
    add("line_padded", (2, 3, 20), [5], [3], [2, 2])
    add("image", (2, 3, 8, 9), [3, 3])
    add("image_padded", (2, 3, 8, 9), [3, 4], [2, 3], [1, 2, 1, 1])
    add("solid", (1, 2, 5, 6, 7), [2, 3, 2], [1, 2, 2], [1, 0, 1, 0, 1, 0])
    same = {"kernel_shape": [3, 2], "strides": [2, 1]}
    for end, pads in (("UPPER", [1, 0, 1, 1]), ("LOWER", [1, 1, 1, 0])):
        add(f"same_{end.lower()}", (1, 2, 7, 6), [3, 2], [2, 1], pads, auto_pad=f"SAME_{end}", **same)
        c.all[-1].attributes.pop("pads")
    add("valid", (1, 2, 7, 6), [3, 2], auto_pad="VALID")
    x, more, window = c.real(2, 3, 8, 9), c.real(1, 3, 5, 12), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    masks = [(c.rng.uniform(size=given.shape[2:]) < 0.7).astype(np.int32) for given in (x, more)]
    wanted = [pooled_with_mask(given, mask, *window.values()) for given, mask in zip((x, more), masks)]
    c.add("MaxpoolWithMask", "open", [x, masks[0][None, None]], wanted[0], dims=[["N", None, "H", "W"], [None, None, "H", "W"]], more=[([more, masks[1][None, None]], [wanted[1]])], **window)


# ---- Products and distances ----


def words(c):
    def add(variant, a, b, **options):
        has_sign = np.int16 in (a.dtype, getattr(b, "value", b).dtype)
        y = a.astype(np.int64) @ getattr(b, "value", b).astype(np.int64)
        c.add("MatMulInteger16", variant, [a, b], y.astype(np.int32 if has_sign else np.uint32), **options)

    a, b = c.integers(-999, 999, 2, 3, 5, 7, dtype=np.int16), c.integers(-999, 999, 7, 6, dtype=np.int16)
    add("plain", a[0, 0], b)
    add("batches", a, c.integers(-999, 999, 3, 7, 6, dtype=np.int16))
    add("fixed", a, Fixed(b))
    add("vectors", a[0, 0, 0], b[:, 0])
    add("vector", a, b[:, 0])
    # As large as they may be: floats would round.
    add("extremes", np.array([[-32768, 32767, 32767]], np.int16), np.array([[-32768, 32767], [-1, 1], [1, -3]], np.int16))
    add("unsigned", c.integers(0, 20000, 3, 7, dtype=np.uint16), c.integers(0, 20000, 7, 4, dtype=np.uint16))
    add("mixed", c.integers(0, 60000, 3, 7, dtype=np.uint16), b)
    more = c.integers(-999, 999, 4, 7, dtype=np.int16), c.integers(-999, 999, 7, 2, dtype=np.int16)
    add("open", a[0, 0], b, dims=[["M", None], [None, "N"]], more=[(list(more), [more[0].astype(np.int32) @ more[1].astype(np.int32)])])


def distances(c):
    def wanted(a, b, metric):
        square = ((a[:, None].astype(np.float64) - b[None]) ** 2).sum(axis=2)
        return (np.sqrt(square) if metric == "euclidean" else square).astype(a.dtype)

    for metric, dtype in itertools.product(("euclidean", "sqeuclidean"), (np.float32, np.float64)):
        a, b = c.real(5, 7).astype(dtype), c.real(4, 7).astype(dtype)
        c.add("CDist", f"{metric}_{np.dtype(dtype).name}", [a, b], wanted(a, b, metric), metric=metric)
    c.add("CDist", "default", [f32(a), Fixed(f32(b))], wanted(f32(a), f32(b), "sqeuclidean"))
    c.add("CDist", "wide", [c.real(30, 200), c.real(40, 200)], None, metric="euclidean")
    c.all[-1].outputs = [wanted(*c.all[-1].inputs, "euclidean")]
    # Rows far from 0, whose squares are much larger than what lies between them.
    far = [c.real(6, 5) + np.float32(100), c.real(8, 5) + np.float32(100)]
    c.add("CDist", "far", far, wanted(*far, "euclidean"), metric="euclidean")
    same = np.tile(c.real(1, 6), (3, 1))
    c.add("CDist", "same", [same, same], np.zeros((3, 3), np.float32), metric="euclidean")
    more = [c.real(9, 7), c.real(1, 7)]
    c.add("CDist", "open", [f32(a), f32(b)], wanted(f32(a), f32(b), "euclidean"), dims=[["M", "D"], ["K", "D"]], more=[(more, [wanted(*more, "euclidean")])], metric="euclidean")


def inverses(c):
    def add(variant, x, **options):
        c.add("Inverse", variant, [x], np.linalg.inv(x.astype(np.float64)).astype(x.dtype), **options)

    def matrices(*shape):
        """Rows in any order, of which none is nearly a sum of others."""
        x = c.real(*shape) + 3 * np.eye(shape[-1], dtype=np.float32)
        return np.take_along_axis(x, np.argsort(c.rng.uniform(size=shape[:-1]), axis=-1)[..., None], axis=-2)

    for n in (1, 2, 3, 4, 5, 16, 33):
        add(f"size{n}", matrices(n, n))
    add("batch", matrices(2, 3, 6, 6))
    add("double", matrices(4, 7, 7).astype(np.float64), rtol=1e-11, atol=1e-11)
    add("half", matrices(4, 5, 5).astype(np.float16), **HALF)
    # Without another order of the rows it would be divided by 0.
    add("exchanged", f32([[0, 2, 0], [0, 0, 4], [8, 0, 0]]))
    add("none", matrices(0, 3, 3))
    x, more = matrices(2, 5, 5), matrices(7, 5, 5)
    add("open_batch", x, dims=[["B", None, None]], more=[([more], [np.linalg.inv(more)])])
    more = matrices(3, 9, 9)
    add("open", x, dims=[["B", "N", "N"]], more=[([more], [np.linalg.inv(more)])])


def cases():
    c = Cases(29)
    for part in (triangles, new_axes, ranges, paddings, gathered, uniques, grids, crops, poolings, masked_poolings, words, distances, inverses):
        part(c)
    return c.all
