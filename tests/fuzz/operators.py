"""Random models of one operator, of odd shapes. Each function takes a generator of random numbers and gives a Case."""

import dataclasses

import numpy as np

from case import F32, INTS, axis_of, broadcastable, extent, one_of, shape, single, special, tensor


def window(rng, spatial, allow_auto=True, most=4):
    """Attributes of a convolution or a pooling; some of them absurd."""
    absurd = rng.random() < 0.15
    kernel = [int(rng.integers(1, most)) if not absurd else int(rng.integers(1, 12)) for _ in spatial]
    attributes = {"kernel_shape": kernel}
    if rng.random() < 0.6:
        attributes["strides"] = [int(rng.choice([1, 1, 2, 3] + ([7, 100, 1000] if absurd else []))) for _ in spatial]
    if rng.random() < 0.4:
        attributes["dilations"] = [int(rng.choice([1, 2, 3] + ([8, 50] if absurd else []))) for _ in spatial]
    if allow_auto and rng.random() < 0.2:
        attributes["auto_pad"] = one_of(rng, ["SAME_UPPER", "SAME_LOWER", "VALID"])
        if attributes["auto_pad"] != "VALID":
            attributes.pop("dilations", None)
            # onnxruntime takes padding away from the input where a stride exceeds the kernel; ONNX does not say so.
            attributes["strides"] = [min(s, k) for s, k in zip(attributes.get("strides", kernel), kernel)]
    elif rng.random() < 0.6:
        attributes["pads"] = [int(rng.integers(0, 3)) if not absurd else int(rng.integers(0, 40)) for _ in range(2 * len(spatial))]
    return attributes


def spatial_shape(rng):
    rank = int(rng.choice([1, 2, 2, 2, 3]))
    return [int(rng.choice([1, 2, 3, 5, 7, 8, 11, 14])) for _ in range(rank)]


def conv(rng):
    spatial = spatial_shape(rng)
    attributes = window(rng, spatial)
    groups = int(rng.choice([1, 1, 2, 3, 8]))
    cin, cout = groups * int(rng.choice([1, 1, 2, 3, 8, 16])), groups * int(rng.choice([1, 2, 3, 5, 8, 16]))
    x = tensor(rng, (int(rng.integers(1, 3)), cin, *spatial))
    w = tensor(rng, (cout, cin // groups, *attributes["kernel_shape"]), low=-1, high=1)
    weights = {"w": w} | ({"b": tensor(rng, (cout,))} if rng.random() < 0.5 else {})
    if rng.random() < 0.2:
        return single("Conv", {"x": x, **weights}, group=groups, **attributes)
    case = single("Conv", {"x": x}, weights, group=groups, **attributes)
    if rng.random() < 0.5:
        case.nodes.append((one_of(rng, ["Relu", "Sigmoid", "Neg", "Exp", "Identity"]), ["v0"], {}))
        if rng.random() < 0.5:
            case.nodes.append(("MaxPool", ["v1"], {"kernel_shape": [1] * len(spatial)}))
    return case


def conv_transpose(rng):
    spatial = [int(rng.choice([1, 2, 3, 5])) for _ in range(int(rng.choice([1, 2, 2, 3])))]
    attributes = window(rng, spatial, allow_auto=False)
    if rng.random() < 0.15:
        attributes["strides"] = [int(rng.choice([9, 31, 64])) for _ in spatial]
    elif "strides" in attributes and rng.random() < 0.4:
        attributes["output_padding"] = [int(rng.integers(0, s)) for s in attributes["strides"]]
    if "strides" in attributes:
        attributes["strides"] = [min(s, 64) for s in attributes["strides"]]
    groups = int(rng.choice([1, 1, 2, 4]))
    cin, cout = groups * int(rng.choice([1, 2, 5])), int(rng.choice([1, 2, 3, 8]))
    weights = {"w": tensor(rng, (cin, cout, *attributes["kernel_shape"]), low=-1, high=1)}
    return single("ConvTranspose", {"x": tensor(rng, (1, cin, *spatial))}, weights, group=groups, **attributes)


def pool(rng):
    spatial = spatial_shape(rng)
    attributes = window(rng, spatial)
    if "auto_pad" not in attributes:
        # A window that does not fit has no result in ONNX, and one of uninitialised memory in onnxruntime.
        low = attributes.get("pads", [0] * 2 * len(spatial))
        room = [s + a + b for s, a, b in zip(spatial, low, low[len(spatial):])]
        fits = all((k - 1) * d < r for k, d, r in zip(attributes["kernel_shape"], attributes.get("dilations", [1] * len(spatial)), room))
        if not fits:
            attributes |= {"kernel_shape": [1] * len(spatial), "pads": [0] * 2 * len(spatial)}
    op = one_of(rng, ["MaxPool", "AveragePool", "MaxPool", "AveragePool", "LpPool"])
    if rng.random() < 0.3:
        attributes["ceil_mode"] = 1
    if op == "AveragePool" and rng.random() < 0.5:
        attributes["count_include_pad"] = 1
    return single(op, {"x": tensor(rng, (int(rng.integers(1, 3)), one_of(rng, [1, 2, 3, 16, 17]), *spatial))}, opset=19, **attributes)


def global_pool(rng):
    x = tensor(rng, (int(rng.integers(1, 3)), extent(rng), *spatial_shape(rng)))
    return single(one_of(rng, ["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"]), {"x": x})


def matmul(rng):
    # Of sums of nothing onnxruntime gives memory that nobody has written.
    m, k, n = extent(rng), max(1, extent(rng)), extent(rng)
    batch = shape(rng, 0, 2)
    a, b = (*broadcastable(rng, batch), m, k), (*broadcastable(rng, batch), k, n)
    if rng.random() < 0.15:
        a = (k,)
    if rng.random() < 0.15:
        b = (k,)
    dtype = one_of(rng, [F32, F32, F32, np.float64, np.int32])
    a, b = {"a": tensor(rng, a, dtype)}, {"b": tensor(rng, b, dtype)}
    return single("MatMul", {**a, **b}) if rng.random() < 0.5 else single("MatMul", a, b)


def gemm(rng):
    # To sums of nothing onnxruntime adds the addend without its factor.
    m, k, n = extent(rng), max(1, extent(rng)), extent(rng)
    ta, tb = int(rng.integers(0, 2)), int(rng.integers(0, 2))
    a, b = tensor(rng, (k, m) if ta else (m, k)), tensor(rng, (n, k) if tb else (k, n))
    rest = {"b": b}
    if rng.random() < 0.7:
        rest["c"] = tensor(rng, one_of(rng, [(n,), (1,), (), (m, n), (m, 1), (1, n)]))
    return single("Gemm", {"a": a}, rest, transA=ta, transB=tb, alpha=float(rng.choice([1, 0.5, -2])), beta=float(rng.choice([1, 0, 0.25])))


def binary(rng):
    op, dtypes = one_of(rng, [
        ("Add", [F32, np.float64, np.int32, np.int64, np.int8, np.uint8]), ("Sub", [F32, np.int32, np.int64]), ("Mul", [F32, np.float64, np.int32, np.int64]),
        ("Div", [F32, np.int32, np.int64]), ("Pow", [F32]), ("Mod", [np.int32, np.int64, np.int8, np.uint8]), ("PRelu", [F32]),
        ("Equal", [F32, np.int64, np.bool_]), ("Less", [F32, np.int32]), ("GreaterOrEqual", [F32, np.int64]), ("And", [np.bool_]),
        ("Xor", [np.bool_]), ("BitShift", [np.uint8, np.uint32, np.uint64]), ("BitwiseAnd", [np.int32, np.uint8]), ("Min", [F32, np.int32]), ("Max", [F32, np.int64])])
    dtype = one_of(rng, dtypes)
    dims = shape(rng)
    a, b = dims, broadcastable(rng, dims)
    if op != "PRelu" and rng.random() < 0.5:
        a, b = b, a
    if op != "PRelu" and rng.random() < 0.3 and len(a) == len(b):
        a = tuple(1 if rng.random() < 0.3 else d for d in a)
    make = special if dtype in (F32, np.float64) and op not in ("Mod", "Pow") else tensor
    x, y = make(rng, a, dtype), make(rng, b, dtype)
    attributes = {}
    if op in ("Div", "Mod") and dtype != F32:
        y = np.where(y == 0, np.asarray(3, dtype), y).astype(dtype)
    if op == "Pow":
        x = np.abs(x)
    if op == "BitShift":
        attributes["direction"] = one_of(rng, ["LEFT", "RIGHT"])
    if op == "Mod" and rng.random() < 0.3:
        attributes["fmod"] = 1
    return single(op, {"x": x}, {"y": y}, **attributes) if rng.random() < 0.4 else single(op, {"x": x, "y": y}, **attributes)


UNARY = ("Abs Neg Exp Log Sqrt Relu Sigmoid Tanh Erf Floor Ceil Round Sign Reciprocal Softplus Softsign Elu Selu Celu HardSigmoid HardSwish "
         "LeakyRelu ThresholdedRelu Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh IsNaN IsInf Not Mish Gelu Identity").split()


def unary(rng):
    op = one_of(rng, UNARY)
    dtype = np.bool_ if op == "Not" else one_of(rng, INTS[:4]) if op in ("Abs", "Neg") and rng.random() < 0.5 else F32
    make = special if dtype == F32 and op not in ("Sin", "Cos", "Tan") else tensor
    return single(op, {"x": make(rng, shape(rng), dtype)})


def cast(rng):
    source = one_of(rng, [F32, np.float64, np.bool_, np.float16, *INTS])
    target = int(rng.choice([1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13]))
    low = 0 if target in (2, 4, 12, 13) else -100
    return single("Cast", {"x": tensor(rng, shape(rng), source, low, 100)}, to=target)


def reduce(rng):
    op = one_of(rng, "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare ReduceLogSum".split())
    dims = shape(rng, 1, 4)
    x = tensor(rng, dims, one_of(rng, [F32, F32, F32, np.int32, np.int64]) if op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean") else F32)
    if op == "ReduceLogSum":
        x = np.abs(x) + F32(0.1)
    axes = [int(a) - (len(dims) if rng.random() < 0.5 else 0) for a in rng.choice(len(dims), rng.integers(0, len(dims) + 1), replace=False)]
    attributes = {"keepdims": int(rng.integers(0, 2))}
    if rng.random() < 0.4:
        return single(op, {"x": x}, opset=11, **attributes, **({"axes": axes} if axes else {}))
    if rng.random() < 0.2:
        attributes["noop_with_empty_axes"] = 1
    return single(op, {"x": x}, {"axes": np.array(axes, np.int64)} if axes or rng.random() < 0.5 else {}, opset=18, **attributes)


def softmax(rng):
    dims = shape(rng, 1, 4)
    return single(one_of(rng, ["Softmax", "LogSoftmax"]), {"x": tensor(rng, dims, low=-20, high=20)}, opset=int(rng.choice([11, 13, 20])), axis=axis_of(rng, len(dims)))


def arg_reduce(rng):
    dims = tuple(max(1, d) for d in shape(rng, 1, 4))
    return single(one_of(rng, ["ArgMax", "ArgMin"]), {"x": tensor(rng, dims, low=-2, high=2).round()}, axis=axis_of(rng, len(dims)),
                  keepdims=int(rng.integers(0, 2)), select_last_index=int(rng.integers(0, 2)))


def transpose(rng):
    dims = shape(rng, 1, 5)
    perm = [int(p) for p in rng.permutation(len(dims))]
    return single("Transpose", {"x": tensor(rng, dims, one_of(rng, [F32, np.int8, np.int64, np.bool_]))}, **({"perm": perm} if rng.random() < 0.8 else {}))


def reshape(rng):
    dims = shape(rng, 0, 4)
    count = int(np.prod(dims))
    target = [count] if rng.random() < 0.3 else [*dims[: len(dims) // 2], -1] if count else [0, *dims[1:]]
    if rng.random() < 0.3:
        target = [1, *target, 1]
    return single("Reshape", {"x": tensor(rng, dims)}, {"s": np.array(target, np.int64)})


def squeeze(rng):
    dims = shape(rng, 1, 4)
    if rng.random() < 0.5:
        axes = [int(rng.integers(-len(dims) - 1, len(dims) + 1))]
        return single("Unsqueeze", {"x": tensor(rng, dims)}, {"axes": np.array(axes, np.int64)})
    return single("Squeeze", {"x": tensor(rng, dims)})


def concat(rng):
    dims = list(shape(rng, 1, 4))
    axis = axis_of(rng, len(dims))
    inputs = {}
    for i in range(int(rng.integers(1, 5))):
        dims[axis] = extent(rng)
        inputs[f"x{i}"] = tensor(rng, dims)
    return single("Concat", inputs, axis=axis)


def split(rng):
    dims = list(shape(rng, 1, 4))
    axis = axis_of(rng, len(dims))
    parts = [int(rng.integers(0, 4)) for _ in range(int(rng.integers(1, 4)))]
    dims[axis] = sum(parts)
    return single("Split", {"x": tensor(rng, dims)}, {"split": np.array(parts, np.int64)}, outputs=len(parts), axis=axis)


def slice_(rng):
    dims = shape(rng, 1, 4)
    axes = [int(a) for a in rng.choice(len(dims), rng.integers(1, len(dims) + 1), replace=False)]
    starts = [int(rng.choice([0, 1, -1, -2, 100, -100, 2])) for _ in axes]
    ends = [int(rng.choice([0, 1, -1, -2, 100, -100, 3, 2**62, -(2**62)])) for _ in axes]
    steps = [int(rng.choice([1, 1, 2, -1, -2, 3, 1000])) for _ in axes]
    axes = [a - (len(dims) if rng.random() < 0.3 else 0) for a in axes]
    return single("Slice", {"x": tensor(rng, dims)}, {n: np.array(v, np.int64) for n, v in zip(("st", "en", "ax", "sp"), (starts, ends, axes, steps))})


def pad(rng):
    dims = shape(rng, 1, 4)
    mode = one_of(rng, ["constant", "constant", "edge", "reflect", "wrap"])
    low = -1 if mode == "constant" else 0
    pads = [int(rng.integers(low, 3)) for _ in range(2 * len(dims))]
    if mode == "reflect":
        pads = [min(p, max(dims[i % len(dims)] - 1, 0)) for i, p in enumerate(pads)]
    constants = {"p": np.array(pads, np.int64)} | ({"c": np.array(1.5, F32)} if mode == "constant" and rng.random() < 0.5 else {})
    return single("Pad", {"x": tensor(rng, dims)}, constants, mode=mode)


def gather(rng):
    dims = tuple(max(1, d) for d in shape(rng, 1, 4))
    axis = axis_of(rng, len(dims))
    indices = rng.integers(-dims[axis], dims[axis], shape(rng, 0, 2))
    indices = np.asarray(indices, one_of(rng, [np.int32, np.int64]))
    x, i = {"x": tensor(rng, dims)}, {"i": indices}
    return single("Gather", {**x, **i}, axis=axis) if rng.random() < 0.5 else single("Gather", x, i, axis=axis)


def gather_elements(rng):
    dims = tuple(max(1, d) for d in shape(rng, 1, 3))
    axis = axis_of(rng, len(dims))
    out = [int(rng.integers(1, d + 1)) for d in dims]
    indices = rng.integers(-dims[axis], dims[axis], out)
    if rng.random() < 0.5:
        return single("GatherElements", {"x": tensor(rng, dims), "i": indices}, axis=axis)
    # Without an index twice, as that has no defined result.
    indices = np.argsort(rng.random(dims), axis=axis)
    return single("ScatterElements", {"x": tensor(rng, dims), "i": indices, "u": tensor(rng, dims)}, axis=axis)


def expand(rng):
    dims = shape(rng, 0, 4)
    if rng.random() < 0.5:
        return single("Expand", {"x": tensor(rng, broadcastable(rng, dims))}, {"s": np.array(dims, np.int64)})
    return single("Tile", {"x": tensor(rng, dims)}, {"r": rng.integers(0 if rng.random() < 0.1 else 1, 4, len(dims))})


def where(rng):
    dims = shape(rng, 0, 4)
    dtype = one_of(rng, [F32, np.int64, np.uint8, np.bool_])
    return single("Where", {"c": tensor(rng, broadcastable(rng, dims), np.bool_), "x": tensor(rng, dims, dtype), "y": tensor(rng, broadcastable(rng, dims), dtype)})


def clip(rng):
    x, dtype = special(rng, shape(rng)), F32
    x = np.where(np.isinf(x), F32(0), x)  # without a bound they stay what they are, but not in onnxruntime
    if rng.random() < 0.3:
        dtype = one_of(rng, [np.int32, np.int64, np.uint8, np.int8])
        x = tensor(rng, shape(rng), dtype)
    bounds = {}
    if rng.random() < 0.8:
        bounds["lo"] = np.array(1, dtype)
    if "lo" in bounds and rng.random() < 0.8:
        bounds["hi"] = np.array(one_of(rng, [2, 3]), dtype)
    return single("Clip", {"x": x}, bounds) if rng.random() < 0.7 else single("Clip", {"x": x, **bounds})


def cumsum(rng):
    dims = shape(rng, 1, 4)
    return single("CumSum", {"x": tensor(rng, dims, one_of(rng, [F32, np.int32, np.int64]))}, {"a": np.array(axis_of(rng, len(dims)), np.int32)},
                  exclusive=int(rng.integers(0, 2)), reverse=int(rng.integers(0, 2)))


def top_k(rng):
    dims = tuple(max(1, d) for d in shape(rng, 1, 3))
    axis = axis_of(rng, len(dims))
    return single("TopK", {"x": tensor(rng, dims)}, {"k": np.array([int(rng.integers(1, dims[axis] + 1))])}, outputs=2, axis=axis, largest=int(rng.integers(0, 2)))


def normalization(rng):
    dims = (int(rng.integers(1, 3)), one_of(rng, [1, 2, 6, 16, 17]), *shape(rng, 1, 2))
    channels, x = dims[1], tensor(rng, dims)
    scale, bias = tensor(rng, (channels,)), tensor(rng, (channels,))
    which = int(rng.integers(0, 5))
    if which == 0 and np.prod(dims[2:]) > 1:
        return single("InstanceNormalization", {"x": x}, {"s": scale, "b": bias})
    if which == 1:
        return single("BatchNormalization", {"x": x}, {"s": scale, "b": bias, "m": tensor(rng, (channels,)), "v": np.abs(scale) + F32(0.1)}, epsilon=1e-3)
    if which == 2:
        axis = int(rng.integers(1, len(dims))) - (len(dims) if rng.random() < 0.5 else 0)
        return single("LayerNormalization", {"x": x}, {"s": tensor(rng, dims[axis:]), "b": tensor(rng, dims[axis:])}, axis=axis)
    if which == 3:
        return single("LpNormalization", {"x": x}, axis=axis_of(rng, len(dims)), p=int(rng.integers(1, 3)))
    return single("LRN", {"x": x}, size=int(rng.choice([1, 3, 5])))


def space_depth(rng):
    b = int(rng.integers(1, 4))
    n, c, h, w = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    if rng.random() < 0.5:
        return single("DepthToSpace", {"x": tensor(rng, (n, c * b * b, h, w))}, blocksize=b, mode=one_of(rng, ["DCR", "CRD"]))
    return single("SpaceToDepth", {"x": tensor(rng, (n, c, h * b, w * b))}, blocksize=b)


def resize(rng):
    dims = (1, int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.integers(1, 6)))
    sizes = [*dims[:2], int(rng.integers(1, 9)), int(rng.integers(1, 9))]
    attributes = {"mode": one_of(rng, ["nearest", "linear", "cubic"]),
                  "coordinate_transformation_mode": one_of(rng, ["asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel"])}
    if attributes["mode"] == "nearest":
        attributes["nearest_mode"] = one_of(rng, ["floor", "ceil", "round_prefer_floor"])
    return single("Resize", {"x": tensor(rng, dims)}, {"s": np.array(sizes, np.int64)}, order=["x", "", "", "s"], opset=13, **attributes)


def einsum(rng):
    letters = {c: extent(rng) or 1 for c in "abcd"}
    equation = one_of(rng, ["ab,bc->ac", "ab,ab->a", "abc,cd->abd", "ab,cb->ac", "ab->ba", "ab->", "abc,abd->acd", "a,b->ab", "abc->cab", "ab,bc,cd->ad",
                            "abc,adc->bdc", "ab,ac,abcd->ad", "a,b,ab->", "ab,ac,ad,a->bcd"])
    inputs = {f"x{i}": tensor(rng, [letters[c] for c in term]) for i, term in enumerate(equation.split("->")[0].split(","))}
    last = f"x{len(inputs) - 1}"
    constants = {last: inputs.pop(last)} if len(inputs) > 1 and rng.random() < 0.4 else {}
    return single("Einsum", inputs, constants, equation=equation)


def trilu(rng):
    dims = (*shape(rng, 0, 1), extent(rng), extent(rng))
    return single("Trilu", {"x": tensor(rng, dims)}, {"k": np.array(int(rng.choice([0, 1, -1, 3, -3, 100, -100])))}, upper=int(rng.integers(0, 2)))


def recurrent(rng):
    op = one_of(rng, ["LSTM", "GRU", "RNN"])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    direction = one_of(rng, ["forward", "reverse", "bidirectional"])
    d = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 9)), int(rng.integers(1, 18))
    constants = {"w": tensor(rng, (d, gates * hidden, size), low=-1, high=1), "r": tensor(rng, (d, gates * hidden, hidden), low=-1, high=1)}
    if rng.random() < 0.6:
        constants["b"] = tensor(rng, (d, 2 * gates * hidden), low=-1, high=1)
    return single(op, {"x": tensor(rng, (steps, batch, size))}, constants, outputs=int(rng.integers(1, 3)), hidden_size=hidden, direction=direction)


def det(rng):
    n = int(rng.integers(1, 9))
    x = tensor(rng, (*shape(rng, 0, 2), n, n), low=-2, high=2)
    if n > 1 and rng.random() < 0.3:
        x[..., 0, :] = x[..., 1, :] if rng.random() < 0.5 else 0
    return dataclasses.replace(single("Det", {"x": x}), atol=1e-3)


def deform_conv(rng):
    kernel = [int(v) for v in rng.integers(1, 4, 2)]
    stride, dilation = ([int(v) for v in rng.integers(1, 3, 2)] for _ in range(2))
    pads = [int(v) for v in rng.integers(0, 2, 4)]
    size = [int(rng.integers((k - 1) * d + 1, 9)) for k, d in zip(kernel, dilation)]
    out = [(n + pads[i] + pads[i + 2] - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1 for i, n in enumerate(size)]
    group, offset_group = int(rng.choice([1, 1, 2])), int(rng.choice([1, 1, 2]))
    batch, cin, cout, taps = int(rng.integers(1, 3)), 2 * int(rng.integers(1, 4)), group * int(rng.integers(1, 5)), kernel[0] * kernel[1]
    inputs = {"x": tensor(rng, (batch, cin, *size)), "w": tensor(rng, (cout, cin // group, *kernel), low=-1, high=1),
              "offset": tensor(rng, (batch, offset_group * taps * 2, *out), low=-2, high=2)}
    order = ["x", "w", "offset"]
    if rng.random() < 0.5:
        inputs["b"] = tensor(rng, (cout,))
    order.append("b" if "b" in inputs else "")
    if rng.random() < 0.5:
        inputs["mask"] = tensor(rng, (batch, offset_group * taps, *out), low=0, high=1)
        order.append("mask")
    return single("DeformConv", inputs, order=order, opset=22, kernel_shape=kernel, strides=stride, dilations=dilation, pads=pads, group=group, offset_group=offset_group)


# By how often they come.
OPERATORS = [conv, conv, conv, conv, conv_transpose, conv_transpose, pool, pool, global_pool, matmul, matmul, gemm, binary, binary, binary, unary, unary, cast, reduce,
             reduce, softmax, arg_reduce, transpose, reshape, squeeze, concat, split, slice_, slice_, pad, gather, gather_elements, expand, where, clip, cumsum,
             top_k, normalization, normalization, space_depth, resize, einsum, trilu, recurrent, det, deform_conv]
