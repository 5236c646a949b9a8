"""Small models with seeded random weights, of the kinds that people deploy."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, shape_inference

OPSET = 17


class Net:
    """Collects nodes; every method returns the name of what it makes. Constants of f32 become those of `dtype`."""

    def __init__(self, seed=0, dtype=np.float32):
        self.dtype = dtype
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.count = [], [], [], 0

    def name(self, stem):
        self.count += 1
        return f"{stem}_{self.count}"

    def input(self, name, shape, kind=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, value, stem="c"):
        name = self.name(stem)
        value = np.asarray(value)
        if value.dtype == np.float32:
            value = value.astype(self.dtype)
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, *shape, scale=None, dtype=np.float32):
        fan_in = int(np.prod(shape[1:])) or 1
        value = self.rng.standard_normal(shape) * (scale or 1.0 / np.sqrt(fan_in))
        return self.constant(value.astype(dtype), "w")

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [self.name(kind.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=names[0], **attributes))
        return names[0] if outputs == 1 else names

    def ints(self, *values):
        return self.constant(np.array(values, np.int64), "i")

    def conv(self, x, c, k, size=3, stride=1, group=1, pads=None, bias=True):
        pad = size // 2
        extra = [self.weight(k, scale=0.1)] if bias else []
        return self.op("Conv", x, self.weight(k, c // group, size, size), *extra, kernel_shape=[size, size],
                       strides=[stride, stride], pads=pads or [pad] * 4, group=group)

    def norm(self, x, channels):
        positive = self.constant((self.rng.random(channels) + 0.5).astype(np.float32))
        return self.op("BatchNormalization", x, self.weight(channels, scale=1.0), self.weight(channels, scale=0.1),
                       self.weight(channels, scale=0.1), positive)

    def linear(self, x, inputs, outputs, bias=True):
        y = self.op("MatMul", x, self.constant((self.rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)))
        return self.op("Add", y, self.weight(outputs, scale=0.1)) if bias else y

    def gelu(self, x):
        half = self.op("Mul", x, self.constant(np.float32(0.5)))
        erf = self.op("Erf", self.op("Div", x, self.constant(np.float32(np.sqrt(2)))))
        return self.op("Mul", half, self.op("Add", erf, self.constant(np.float32(1))))

    def layer_norm(self, x, width):
        return self.op("LayerNormalization", x, self.weight(width, scale=1.0), self.weight(width, scale=0.1), axis=-1)

    def attention(self, x, tokens, width, heads, mask=None):
        size = width // heads
        split = self.ints(1, tokens, heads, size)

        def head(perm):
            return self.op("Transpose", self.op("Reshape", self.linear(x, width, width), split), perm=perm)

        q, k, v = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
        scores = self.op("Div", self.op("MatMul", q, k), self.constant(np.float32(np.sqrt(size))))
        if mask:
            scores = self.op("Add", scores, mask)
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        y = self.op("Reshape", self.op("Transpose", y, perm=[0, 2, 1, 3]), self.ints(1, tokens, width))
        return self.linear(y, width, width)

    def model(self, *outputs, kind=TensorProto.FLOAT):
        def make(infos):
            graph = helper.make_graph(self.nodes, "net", self.inputs, infos, self.weights)
            return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

        # Output shapes as ONNX infers them.
        draft = shape_inference.infer_shapes(make([helper.make_tensor_value_info(o, kind, None) for o in outputs]), data_prop=True)
        return make(list(draft.graph.output))


def mlp():
    n = Net(1)
    x = n.op("Flatten", n.input("x", [1, 1, 12, 12]))
    x = n.op("Relu", n.op("Gemm", x, n.weight(40, 144), n.weight(40), transB=1))
    return n.model(n.op("Gemm", x, n.weight(10, 40), n.weight(10), transB=1))


def residual_cnn():
    n = Net(2)
    x = n.op("Relu", n.norm(n.conv(n.input("x", [1, 3, 45, 37]), 3, 32, 7, 2, bias=False), 32))
    x = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for channels, stride in ((32, 1), (64, 2)):
        y = n.op("Relu", n.norm(n.conv(x, 32, channels, 1, bias=False), channels))
        y = n.op("Relu", n.norm(n.conv(y, channels, channels, 3, stride, bias=False), channels))
        y = n.norm(n.conv(y, channels, channels, 1, bias=False), channels)
        shortcut = x if stride == 1 else n.norm(n.conv(x, 32, channels, 1, stride, bias=False), channels)
        x = n.op("Relu", n.op("Add", y, shortcut))
    x = n.op("Flatten", n.op("GlobalAveragePool", x))
    return n.model(n.op("Gemm", x, n.weight(17, 64), n.weight(17), transB=1))


def mobile_cnn():
    n = Net(3)
    low, high = n.constant(np.float32(0)), n.constant(np.float32(6))
    x = n.op("Clip", n.conv(n.input("x", [1, 3, 33, 33]), 3, 24, 3, 2), low, high)
    for size, stride in ((3, 1), (5, 2)):
        y = n.op("Clip", n.conv(x, 24, 72, 1), low, high)
        y = n.op("HardSwish", n.conv(y, 72, 72, size, stride, group=72))
        gate = n.op("Relu", n.conv(n.op("ReduceMean", y, axes=[2, 3], keepdims=1), 72, 20, 1))
        y = n.op("Mul", y, n.op("Sigmoid", n.conv(gate, 20, 72, 1)))
        y = n.conv(y, 72, 24, 1)
        x = n.op("Add", x, y) if stride == 1 else y
    return n.model(n.op("Softmax", n.op("Flatten", n.op("GlobalAveragePool", x)), axis=1))


def detector():
    """Heads of odd widths, moved to channels-last, reshaped and joined."""
    n = Net(4)
    x = n.op("LeakyRelu", n.conv(n.input("x", [1, 3, 30, 40]), 3, 16), alpha=0.1)
    boxes, scores = [], []
    for c, k in ((16, 32), (32, 48)):
        x = n.op("Relu", n.norm(n.conv(x, c, k, 3, 2), k))
        for out, width in ((boxes, 4), (scores, 2)):
            head = n.op("Transpose", n.conv(x, k, 3 * width, 3), perm=[0, 2, 3, 1])
            out.append(n.op("Reshape", head, n.ints(1, -1, width)))
    box = n.op("Concat", *boxes, axis=1)
    center = n.op("Slice", box, n.ints(0), n.ints(2), n.ints(2))
    size = n.op("Exp", n.op("Slice", box, n.ints(2), n.ints(4), n.ints(2)))
    return n.model(n.op("Concat", center, size, axis=2), n.op("Softmax", n.op("Concat", *scores, axis=1), axis=2))


def grouped_cnn():
    n = Net(5)
    x = n.op("Relu", n.conv(n.input("x", [2, 32, 14, 14]), 32, 64, 3, group=2))
    x = n.op("Concat", n.conv(x, 64, 32, 1), n.op("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), axis=1)
    x = n.op("Resize", x, "", n.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    x = n.op("ConvTranspose", x, n.weight(96, 12, 3, 3), n.weight(12), strides=[2, 2], pads=[1, 1, 1, 1])
    return n.model(n.op("PRelu", x, n.weight(12, 1, 1)))


def grouped_bottlenecks():
    """Convolutions in groups of few channels, in blocks with residuals; one with a stride, and more results than inputs."""
    n = Net(23)
    x = n.op("Relu", n.conv(n.input("x", [1, 3, 19, 17]), 3, 32, 3, 2))
    for stride, width, out in ((1, 64, 32), (2, 48, 40)):
        y = n.op("Relu", n.conv(x, 32, width, 1))
        y = n.op("Relu", n.conv(y, width, 2 * width, 3, stride, group=8))
        y = n.conv(y, 2 * width, out, 1)
        x = n.op("Relu", n.op("Add", x, y)) if stride == 1 else n.op("Relu", y)
    return n.model(n.op("GlobalAveragePool", x))


def diffusion_decoder():
    """Groups of channels and whole pictures normalised, as exporters write it, with what is elementwise behind them; resized in between."""
    n = Net(24)

    def group_norm(x, channels, groups, *sizes):
        x = n.op("Reshape", x, n.ints(0, groups, -1))
        x = n.op("InstanceNormalization", x, n.constant(np.ones(groups, np.float32)), n.constant(np.zeros(groups, np.float32)))
        x = n.op("Reshape", x, n.ints(1, channels, *sizes))
        x = n.op("Mul", x, n.constant((n.rng.random((channels, 1, 1)) + 0.5).astype(np.float32)))
        x = n.op("Add", x, n.weight(channels, 1, 1, scale=0.2))
        return n.op("Mul", x, n.op("Sigmoid", x))

    x = n.conv(n.input("x", [1, 3, 12, 16]), 3, 64)
    y = n.conv(group_norm(x, 64, 8, 12, 16), 64, 64)
    x = n.op("Add", x, n.conv(group_norm(y, 64, 8, 12, 16), 64, 64))
    x = n.conv(n.op("Resize", x, "", n.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest"), 64, 24)
    x = n.conv(group_norm(x, 24, 4, 24, 32), 24, 24)
    x = n.op("InstanceNormalization", x, n.weight(24, scale=1.0), n.weight(24, scale=0.1))
    return n.model(n.op("GlobalAveragePool", n.conv(n.op("Relu", x), 24, 16)))


def split_and_joined():
    """Parts of channels that go on by themselves, and all that came of them joined again; a connection past a stage of half the size."""
    n = Net(26)

    def silu(x):
        return n.op("Mul", x, n.op("Sigmoid", x))

    x = silu(n.conv(n.input("x", [1, 3, 26, 22]), 3, 32, 3, 2))
    parts = n.op("Split", x, n.ints(16, 16), outputs=2, axis=1)
    for _ in range(2):
        y = silu(n.conv(silu(n.conv(parts[-1], 16, 16)), 16, 16))
        parts.append(n.op("Add", parts[-1], y))
    x = silu(n.conv(n.op("Concat", *parts, axis=1), 64, 24, 1))
    y = n.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = n.op("Relu", n.conv(n.op("Concat", y, n.op("Relu", n.conv(x, 24, 40)), axis=1), 64, 16))
    return n.model(n.op("GlobalAveragePool", x))


def super_resolution():
    """Pixels from channels, behind an activation and behind a convolution itself."""
    n = Net(25)
    x = n.op("Relu", n.conv(n.input("x", [1, 3, 9, 7]), 3, 24))
    x = n.op("DepthToSpace", n.op("Relu", n.conv(x, 24, 64)), blocksize=2, mode="CRD")
    x = n.op("DepthToSpace", n.conv(x, 16, 27), blocksize=3, mode="CRD")
    return n.model(n.conv(x, 3, 3))


def volumes():
    """Volumes made smaller and larger again, with what they were beside them: windows of three dimensions, of all kinds of operators between them."""
    n = Net(31)

    def conv(x, c, k, size=3, stride=1, group=1):
        return n.op("Conv", x, n.weight(k, c // group, size, size, size), n.weight(k, scale=0.1), strides=[stride] * 3, pads=[size // 2] * 6, group=group)

    def up(x, c, k):
        return n.op("ConvTranspose", x, n.weight(c, k, 2, 2, 2), n.weight(k, scale=0.1), strides=[2, 2, 2])

    def norm(x, c, groups=None):
        if not groups:
            return n.op("Relu", n.op("InstanceNormalization", x, n.weight(c, scale=1.0), n.weight(c, scale=0.1)))
        y = n.op("InstanceNormalization", n.op("Reshape", x, n.ints(0, groups, -1)), n.constant(np.ones(groups, np.float32)),
                 n.constant(np.zeros(groups, np.float32)))
        y = n.op("Mul", n.op("Reshape", y, n.op("Shape", x)), n.weight(c, 1, 1, 1, scale=1.0))
        return n.op("Relu", n.op("Add", y, n.weight(c, 1, 1, 1, scale=0.1)))

    x = norm(conv(n.input("x", [1, 2, 6, 8, 12]), 2, 16), 16)
    y = norm(conv(n.op("MaxPool", x, kernel_shape=[2, 2, 2], strides=[2, 2, 2]), 16, 32), 32, 8)
    y = n.op("Add", y, n.op("LeakyRelu", conv(n.op("AveragePool", y, kernel_shape=[3, 3, 3], pads=[1] * 6), 32, 32)))
    part = n.op("Split", y, n.ints(16, 16), outputs=2, axis=1)[1]
    y = n.op("Relu", conv(n.op("Concat", y, conv(part, 16, 16, group=16), axis=1), 48, 32))
    y = n.op("Mul", y, n.op("Sigmoid", conv(n.op("GlobalAveragePool", y), 32, 32, 1)))
    y = n.op("Resize", conv(y, 32, 24), "", n.constant(np.array([1, 1, 1, 1, 1], np.float32)), mode="nearest")
    y = norm(conv(n.op("Concat", up(y, 24, 16), x, axis=1), 32, 16), 16)
    return n.model(n.op("ReduceMean", conv(y, 16, 16), axes=[2, 3, 4], keepdims=1), conv(y, 16, 3, 1))


def partial_functions():
    """Functions that are infinite or undefined at 0, between convolutions whose channels do not fill a vector."""
    n = Net(13)
    x = n.op("Abs", n.conv(n.input("x", [1, 3, 12, 12]), 3, 20, bias=False))
    shift = n.constant((n.rng.random((20, 1, 1)) + 0.5).astype(np.float32))
    x = n.conv(n.op("Reciprocal", n.op("Add", x, shift)), 20, 20)
    x = n.conv(n.op("Log", n.op("Add", n.op("Abs", x), shift)), 20, 20)
    return n.model(n.conv(n.op("Div", x, shift), 20, 5))


def winograd_cnn():
    """3x3 convolutions that go by Winograd's algorithm: images that tiles do not fill, channels that vectors do not, two images."""
    n = Net(14)
    x = n.op("Relu", n.conv(n.input("x", [2, 3, 46, 35]), 3, 40))
    y = n.op("Relu", n.norm(n.conv(x, 40, 40, bias=False), 40))
    x = n.op("Relu", n.op("Add", n.norm(n.conv(y, 40, 40, bias=False), 40), x))
    y = n.op("MaxPool", n.conv(x, 40, 72, pads=[0, 1, 2, 1]), kernel_shape=[2, 2], strides=[2, 2])
    x = n.op("Add", n.conv(y, 72, 72), n.conv(y, 72, 72, pads=[1, 1, 1, 1], bias=False))
    x = n.op("Concat", n.conv(n.op("Sigmoid", x), 72, 16), n.conv(x, 72, 16, 1), axis=1)
    return n.model(n.conv(x, 32, 20, pads=[0, 0, 0, 0]))


def wide_cnn():
    """3x3 convolutions that have enough channels for Winograd's algorithm on GPUs, too."""
    n = Net(16)
    x = n.op("Relu", n.conv(n.input("x", [2, 8, 15, 21]), 8, 160))
    y = n.op("Relu", n.conv(x, 160, 160))
    x = n.op("Relu", n.op("Add", n.conv(y, 160, 160, bias=False), x))
    return n.model(n.conv(n.conv(x, 160, 161, pads=[0, 1, 1, 0]), 161, 20, 1))


def convnext_block():
    n = Net(6)
    x = n.conv(n.input("x", [1, 3, 32, 32]), 3, 48, 4, 4, pads=[0, 0, 0, 0])
    y = n.op("Transpose", n.conv(x, 48, 48, 7, group=48), perm=[0, 2, 3, 1])
    y = n.linear(n.gelu(n.linear(n.layer_norm(y, 48), 48, 192)), 192, 48)
    y = n.op("Mul", n.op("Transpose", y, perm=[0, 3, 1, 2]), n.weight(48, 1, 1, scale=0.5))
    return n.model(n.op("Add", x, y))


def encoder():
    n = Net(7)
    ids = n.input("ids", [1, 19], TensorProto.INT64)
    mask = n.op("Cast", n.input("mask", [1, 19], TensorProto.INT64), to=TensorProto.FLOAT)
    bias = n.op("Mul", n.op("Sub", n.constant(np.float32(1)), mask), n.constant(np.float32(-1e4)))
    bias = n.op("Unsqueeze", bias, n.ints(1, 2))
    x = n.layer_norm(n.op("Add", n.op("Gather", n.weight(100, 64, scale=1.0), ids), n.weight(19, 64)), 64)
    for _ in range(2):
        x = n.layer_norm(n.op("Add", x, n.attention(x, 19, 64, 4, bias)), 64)
        x = n.layer_norm(n.op("Add", x, n.linear(n.gelu(n.linear(x, 64, 256)), 256, 64)), 64)
    return n.model(x)


def decoder(dtype=np.float32):
    n = Net(8, dtype)
    ids = n.input("ids", [1, 13], TensorProto.INT64)
    table = n.weight(101, 48, scale=1.0)
    x = n.op("Add", n.op("Gather", table, ids), n.weight(13, 48))
    causal = n.constant(np.triu(np.full((13, 13), max(-1e9, float(np.finfo(dtype).min)), np.float32), 1))
    x = n.op("Add", x, n.attention(n.layer_norm(x, 48), 13, 48, 3, causal))
    y = n.linear(n.layer_norm(x, 48), 48, 192)
    cube = n.op("Mul", n.op("Pow", y, n.constant(np.float32(3))), n.constant(np.float32(0.044715)))
    inner = n.op("Tanh", n.op("Mul", n.op("Add", y, cube), n.constant(np.float32(np.sqrt(2 / np.pi)))))
    y = n.op("Mul", n.op("Mul", y, n.constant(np.float32(0.5))), n.op("Add", inner, n.constant(np.float32(1))))
    x = n.layer_norm(n.op("Add", x, n.linear(y, 192, 48)), 48)
    return n.model(n.op("MatMul", x, n.op("Transpose", table, perm=[1, 0])), kind=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def half_step():
    """A step of a decoder of f16: keys and values of the tokens before come in and go out, the softmax is in f32."""
    n = Net(33, np.float16)
    x = n.op("Gather", n.weight(101, 48, scale=1.0), n.input("ids", [1, 1], TensorProto.INT64))
    y = n.layer_norm(x, 48)

    def head():
        return n.op("Transpose", n.op("Reshape", n.linear(y, 48, 48), n.ints(1, 1, 3, 16)), perm=[0, 2, 1, 3])

    k, v = (n.op("Concat", n.input(past, [1, 3, 12, 16], TensorProto.FLOAT16), head(), axis=2) for past in ("keys", "values"))
    scores = n.op("Div", n.op("MatMul", head(), n.op("Transpose", k, perm=[0, 1, 3, 2])), n.constant(np.float32(4)))
    unused = n.op("Less", n.constant(np.arange(13)), n.constant(np.int64(3)))
    scores = n.op("Add", scores, n.op("Where", unused, n.constant(np.float32(-65504)), n.constant(np.float32(0))))
    shares = n.op("Softmax", n.op("Cast", scores, to=TensorProto.FLOAT), axis=-1)
    y = n.op("MatMul", n.op("Cast", shares, to=TensorProto.FLOAT16), v)
    x = n.op("Add", x, n.linear(n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1, 3]), n.ints(1, 1, 48)), 48, 48))
    x = n.op("Add", x, n.linear(n.gelu(n.linear(n.layer_norm(x, 48), 48, 192)), 192, 48))
    return n.model(n.linear(x, 48, 101), k, v, kind=TensorProto.FLOAT16)


def attention_forms(width=16, tokens=11):
    """Attention as different exporters write it, odd lengths throughout. width: of three heads."""
    n = Net(13)
    all_heads = 3 * width
    x, memory = n.input("x", [1, tokens, all_heads]), n.input("memory", [1, 7, all_heads])
    heads = lambda y, length, count: n.op("Transpose", n.op("Reshape", y, n.ints(1, length, count, width)), perm=[0, 2, 1, 3])
    merged = lambda y: n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1, 3]), n.ints(1, tokens, all_heads))
    keys = lambda y: n.op("Transpose", y, perm=[0, 1, 3, 2])
    linear = lambda y, columns=all_heads: n.linear(y, all_heads, columns)
    factor = n.constant(np.float32(width ** -0.5))
    # Parts of one projection; queries scaled, a causal mask that selects.
    q, k, v = (heads(y, tokens, 3) for y in n.op("Split", linear(x, 3 * all_heads), n.ints(*[all_heads] * 3), outputs=3, axis=2))
    causal = n.constant(np.tril(np.ones((1, 1, tokens, tokens), bool)))
    scores = n.op("Where", causal, n.op("MatMul", n.op("Mul", q, factor), keys(k)), n.constant(np.float32(-1e9)))
    x = n.op("Add", x, linear(merged(n.op("MatMul", n.op("Softmax", scores, axis=3), v))))
    # Over another sequence; no mask, scores scaled.
    q, k, v = heads(linear(x), tokens, 3), heads(linear(memory), 7, 3), heads(linear(memory), 7, 3)
    scores = n.op("Mul", factor, n.op("MatMul", q, keys(k)))
    x = n.op("Add", x, linear(merged(n.op("MatMul", n.op("Softmax", scores, axis=-1), v))))
    # One head of keys and values for all queries; a bias for each head and pair, then positions dropped.
    q, k, v = heads(linear(x), tokens, 3), heads(linear(x, width), tokens, 1), heads(linear(x, width), tokens, 1)
    scores = n.op("Add", n.op("MatMul", q, keys(k)), n.weight(3, tokens, tokens, scale=1.0))
    scores = n.op("Where", n.constant(np.arange(tokens) > tokens - 3), n.constant(np.float32(-1e4)), scores)
    return n.model(n.op("Add", x, merged(n.op("MatMul", n.op("Softmax", scores, axis=-1), v))))


def tagger(kind="LSTM", gates=4, dtype=np.float32):
    n = Net(9, dtype)
    x = n.op("Gather", n.weight(50, 24, scale=1.0), n.input("ids", [11, 2], TensorProto.INT64))
    for width in (24, 40):
        x = n.op(kind, x, n.weight(2, gates * 20, width), n.weight(2, gates * 20, 20), n.weight(2, 2 * gates * 20),
                 outputs=1, hidden_size=20, direction="bidirectional")
        x = n.op("Reshape", n.op("Transpose", x, perm=[0, 2, 1, 3]), n.ints(0, 0, -1))
    return n.model(n.linear(x, 40, 7), kind=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def half_cnn():
    n = Net(10)
    x = n.input("x", [1, 3, 20, 20], TensorProto.FLOAT16)
    for c, k in ((3, 16), (16, 24)):
        x = n.op("Relu", n.op("Conv", x, n.weight(k, c, 3, 3, dtype=np.float16), n.weight(k, dtype=np.float16), pads=[1] * 4))
    x = n.op("Softmax", n.op("Flatten", n.op("GlobalAveragePool", x)), axis=1)
    return n.model(x, kind=TensorProto.FLOAT16)


def quantized():
    n = Net(11)
    scale, zero = n.constant(np.float32(0.05)), n.constant(np.uint8(128))

    def fake_quantize(x):
        return n.op("DequantizeLinear", n.op("QuantizeLinear", x, scale, zero), scale, zero)

    def weight(k, c, size):
        q = n.constant(n.rng.integers(-127, 128, (k, c, size, size)).astype(np.int8))
        return n.op("DequantizeLinear", q, n.constant((n.rng.random(k) * 2e-3 + 1e-3).astype(np.float32)),
                    n.constant(np.zeros(k, np.int8)), axis=0)

    x = fake_quantize(n.input("x", [1, 8, 16, 16]))
    for c, k in ((8, 24), (24, 16)):
        x = fake_quantize(n.op("Relu", n.op("Conv", x, weight(k, c, 3), n.weight(k, scale=0.1), pads=[1] * 4)))
    return n.model(x)


def quantized_products():
    """Signed and unsigned activations with zero points, weights by column and by tensor, products of integers."""
    n = Net(18)

    def fake_quantize(x, zero):
        parameters = n.constant(np.float32(0.05)), n.constant(zero)
        return n.op("DequantizeLinear", n.op("QuantizeLinear", x, *parameters), *parameters)

    def weight(k, columns, axis, dtype=np.int8):
        low, zero = (-128, 0) if dtype == np.int8 else (0, 128)
        shape = (k, columns) if axis == 1 else (columns, k)
        q = n.constant((n.rng.integers(low, low + 256, shape)).astype(dtype))
        scale = (n.rng.random(columns) * 1e-3 + 5e-4).astype(np.float32)
        return n.op("DequantizeLinear", q, n.constant(scale), n.constant(np.full(columns, zero, dtype)), axis=axis)

    x = fake_quantize(n.input("x", [2, 11, 36]), np.int8(-10))
    x = n.op("Relu", n.op("Add", n.op("MatMul", x, weight(36, 64, 1)), n.weight(64, scale=0.5)))
    x = fake_quantize(x, np.int8(-100))
    x = fake_quantize(n.op("MatMul", x, weight(64, 50, 1, np.uint8)), np.uint8(120))
    x = n.op("Reshape", x, n.ints(22, 50))
    x = fake_quantize(n.op("Gemm", x, weight(50, 32, 0), n.weight(32, scale=0.5), transB=1), np.uint8(130))
    q, scale, zero = n.op("DynamicQuantizeLinear", x, outputs=3)
    integers = n.constant(n.rng.integers(0, 256, (32, 40)).astype(np.uint8))
    sums = n.op("MatMulInteger", q, integers, zero, n.constant(np.uint8(117)))
    return n.model(x, n.op("Mul", n.op("Cast", sums, to=TensorProto.FLOAT), n.op("Mul", scale, n.constant(np.float32(1e-3)))))


def quantized_from_range():
    """Weights in unsigned bytes whose zero points lie where their ranges put them, by tensor and by channel."""
    n = Net(23)

    def fake_quantize(x, zero):
        parameters = n.constant(np.float32(0.05)), n.constant(zero)
        return n.op("DequantizeLinear", n.op("QuantizeLinear", x, *parameters), *parameters)

    def weight(zero, axis, *shape):
        q = n.constant(n.rng.integers(0, 256, shape).astype(np.uint8))
        scale = np.full(zero.shape, 1e-3, np.float32) if zero.ndim == 0 else (n.rng.random(zero.size) * 1e-3 + 5e-4).astype(np.float32)
        return n.op("DequantizeLinear", q, n.constant(scale), n.constant(zero), axis=axis)

    by_channel = n.rng.integers(90, 170, 48).astype(np.uint8)
    x = fake_quantize(n.input("x", [1, 8, 12, 12]), np.uint8(120))
    x = n.op("Conv", x, weight(np.uint8(117), 0, 32, 8, 3, 3), n.weight(32, scale=0.1), pads=[1] * 4, strides=[2, 2])
    x = fake_quantize(n.op("Relu", x), np.uint8(0))
    x = fake_quantize(n.op("Conv", x, weight(by_channel[:32], 0, 32, 1, 3, 3), group=32, pads=[1] * 4), np.uint8(100))
    x = fake_quantize(n.op("Conv", x, weight(by_channel, 0, 48, 32, 1, 1)), np.int8(-4))
    x = n.op("Reshape", n.op("Transpose", x, perm=[0, 2, 3, 1]), n.ints(36, 48))
    x = fake_quantize(n.op("MatMul", x, weight(by_channel, 1, 48, 48)), np.uint8(110))
    return n.model(n.op("Gemm", x, weight(np.uint8(140), 0, 32, 48), n.weight(32, scale=0.5), transB=1))


def shape_chain():
    """Shapes computed by the model itself, as exporters write them."""
    n = Net(12)
    x = n.conv(n.input("x", [2, 4, 9, 7]), 4, 6)
    dims = n.op("Shape", x)
    batch = n.op("Unsqueeze", n.op("Gather", dims, n.constant(np.int64(0))), n.ints(0))
    x = n.op("Reshape", x, n.op("Concat", batch, n.ints(2, -1), axis=0))
    part = n.op("Split", x, n.ints(1, 1), outputs=2, axis=1)
    y = n.op("Where", n.op("Greater", part[0], part[1]), part[0], n.op("Mul", part[1], n.constant(np.float32(0.1))))
    y = n.op("Pad", y, n.ints(0, 0, 1, 0, 0, 2), mode="reflect")
    return n.model(n.op("ReduceMax", n.op("Squeeze", y, n.ints(1)), axes=[1], keepdims=0), y)


def many_parts():
    """Nodes of more operands and results than one kernel takes: their own, and what iterations of a loop have made."""
    n = Net(26)
    x = n.input("x", [600, 3])
    even = n.op("Split", x, outputs=600)
    parts = [n.op("Softmax", part, axis=1) if i % 3 else part for i, part in enumerate(even)]
    results = [n.op("Concat", *parts, axis=-1)] + [n.op(kind, *parts) for kind in ("Sum", "Mean", "Max", "Min")]
    uneven = n.op("Split", n.op("Concat", *parts, axis=0), n.ints(*[2, 0, 1, 3] * 100), axis=0, outputs=400)
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Sin", ["v"], ["w"]), helper.make_node("Neg", ["v"], ["s"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("c", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3]),
         helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 3])])
    _, stacked = n.op("Loop", n.constant(np.int64(200)), "", uneven[0], outputs=2, body=body)
    return n.model(*results, n.op("Concat", *uneven[::-1], axis=0), stacked)


MODELS = {
    "mlp": mlp,
    "residual_cnn": residual_cnn,
    "mobile_cnn": mobile_cnn,
    "detector": detector,
    "grouped_cnn": grouped_cnn,
    "grouped_bottlenecks": grouped_bottlenecks,
    "diffusion_decoder": diffusion_decoder,
    "super_resolution": super_resolution,
    "split_and_joined": split_and_joined,
    "volumes": volumes,
    "partial_functions": partial_functions,
    "winograd_cnn": winograd_cnn,
    "convnext_block": convnext_block,
    "encoder": encoder,
    "decoder": decoder,
    "attention_forms": attention_forms,
    "wide_attention": lambda: attention_forms(36, 19),
    "lstm_tagger": tagger,
    "gru_tagger": lambda: tagger("GRU", 3),
    "half_cnn": half_cnn,
    "half_decoder": lambda: decoder(np.float16),
    "half_step": half_step,
    "half_tagger": lambda: tagger(dtype=np.float16),
    "quantized": quantized,
    "quantized_products": quantized_products,
    "quantized_from_range": quantized_from_range,
    "shape_chain": shape_chain,
    "wide_cnn": wide_cnn,
    "many_parts": many_parts,
}


def build(name):
    return MODELS[name]()
