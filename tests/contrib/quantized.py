"""Operators on bytes that stand for real numbers."""

import numpy as np
from case import Cases, Fixed, dequantized, dynamic, f32, quantized, sigmoid, softmax

U8, I8 = np.uint8, np.int8


def params(scale, zero, dtype, one=False):
    """A scale and a zero point, fixed; as vectors of one element if asked."""
    shape = (1,) if one else ()
    return [Fixed(np.full(shape, scale, np.float32)), None if zero is None else Fixed(np.full(shape, zero, dtype))]


def linear(c):
    x = c.real(3, 5, low=-4, high=4)
    c.add("QuantizeLinear", "u8", [x, *params(0.0313167, 121, U8)], quantized(x, f32(0.0313167), 121, U8))
    c.add("QuantizeLinear", "no_zero", [x, *params(0.0313167, None, U8)], quantized(x, f32(0.0313167), 0, U8))
    c.add("QuantizeLinear", "i16", [x, *params(0.000310283, -7, np.int16)], quantized(x, f32(0.000310283), -7, np.int16))
    scales, zeros = f32([0.1234083, 0.0517219, 0.0911467]), np.array([3, -5, 0], I8)
    rows = np.stack([quantized(x[i], scales[i], zeros[i], I8) for i in range(3)])
    c.add("QuantizeLinear", "axis", [x, Fixed(scales), Fixed(zeros)], rows, axis=0)
    b = c.bytes(I8, 3, 5)
    c.add("DequantizeLinear", "i8", [b, *params(0.25, 3, I8)], f32(dequantized(b, 0.25, 3)))
    c.add("DequantizeLinear", "axis", [b, Fixed(scales), Fixed(zeros)], f32(dequantized(b, scales, zeros, 0)), axis=0)
    c.add("DequantizeLinear", "u16", [c_u16 := c.bytes(np.uint16, 7), *params(0.01, 30000, np.uint16)], f32(dequantized(c_u16, f32(0.01), 30000)))
    wide = c.integers(-100000, 100000, 4, 6)
    c.add("DequantizeLinear", "i32", [wide, *params(0.002, None, np.int32)], f32(dequantized(wide, f32(0.002))))


def of_two(c):
    for op, f in (("QLinearAdd", np.add), ("QLinearMul", np.multiply)):
        for variant, dtype, a_shape, b_shape, (az, bz, cz) in (
            ("u8", U8, (2, 3, 5, 7), (2, 3, 5, 7), (131, 120, 128)),
            ("i8", I8, (4, 37), (4, 37), (-3, 5, 11)),
            ("broadcast", U8, (2, 3, 5, 7), (3, 1, 1), (0, 128, 77)),
            ("both_broadcast", I8, (4, 1, 6), (5, 1), (0, 0, 0)),
            ("no_zeros", U8, (6, 6), (6, 6), (None, None, None)),
            ("no_zeros_signed", I8, (6, 6), (6,), (None, None, None)),
        ):
            a, b = c.bytes(dtype, *a_shape), c.bytes(dtype, *b_shape)
            scales = [f32(0.0273148), f32(0.0417739), f32(0.0621384 if op == "QLinearAdd" else 0.1713297)]
            want = quantized(f(dequantized(a, scales[0], az or 0), dequantized(b, scales[1], bz or 0)), scales[2], cz or 0, dtype)
            c.add(op, variant, [a, *params(scales[0], az, dtype), b, *params(scales[1], bz, dtype), *params(scales[2], cz, dtype)], want)
    # Powers of two: ties are exact, and go to even.
    a, b = c.bytes(U8, 300), c.bytes(U8, 300)
    want = quantized(dequantized(a, 0.5, 128) + dequantized(b, 0.25, 7), 1, 100, U8)
    c.add("QLinearAdd", "ties", [a, *params(0.5, 128, U8, True), b, *params(0.25, 7, U8, True), *params(1, 100, U8, True)], want)
    want = quantized(dequantized(a, 0.5, 128) + dequantized(b, 0.25, 7), 1, 100, U8)
    fixed = [Fixed(b), *params(0.25, 7, U8)]
    c.add("QLinearAdd", "with_constant", [a, *params(0.5, 128, U8), *fixed, *params(1, 100, U8)], want)
    c.add("QLinearAdd", "scales_at_run_time", [a, f32(0.5), np.array(128, U8), b, f32(0.25), np.array(7, U8), f32(1), np.array(100, U8)], want)


def of_one(c):
    for dtype, xz, yz in ((U8, 128, 0), (I8, 4, -128), (U8, None, None), (I8, None, None)):
        x = c.bytes(dtype, 3, 85)
        real = dequantized(x, f32(0.0417163), xz or 0)
        variant = f"{np.dtype(dtype).name}{'' if xz is not None else '_no_zeros'}"
        for op, y, scale, attributes in (
            ("QLinearSigmoid", sigmoid(real), 1 / 256, {}),
            ("QLinearLeakyRelu", np.where(real < 0, np.float32(0.01) * np.float64(real), real), 0.0391283, {}),
            ("QLinearLeakyRelu", np.where(real < 0, np.float32(0.3) * np.float64(real), real), 0.0391283, {"alpha": 0.3}),
        ):
            want = quantized(y, f32(scale), yz or 0, dtype)
            c.add(op, variant + "_alpha" * bool(attributes), [x, *params(0.0417163, xz, dtype), *params(scale, yz, dtype)], want, **attributes)


def softmaxes(c):
    for variant, shape, axis, opset, dtype, zeros in (
        ("last", (3, 17), -1, 13, U8, (120, 0)),
        ("inner", (2, 5, 7), 1, 13, I8, (3, -128)),
        ("rest", (2, 5, 7), 1, 12, U8, (120, 0)),
        ("old_last", (2, 5, 7), -1, 11, U8, (None, 0)),
    ):
        x = c.bytes(dtype, *shape)
        real = dequantized(x, f32(0.0213083), zeros[0] or 0)
        start = axis % len(shape)
        flat = real.reshape(int(np.prod(shape[:start])), -1)
        y = softmax(real, axis) if opset >= 13 else softmax(flat).reshape(shape)
        inputs = [x, *params(0.0213083, zeros[0], dtype), *params(1 / 256, zeros[1], dtype)]
        attributes = {"axis": axis} if axis != -1 else {}
        c.add("QLinearSoftmax", variant, inputs, quantized(y, f32(1 / 256), zeros[1], dtype), opset=17, **attributes, **{})
        c.all[-1].attributes["opset"] = opset


def means(c):
    x = c.bytes(U8, 2, 3, 5, 7)
    real = dequantized(x, f32(0.0413271), 117)
    inputs = [x, *params(0.0413271, 117, U8), *params(0.0317183, 99, U8)]
    for variant, axes, keep in (("last", [-1], 1), ("image", [2, 3], 0), ("first", [0, 2], 1)):
        y = real.mean(axis=tuple(axes), keepdims=bool(keep))
        c.add("QLinearReduceMean", variant, inputs, quantized(y, f32(0.0317183), 99, U8), axes=axes, keepdims=keep)
    signed = c.bytes(I8, 4, 9)
    y = quantized(dequantized(signed, f32(0.0413271)).mean(axis=1, keepdims=True), f32(0.0317183), 0, I8)
    c.add("QLinearReduceMean", "no_zeros", [signed, *params(0.0413271, None, I8), *params(0.0317183, None, I8)], y, axes=[1], keepdims=1)


def average(real, kernel, strides, pads, with_pads, ceil):
    """Windows over the last two axes, each element by itself."""
    n, channels, height, width = real.shape
    round_up = -1 if ceil else 1
    sizes = [round_up * ((round_up * (extent + pads[d] + pads[d + 2] - kernel[d])) // strides[d]) + 1 for d, extent in enumerate((height, width))]
    out = np.zeros((n, channels, *sizes))
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            top, left = i * strides[0] - pads[0], j * strides[1] - pads[1]
            bottom, right = min(top + kernel[0], height + pads[2]), min(left + kernel[1], width + pads[3])
            window = real[:, :, max(top, 0) : min(bottom, height), max(left, 0) : min(right, width)]
            count = (bottom - top) * (right - left) if with_pads else window.shape[2] * window.shape[3]
            out[:, :, i, j] = window.sum(axis=(2, 3)) / count
    return out


def pools(c):
    for variant, dtype, last, xz, yz in (("u8", U8, 0, 128, 110), ("i8", I8, 0, -7, 3), ("channels_last", U8, 1, 128, 110)):
        x = c.bytes(dtype, 2, 5, 6, 7)
        y = quantized(dequantized(x, f32(0.0713217), xz).mean(axis=(2, 3), keepdims=True), f32(0.0211183), yz, dtype)
        if last:
            x, y = np.moveaxis(x, 1, -1), np.moveaxis(y, 1, -1)
        inputs = [x, *params(0.0713217, xz, dtype), *params(0.0211183, yz, dtype)]
        c.add("QLinearGlobalAveragePool", variant, inputs, y, **({"channels_last": 1} if last else {}))
    for variant, kernel, strides, pads, attributes in (
        ("plain", (3, 3), (1, 1), (0, 0, 0, 0), {}),
        ("strides", (3, 2), (2, 1), (0, 0, 0, 0), {}),
        ("pads", (3, 3), (2, 2), (1, 1, 1, 1), {}),
        ("pads_counted", (3, 3), (2, 2), (1, 1, 1, 1), {"count_include_pad": 1}),
        ("ceil", (3, 3), (2, 2), (0, 0, 0, 0), {"ceil_mode": 1}),
        ("channels_last", (2, 2), (2, 2), (0, 0, 0, 0), {"channels_last": 1}),
    ):
        x = c.bytes(U8, 2, 5, 8, 8)
        with_pads, ceil = bool(attributes.get("count_include_pad")), bool(attributes.get("ceil_mode"))
        y = quantized(average(dequantized(x, f32(0.0713217), 119), kernel, strides, pads, with_pads, ceil), f32(0.0517219), 101, U8)
        if attributes.get("channels_last"):
            x, y = np.moveaxis(x, 1, -1), np.moveaxis(y, 1, -1)
        inputs = [x, *params(0.0713217, 119, U8), *params(0.0517219, 101, U8)]
        c.add("QLinearAveragePool", variant, inputs, y, kernel_shape=kernel, strides=strides, pads=pads, **attributes)
    x = c.bytes(I8, 1, 3, 7, 7)
    y = quantized(average(dequantized(x, f32(0.0713217)), (2, 2), (2, 2), (0, 0, 1, 1), False, False), f32(0.0517219), 0, I8)
    c.add("QLinearAveragePool", "same_upper", [x, *params(0.0713217, None, I8), *params(0.0517219, None, I8)], y, kernel_shape=(2, 2), strides=(2, 2), auto_pad="SAME_UPPER")


def joined(c):
    for variant, dtype, axis, shapes in (("channels", U8, 1, [(2, 3, 4), (2, 5, 4), (2, 1, 4)]), ("last", I8, -1, [(3, 4), (3, 6)])):
        inputs, parts = params(0.0331259, 5, dtype), []
        for i, shape in enumerate(shapes):
            x = c.bytes(dtype, *shape)
            scale, zero = (0.0331259, 5) if i == 0 else (0.0217361 * i, 7 * i)  # the first is as the result
            inputs += [x, *params(scale, zero, dtype)]
            parts.append(quantized(dequantized(x, f32(scale), zero), f32(0.0331259), 5, dtype))
        c.add("QLinearConcat", variant, inputs, np.concatenate(parts, axis), axis=axis)
    condition = c.rng.integers(0, 2, (3, 1, 5)).astype(bool)
    x, y = c.bytes(U8, 3, 4, 5), c.bytes(U8, 4, 1)
    want = np.where(condition, quantized(dequantized(x, f32(0.0217361), 9), f32(0.0331259), 50, U8), quantized(dequantized(y, f32(0.0451327), 130), f32(0.0331259), 50, U8))
    c.add("QLinearWhere", "broadcast", [condition, x, *params(0.0217361, 9, U8), y, *params(0.0451327, 130, U8), *params(0.0331259, 50, U8)], want)
    x, y = c.bytes(I8, 6), c.bytes(I8, 6)
    condition = np.array([1, 0, 1, 1, 0, 0], bool)
    want = np.where(condition, x, quantized(dequantized(y, f32(0.0451327), 3), f32(0.0217361), 9, I8))
    c.add("QLinearWhere", "same_scale", [condition, x, *params(0.0217361, 9, I8), y, *params(0.0451327, 3, I8), *params(0.0217361, 9, I8)], want)


def gemms(c):
    for variant, a_type, b_type, columns, attributes, c_shape, result in (
        ("plain", U8, I8, False, {}, (24,), U8),
        ("each_column", U8, I8, True, {"transB": 1}, (24,), U8),
        ("unsigned_weights", U8, U8, True, {}, None, U8),
        ("signed", I8, I8, False, {"transB": 1}, (1, 24), I8),
        ("real_result", U8, I8, True, {}, (24,), None),
        ("alpha", U8, I8, False, {"alpha": 0.5}, (5, 24), U8),
        ("transposed", I8, I8, True, {"transA": 1, "transB": 1}, (5, 1), I8),
    ):
        a, b = c.bytes(a_type, 5, 13), c.bytes(b_type, 13, 24)
        a_scale, a_zero = f32(0.0217361), 117 if a_type == U8 else -3
        b_scale = c.real(24, low=0.01, high=0.03) if columns else f32(0.0173281)
        b_zero = c.bytes(b_type, 24) if b_type == U8 else np.zeros(24 if columns else (), I8)
        alpha = np.float64(attributes.get("alpha", 1))
        y = alpha * dequantized(a, a_scale, a_zero) @ dequantized(b, b_scale, b_zero, 1 if columns else None)
        inputs = [a.T if "transA" in attributes else a, *params(a_scale, a_zero, a_type), Fixed(b.T if "transB" in attributes else b), Fixed(b_scale), Fixed(b_zero)]
        if c_shape:
            bias = c.integers(-9000, 9000, *c_shape)
            y = y + bias * (alpha * a_scale * np.asarray(b_scale, np.float64))
            inputs.append(Fixed(bias))
        if result:
            inputs += [None] * (6 - len(inputs)) + ([None] if not c_shape else []) + params(0.0913447, 121 if result == U8 else 2, result)
            y = quantized(y, f32(0.0913447), 121 if result == U8 else 2, result)
        c.add("QGemm", variant, inputs, y if result else f32(y), **attributes)


def integer_products(c):
    for variant, a_type, b_type, columns, zeros, bias, shape in (
        ("plain", U8, I8, False, True, True, (3, 16)),
        ("each_column", U8, I8, True, True, True, (2, 5, 16)),
        ("unsigned", U8, U8, True, True, False, (4, 16)),
        ("signed", I8, I8, False, True, True, (4, 16)),
        ("no_zeros", U8, I8, False, False, False, (4, 16)),
    ):
        a, b = c.bytes(a_type, *shape), c.bytes(b_type, 16, 40)
        a_scale, a_zero = f32(0.0217361), a_type(9) if zeros else None
        b_scale = c.real(40, low=0.01, high=0.03) if columns else f32(0.0173281)
        b_zero = None if not zeros else c.bytes(b_type, 40) if columns else b_type(7)
        extra = c.real(40)
        y = dequantized(a, a_scale, 0 if a_zero is None else a_zero) @ dequantized(b, b_scale, 0 if b_zero is None else b_zero, 1 if columns else None)
        inputs = [a, Fixed(b), a_scale, Fixed(b_scale), a_zero, None if b_zero is None else Fixed(b_zero)] + [Fixed(extra)] * bias
        c.add("MatMulIntegerToFloat", variant, inputs, f32(y + extra * bias), atol=1e-3)

        x = c.real(*shape, low=-3, high=5)
        quant, scale, zero = dynamic(x)
        y = dequantized(quant, scale, zero) @ dequantized(b, b_scale, 0 if b_zero is None else b_zero, 1 if columns else None)
        inputs = [x, Fixed(b), Fixed(b_scale), None if b_zero is None else Fixed(b_zero)] + [Fixed(extra)] * bias
        c.add("DynamicQuantizeMatMul", variant, inputs, f32(y + extra * bias), atol=1e-3)


def packed_numbers(c, bits, *shape):
    """Numbers of so many bits, and the same several to a byte along the last axis, which is filled up."""
    each = 8 // bits
    numbers = c.rng.integers(0, 1 << bits, (*shape[:-1], -(-shape[-1] // each) * each)).astype(np.int64)
    packed = sum(numbers.reshape(*shape[:-1], -1, each)[..., i] << (bits * i) for i in range(each)).astype(U8)
    return numbers[..., : shape[-1]].astype(np.float64), packed


def few_bits(c):
    for variant, bits, k, n, block, zeros, bias in (
        ("4", 4, 64, 24, 32, None, False),
        ("4_zeros", 4, 80, 24, 16, "packed", True),
        ("4_real_zeros", 4, 64, 24, 32, "real", False),
        ("8", 8, 64, 24, 32, "packed", False),
        ("2", 2, 96, 24, 32, None, True),
        ("rest", 4, 50, 24, 32, "packed", False),
        # More than a second-level cache holds: these keep their bits.
        ("4_large", 4, 1088, 520, 64, None, False),
        ("4_large_zeros", 4, 1000, 600, 32, "packed", True),
        ("8_large", 8, 800, 700, 32, "packed", False),
        ("2_large", 2, 1056, 540, 16, "packed", False),
        # Of these rows may be rounded to bytes.
        ("4_level_of_bytes", 4, 1088, 520, 64, None, True),
        ("4_level_of_bytes_zeros", 4, 992, 600, 32, "packed", False),
        ("8_level_of_bytes", 8, 800, 700, 32, "packed", True),
        ("4_level_of_bytes_rest", 4, 1000, 600, 32, None, True),
    ):
        blocks = -(-k // block)
        q, packed = packed_numbers(c, bits, n, blocks, block)
        scales = c.real(n, blocks, low=0.01, high=0.1)
        zero, given = np.full((n, blocks), float(1 << (bits - 1))), []
        if zeros == "packed":
            zero, z = packed_numbers(c, bits, n, blocks)
            given = [Fixed(z)]
        elif zeros == "real":
            zero = c.real(n, blocks, low=0, high=15)
            given = [Fixed(zero)]
        weights = ((q - zero[..., None]) * scales[..., None].astype(np.float64)).reshape(n, -1)[:, :k]
        a, extra = c.real(2, 3, k), c.real(n)

        def run(a):
            inputs = [a, Fixed(packed), Fixed(scales)] + given
            if bias:
                inputs += [None] * (5 - len(inputs)) + [Fixed(extra)]
            return inputs, [f32(a.astype(np.float64) @ weights.T + extra * bias)]

        words = {"K": k, "N": n, "bits": bits, "block_size": block, "atol": 1e-4 if n < 100 else 1e-3}
        if "level_of_bytes" in variant:
            # Each number of a row is off by half a step of its block at most: by chance, of hundreds of them.
            typical = np.sqrt(k) * np.abs(weights).max() / np.sqrt(3) * 2 / (2 * 127) / np.sqrt(3)
            words |= {"accuracy_level": 4, "atol": 6 * typical}
        c.add("MatMulNBits", variant, *run(a), **words)
        c.add("MatMulNBits", f"{variant}_open", *run(a), dims=[("B", "S", None)], more=[run(c.real(1, 1, k)), run(c.real(1, 40, k))], **words)


LEVELS = (
    [0, 5.208333333e-03, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25, 0, -5.208333333e-03, -0.66666667, -1, -0.33333333, -0.5, -0.16666667, -0.25],
    [-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
     0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1],
)  # fmt: skip


def listed_levels(c):
    for variant, kind, k, n, block, transposed in (("fp4", 0, 64, 24, 32, True), ("nf4", 1, 64, 24, 64, True), ("nf4_blocks_of_several_rows", 1, 48, 20, 64, True),
                                                  ("nf4_rest", 1, 33, 7, 16, True), ("fp4_backwards", 0, 32, 20, 16, False), ("nf4_large", 1, 1088, 520, 64, True)):
        places = c.integers(0, 16, k * n + (k * n) % 2)
        packed = (places[0::2] * 16 + places[1::2]).astype(U8)
        scales = c.real(-(-k * n // block), low=0.1, high=2)
        weights = (np.array(LEVELS[kind])[places[: k * n]] * np.repeat(scales, block)[: k * n]).reshape(n, k)
        a = c.real(2, 3, k if transposed else n)
        words = {"K": k, "N": n, "block_size": block, "quant_type": kind} | ({} if transposed else {"transB": 0})
        y = a.astype(np.float64) @ (weights.T if transposed else weights)
        c.add("MatMulBnb4", variant, [a, Fixed(packed), Fixed(scales)], f32(y), atol=1e-4 if k < 100 else 1e-3, **words)


def rows_of_few_bits(c):
    for variant, bits, shape, block, has_zeros in (("4", 4, (30, 64), 32, False), ("4_zeros", 4, (30, 48), 16, True), ("8", 8, (30, 64), 32, False),
                                                   ("8_zeros", 8, (30, 64), 16, True), ("4_more_axes", 4, (9, 3, 64), 32, True)):
        blocks = shape[-1] // block
        q, packed = packed_numbers(c, bits, *shape)
        scales, zero, given = c.real(*shape[:-1], blocks, low=0.01, high=0.1), np.float64(1 << (bits - 1)), []
        if has_zeros:
            zero, z = packed_numbers(c, bits, *shape[:-1], blocks)
            zero, given = zero[..., None], [Fixed(z)]
        table = ((q.reshape(*shape[:-1], blocks, block) - zero) * scales[..., None].astype(np.float64)).reshape(shape)

        def run(*rows):
            ids = c.integers(0, shape[0], *rows, dtype=np.int64)
            return [Fixed(packed), ids, Fixed(scales)] + given, [f32(table[ids])]

        words = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": len(shape) - 1}
        c.add("GatherBlockQuantized", variant, *run(2, 5), **words)
        c.add("GatherBlockQuantized", f"{variant}_open", *run(2, 5), dims=[None, ("B", "S")], more=[run(1, 1), run(3, 40)], **words)


def cases():
    c = Cases(5)
    for make in (linear, of_two, of_one, softmaxes, means, pools, joined, gemms, integer_products, few_bits, listed_levels, rows_of_few_bits):
        make(c)
    return c.all
