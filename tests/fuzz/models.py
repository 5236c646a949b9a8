"""Random small models: one operator of odd shapes, or a chain of cheap ones. Each function takes a generator of random
numbers and gives a Case; what ONNX or onnxruntime refuses of it is no case (run.py)."""

import ml_dtypes
import numpy as np

from case import F32, Case, one_of, shape, tensor
from operators import OPERATORS
from quantized import quantized

CHAIN = [("Relu", {}), ("Sigmoid", {}), ("Neg", {}), ("Abs", {}), ("Tanh", {}), ("Transpose", {}), ("Softmax", {"axis": -1}), ("Identity", {}),
         ("LeakyRelu", {"alpha": 0.3}), ("Flatten", {"axis": 1}), ("ReduceMean", {"keepdims": 1}), ("ReduceMax", {"keepdims": 1}), ("LogSoftmax", {"axis": 0})]


def chain(rng):
    """Several cheap operators, with results used twice: what fusion and layouts make of them."""
    dims = shape(rng, 1, 4)
    case = Case([], {"x": tensor(rng, dims)}, {})
    shapes = {"x": dims}
    for i in range(int(rng.integers(2, 9))):
        a = one_of(rng, list(shapes))
        same = [n for n, s in shapes.items() if s == shapes[a] or all(d == 1 for d in s)]
        name = f"v{i}"
        if rng.random() < 0.5:
            case.nodes.append((one_of(rng, ["Add", "Mul", "Sub", "Max", "Min"]), [a, one_of(rng, same)], {}))
            other = shapes[case.nodes[-1][1][1]]
            shapes[name] = np.broadcast_shapes(shapes[a], other)
            continue
        op, attributes = one_of(rng, CHAIN)
        if op == "Transpose":
            perm = [int(p) for p in rng.permutation(len(shapes[a]))]
            attributes, shapes[name] = {"perm": perm}, tuple(shapes[a][p] for p in perm)
        elif op == "Flatten":
            if len(shapes[a]) < 2:
                op, attributes = "Neg", {}
                shapes[name] = shapes[a]
            else:
                shapes[name] = (shapes[a][0], int(np.prod(shapes[a][1:])))
        elif op.startswith("Reduce"):
            if 0 in shapes[a]:
                op, attributes = "Neg", {}
                shapes[name] = shapes[a]
            else:
                shapes[name] = tuple(1 for _ in shapes[a])
        else:
            shapes[name] = shapes[a]
        case.nodes.append((op, [a], attributes))
    return case


def cnn(rng):
    """Convolutions with what stands between them: sums, concatenations, pools, transposes of both layouts, reshapes."""
    size, channels = int(rng.choice([4, 7, 8, 12])), int(rng.choice([3, 8, 16, 24, 32]))
    is_last = rng.random() < 0.4  # channels last, as an export from TensorFlow has it
    x = tensor(rng, (int(rng.integers(1, 3)), size, size, channels) if is_last else (int(rng.integers(1, 3)), channels, size, size), low=-1, high=1)
    case = Case([], {"x": x}, {}, atol=1e-4)
    values = [("x", channels, size, is_last)]

    def add(op, inputs, **attributes):
        case.nodes.append((op, inputs, attributes))
        return f"v{len(case.nodes) - 1}"

    def constant(*dims):
        name = f"c{len(case.constants)}"
        case.constants[name] = tensor(rng, dims, low=-0.5, high=0.5)
        return name

    for _ in range(int(rng.integers(2, 8))):
        v, c, s, last = values[-1] if rng.random() < 0.7 else one_of(rng, values)
        kind = int(rng.integers(0, 10))
        if kind < 4:
            if last:
                v = add("Transpose", [v], perm=[0, 3, 1, 2])
            depthwise = rng.random() < 0.3
            out = c if depthwise else int(rng.choice([1, 5, 8, 16, 32, 40]))
            k = int(rng.choice([1, 1, 3])) if s >= 3 else 1
            inputs = [v, constant(out, 1 if depthwise else c, k, k)] + ([constant(out)] if rng.random() < 0.6 else [])
            v = add("Conv", inputs, group=c if depthwise else 1, pads=[k // 2] * 4, strides=[1, 1])
            if rng.random() < 0.4:
                v = add(one_of(rng, ["Relu", "Sigmoid", "HardSwish", "Softplus"]), [v])
            if last:
                v = add("Transpose", [v], perm=[0, 2, 3, 1])
            values.append((v, out, s, last))
        elif kind == 4:
            same = [u for u in values if u[1:] == (c, s, last)]
            values.append((add(one_of(rng, ["Add", "Mul", "Max"]), [v, one_of(rng, same)[0]]), c, s, last))
        elif kind == 5:
            same = [u for u in values if u[2:] == (s, last)]
            other = one_of(rng, same)
            values.append((add("Concat", [v, other[0]], axis=3 if last else 1), c + other[1], s, last))
        elif kind == 6 and not last and s > 1:
            op = one_of(rng, ["MaxPool", "AveragePool"])
            values.append((add(op, [v], kernel_shape=[2, 2], strides=[2, 2]), c, s // 2, last))
        elif kind == 7:
            values.append((add(one_of(rng, ["Add", "Mul"]), [v, constant(c) if last else constant(1, c, 1, 1)]), c, s, last))
        elif kind == 8:
            values.append((add("Transpose", [v], perm=[0, 3, 1, 2] if last else [0, 2, 3, 1]), c, s, not last))
        elif not last:
            scale = add("Sigmoid", [add("GlobalAveragePool", [v])])
            values.append((add("Mul", [v, scale]), c, s, last))
    if rng.random() < 0.3:
        add("Flatten", [values[-1][0]])
    elif not case.nodes:
        add("Relu", ["x"])
    return case


def transformer(rng):
    """Products of two values, softmax, normalisation, transposes and reshapes of heads."""
    n, t, heads, d = int(rng.integers(1, 3)), int(rng.choice([1, 3, 8, 17])), int(rng.choice([1, 2, 4])), int(rng.choice([1, 4, 8, 16]))
    width = heads * d
    case = Case([], {"x": tensor(rng, (n, t, width), low=-1, high=1)}, {"s": np.array([0, 0, heads, d]), "f": np.array([0, 0, width])}, atol=1e-4)

    def add(op, *inputs, **attributes):
        case.nodes.append((op, list(inputs), attributes))
        return f"v{len(case.nodes) - 1}"

    def constant(*dims):
        name = f"c{len(case.constants)}"
        case.constants[name] = tensor(rng, dims, low=-0.5, high=0.5)
        return name

    def project(x):
        return add("Add", add("MatMul", x, constant(width, width)), constant(width))

    x = add("LayerNormalization", "x", constant(width), constant(width))
    q, k, v = (add("Reshape", project(x), "s") for _ in range(3))
    q, v = add("Transpose", q, perm=[0, 2, 1, 3]), add("Transpose", v, perm=[0, 2, 1, 3])
    k = add("Transpose", k, perm=[0, 2, 3, 1])
    case.constants["scale"] = np.array(0.5, F32)
    scores = add(one_of(rng, ["Mul", "Div"]), add("MatMul", q, k), "scale")
    if rng.random() < 0.5:
        scores = add("Add", scores, constant(1, 1, t, t))
    mixed = add("Transpose", add("MatMul", add("Softmax", scores), v), perm=[0, 2, 1, 3])
    x = add("Add", "x", project(add("Reshape", mixed, "f")))
    if rng.random() < 0.5:
        x = add("Gelu", x, approximate=one_of(rng, ["none", "tanh"]))
    return case


def decoder(rng):
    """Attention of new positions to those of a cache, whose heads may stand for several of queries."""
    n, past, t, d = int(rng.integers(1, 3)), int(rng.choice([1, 7, 40])), int(rng.choice([1, 2, 5, 26])), int(rng.choice([2, 8, 16, 33]))
    groups, heads = int(rng.integers(1, 4)), int(rng.choice([1, 2, 4]))
    case = Case([], {"q": tensor(rng, (n, t, groups * heads, d), low=-1, high=1)}, {}, atol=1e-4)

    def add(op, *inputs, **attributes):
        case.nodes.append((op, list(inputs), attributes))
        return f"v{len(case.nodes) - 1}"

    def cached(name):
        case.inputs[name] = tensor(rng, (n, groups, past, d), low=-1, high=1)
        case.inputs[name + "n"] = tensor(rng, (n, t, groups, d), low=-1, high=1)
        all_ = add("Concat", name, add("Transpose", name + "n", perm=[0, 2, 1, 3]), axis=2)
        if heads == 1:
            return all_
        repeated = add("Expand", add("Unsqueeze", all_, "axis"), "shape")
        return add("Reshape", repeated, "merged")

    case.constants["axis"] = np.array([2])
    case.constants["shape"] = np.array([n, groups, heads, past + t, d])
    case.constants["merged"] = np.array([0, groups * heads, -1, d])
    case.constants["scale"] = np.array(0.5, F32)
    keys = add("Transpose", cached("k"), perm=[0, 1, 3, 2])
    scores = add("Mul", add("MatMul", add("Transpose", "q", perm=[0, 2, 1, 3]), keys), "scale")
    if rng.random() < 0.5:
        case.inputs["mask"] = tensor(rng, (n, 1, t, past + t), low=-1, high=1)
        scores = add("Add", scores, "mask")
    add("Transpose", add("MatMul", add("Softmax", scores), cached("v")), perm=[0, 2, 1, 3])
    return case


def few_bits(rng):
    """A product with weights of 4 or 8 bits, more than a second-level cache would hold as f32."""
    k, n, rows = int(rng.integers(500, 1200)), int(rng.integers(560, 1100)), (*shape(rng, 0, 1), int(rng.choice([1, 2, 3, 5, 7])))
    if rng.random() < 0.5:
        k = -(-k // 128) * 128
    dtype, low, high = one_of(rng, [(ml_dtypes.int4, -8, 7), (ml_dtypes.uint4, 0, 15), (np.int8, -128, 127), (np.uint8, 0, 255)])
    block = int(rng.choice([0, 16, 32, 128]))
    scales = (-(-k // block), n) if block else one_of(rng, [(n,), (), (1,)])
    case = Case([], {"x": tensor(rng, (*rows, k), low=-1, high=1)}, {}, opset=21, atol=3e-4)
    case.constants["w"] = rng.integers(low, high + 1, (k, n)).astype(dtype)
    case.constants["s"] = np.asarray(rng.uniform(0.2, 1, scales) / high / np.sqrt(k)).astype(F32)
    if rng.random() < 0.5:
        case.constants["z"] = np.asarray(rng.integers(low, high + 1, scales)).astype(dtype)
    along = {"axis": 0, "block_size": block} if block else {"axis": 1}
    case.nodes.append(("DequantizeLinear", ["w", "s", *(["z"] if "z" in case.constants else [])], along))
    case.nodes.append(("MatMul", ["x", "v0"], {}))
    if rng.random() < 0.5:
        case.constants["b"] = tensor(rng, (n,))
        case.nodes += [("Add", ["v1", "b"], {}), ("Relu", ["v2"], {})]
    return case


MAKERS = [*OPERATORS, chain, chain, chain, chain, cnn, cnn, cnn, cnn, cnn, transformer, decoder, few_bits, quantized, quantized, quantized]
