"""Quantised networks whose arithmetic is exact: scales are powers of two and sums have few bits, so that every evaluation gives the same bytes."""

import ml_dtypes
import numpy as np

from case import F32, Case, one_of

# Of activations and of weights, about their zero points: sums of 300 terms fit in 24 bits, those of 60 in the 11 of f16.
WIDE, NARROW = (120, 127, 300), (7, 2, 60)
BYTES = (np.uint8, np.int8)


class Network:
    """A case as it grows. `value` is one that is quantised: its name, type, dimensions, zero point and scale."""

    def __init__(self, rng):
        self.rng = rng
        self.is_half = rng.random() < 0.4
        self.float = np.float16 if self.is_half else F32
        self.span, self.weight_span, self.most_terms = NARROW if self.is_half else WIDE
        self.case = Case([], {}, {}, opset=21, rtol=0, atol=1e-7)

    def add(self, op, *inputs, **attributes):
        self.case.nodes.append((op, list(inputs), attributes))
        return f"v{len(self.case.nodes) - 1}"

    def constant(self, value):
        name = f"c{len(self.case.constants)}"
        self.case.constants[name] = np.asarray(value)
        return name

    def scale(self, exponent):
        return self.constant(np.array(2.0**exponent, self.float))

    def quantize(self, x, dims, exponent):
        dtype = one_of(self.rng, BYTES)
        zero = int(self.rng.integers(0, 256)) - (128 if dtype == np.int8 else 0) if self.rng.random() < 0.5 else 0
        parameters = [self.scale(exponent), self.constant(np.array(zero, dtype))]
        return self.add("QuantizeLinear", x, *parameters), dims, exponent, parameters

    def real(self, value):
        return self.add("DequantizeLinear", value[0], *value[3])

    def number(self, name, dims, exponent):
        """An input: multiples of a quarter of a step, halves among them."""
        steps = self.rng.integers(-4 * self.span, 4 * self.span + 1, dims)
        self.case.inputs[name] = (steps * 2.0 ** (exponent - 2)).astype(self.float)
        return self.quantize(name, dims, exponent)

    def weights(self, dims, exponent, channels):
        """Dequantised, with scales for all or for each of an axis; a constant is quantised first, as some exporters leave it."""
        rng = self.rng
        if rng.random() < 0.2:
            w = (rng.integers(-self.weight_span, self.weight_span + 1, dims) * 2.0**exponent).astype(self.float)
            zero = self.constant(np.array(0, np.int8))
            q = self.add("QuantizeLinear", self.constant(w), self.scale(exponent), zero)
            return self.add("DequantizeLinear", q, self.scale(exponent), zero)
        dtype = one_of(rng, [np.int8, np.int8, np.uint8, ml_dtypes.int4, ml_dtypes.uint4])
        is_signed, bits = dtype in (np.int8, ml_dtypes.int4), 4 if dtype in (ml_dtypes.int4, ml_dtypes.uint4) else 8
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
        zero = 0 if is_signed and rng.random() < 0.7 else (low + high + 1) // 2 if rng.random() < 0.7 else int(rng.integers(low, high + 1))
        span = self.weight_span
        w = np.clip(rng.integers(zero - span, zero + span + 1, dims), low, high)
        by_channel = rng.random() < 0.5
        count = (dims[channels],) if by_channel else ()
        scales = np.asarray(2.0 ** (exponent - rng.integers(0, 2, count)) if not self.is_half else np.full(count, 2.0**exponent)).astype(self.float)
        inputs = [self.constant(w.astype(dtype)), self.constant(scales)]
        if zero != 0 or rng.random() < 0.5:
            inputs.append(self.constant(np.full(count, zero).astype(dtype)))
        return self.add("DequantizeLinear", *inputs, **({"axis": channels} if by_channel else {}))

    def bias(self, count, exponent):
        numbers = self.rng.integers(-self.span, self.span + 1, (count,))
        if self.rng.random() < 0.5:
            return self.constant((numbers * 2.0**exponent).astype(self.float))
        return self.add("DequantizeLinear", self.constant(numbers.astype(np.int32)), self.scale(exponent))

    def following(self, x, dims, exponent, terms):
        """What follows a product: an activation, and the next step of quantisation, wide enough for most of the sums."""
        if self.rng.random() < 0.5:
            op, attributes = one_of(self.rng, [("Relu", {}), ("Relu", {}), ("LeakyRelu", {"alpha": 0.25})])
            x = self.add(op, x, **attributes)
        steps = self.weight_span * (terms + 1) if self.is_half else self.span * self.weight_span * np.sqrt(terms) / 64
        return self.quantize(x, dims, exponent + int(np.ceil(np.log2(max(1, steps)))))

    def convolution(self, value):
        rng, (_, (n, c, h, w), exponent, _) = self.rng, value
        group = c if rng.random() < 0.25 else one_of(rng, [g for g in (1, 1, 2, 4) if c % g == 0])
        k = int(rng.choice([1, 3, 3, 5]))
        if k * k * (c // group) > self.most_terms or min(h, w) < k:
            k = 1
        if c // group > self.most_terms:
            group = c
        out = group * int(rng.choice([1, 2])) if group == c else int(rng.choice([4, 8, 16, 24, 40])) // group * group or group
        stride, pad = int(rng.choice([1, 1, 2])), int(rng.integers(0, k // 2 + 1))
        x = self.real(value)
        inputs = [x, self.weights((out, c // group, k, k), -6, 0)]
        if rng.random() < 0.6:
            inputs.append(self.bias(out, exponent - 6 - (0 if self.is_half else 1)))
        y = self.add("Conv", *inputs, kernel_shape=[k, k], strides=[stride, stride], pads=[pad] * 4, group=int(group))
        dims = (n, out, (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1)
        return self.following(y, dims, exponent - 6, k * k * (c // group))

    def product(self, value):
        rng, (_, dims, exponent, _) = self.rng, value
        columns, depth = int(rng.choice([1, 8, 16, 24, 33, 64])), dims[-1]
        x, step = self.real(value), exponent - 6 - (0 if self.is_half else 1)
        if len(dims) == 2 and rng.random() < 0.5:
            trans = int(rng.integers(0, 2))
            w = self.weights((columns, depth) if trans else (depth, columns), -6, 0 if trans else 1)
            y = self.add("Gemm", x, w, *([self.bias(columns, step)] if rng.random() < 0.6 else []), transB=trans)
        else:
            y = self.add("MatMul", x, self.weights((depth, columns), -6, 1))
            if rng.random() < 0.6:
                y = self.add("Add", y, self.bias(columns, step))
        return self.following(y, (*dims[:-1], columns), exponent - 6, depth)

    def sum(self, value, other):
        """Of two values with scales of their own."""
        finer = min(value[2], other[2])
        if self.is_half and max(value[2], other[2]) > finer + 4:
            return value
        y = self.add(one_of(self.rng, ["Add", "Sub"]), self.real(value), self.real(other))
        if self.rng.random() < 0.3:
            y = self.add("Relu", y)
        return self.quantize(y, value[1], max(value[2], other[2]) + 1)

    def moved(self, value):
        """Operators between two equal steps of quantisation."""
        rng, (_, dims, exponent, parameters) = self.rng, value
        x = self.real(value)
        kind = one_of(rng, ["Relu", "Transpose", "MaxPool", "Concat", "Slice"])
        if kind == "MaxPool" and len(dims) == 4 and min(dims[2:]) >= 2:
            x, dims = self.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), (*dims[:2], dims[2] // 2, dims[3] // 2)
        elif kind == "Transpose" and len(dims) > 2:
            perm = [0, *(1 + rng.permutation(len(dims) - 1)).tolist()]
            x, dims = self.add("Transpose", x, perm=perm), tuple(dims[p] for p in perm)
        elif kind == "Concat":
            x, dims = self.add("Concat", x, x, axis=1), (dims[0], 2 * dims[1], *dims[2:])
        elif kind == "Slice" and dims[1] > 1:
            begin = int(rng.integers(0, dims[1] - 1))
            bounds = [self.constant(np.array([v])) for v in (begin, dims[1], 1)]
            x, dims = self.add("Slice", x, *bounds), (dims[0], dims[1] - begin, *dims[2:])
        else:
            x = self.add("Relu", x)
        return self.add("QuantizeLinear", x, *parameters), dims, exponent, parameters


def quantized(rng):
    """Convolutions or products between DequantizeLinear and QuantizeLinear, of f32 or f16, with sums and what moves elements among them."""
    net = Network(rng)
    if rng.random() < 0.6:
        size = int(rng.choice([1, 5, 8, 13]))
        value = net.number("x", (int(rng.integers(1, 3)), int(rng.choice([1, 3, 4, 8, 16])), size, int(rng.choice([size, 7]))), -3)
    else:
        value = net.number("x", (*rng.choice([1, 2, 5, 7], rng.integers(1, 3)).tolist(), int(rng.choice([4, 8, 30, 33, 60]))), -3)
    for _ in range(int(rng.integers(1, 5))):
        before, pick = value, rng.random()
        if pick < 0.25:
            value = net.moved(value)
        elif len(value[1]) == 4:
            value = net.convolution(value)
        elif value[1][-1] <= net.most_terms:
            value = net.product(value)
        if before[1] == value[1] and before[0] != value[0] and rng.random() < 0.5:
            value = net.sum(value, before)
    if rng.random() < 0.5:
        net.real(value)
    return net.case
