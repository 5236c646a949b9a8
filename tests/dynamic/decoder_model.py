"""A decoder as onnxruntime's model builder writes it, with open sizes and drawn weights: layers of grouped attention and products whose
weights have few bits. Inputs ids [B, S], mask [B, T], past.I.key and .value [B, shared, P, size]; outputs logits, present.I.key and .value."""

import dataclasses

import numpy as np
from onnx import TensorProto, helper, numpy_helper


@dataclasses.dataclass
class Sizes:
    words: int = 90
    width: int = 64
    inner: int = 96
    heads: int = 4
    shared: int = 2  # of keys and values
    size: int = 16  # of a head
    layers: int = 2
    most: int = 128  # positions
    block: int = 32  # of weights with a scale in common
    bits: int = 4  # of weights; 0: they are real numbers
    level: int = 0  # of accuracy that products may have

    def presents(self):
        return [f"present.{i}.{part}" for i in range(self.layers) for part in ("key", "value")]

    def pasts(self):
        return [name.replace("present", "past") for name in self.presents()]


class Maker:
    def __init__(self, element=TensorProto.FLOAT, sizes=Sizes()):
        self.sizes = sizes
        self.random = np.random.default_rng(3)
        self.element, self.dtype = element, helper.tensor_dtype_to_np_dtype(element)
        self.nodes, self.weights = [], []

    def constant(self, name, value):
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op, inputs, outputs, domain="", **attributes):
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"{op}_{len(self.nodes)}", domain=domain, **attributes))
        return outputs[0]

    def contrib(self, op, inputs, outputs, **attributes):
        return self.node(op, inputs, outputs, "com.microsoft", **attributes)

    def real(self, name, *shape, low=-0.5, high=0.5):
        return self.constant(name, self.random.uniform(low, high, shape).astype(self.dtype))

    def product(self, x, name, columns, rows):
        """Of numbers around nothing, smaller where there are more of them."""
        s = self.sizes
        if s.bits == 0:
            return self.node("MatMul", [x, self.real(f"{name}.w", rows, columns, low=-0.2 * (64 / rows) ** 0.5, high=0.2 * (64 / rows) ** 0.5)], name)
        blocks, scale = rows // s.block, (64 / rows) ** 0.5 * 2.0 ** (4 - s.bits)
        packed = self.constant(f"{name}.q", self.random.integers(0, 256, (columns, blocks, s.block * s.bits // 8), dtype=np.uint8))
        scales = self.real(f"{name}.scales", columns, blocks, low=0.01 * scale, high=0.04 * scale)
        level = {"accuracy_level": s.level} if s.level else {}
        return self.contrib("MatMulNBits", [x, packed, scales], name, K=rows, N=columns, bits=s.bits, block_size=s.block, **level)

    def model(self):
        s = self.sizes
        one = self.constant("one", np.array([1], np.int64))
        self.node("ReduceSum", ["mask", one], "counts", keepdims=1)
        self.node("Cast", [self.node("Sub", ["counts", one], "counts_1")], "lengths", to=TensorProto.INT32)
        self.node("Gather", [self.node("Shape", ["mask"], "mask_shape"), self.constant("at", np.int64(1))], "total_64", axis=0)
        self.node("Cast", ["total_64"], "total", to=TensorProto.INT32)
        angles = np.outer(np.arange(s.most), 100.0 ** (-np.arange(s.size // 2) / (s.size // 2)))
        tables = [self.constant("cos", np.cos(angles).astype(self.dtype)), self.constant("sin", np.sin(angles).astype(self.dtype))]
        x = self.node("Gather", [self.real("words", s.words, s.width), "ids"], "embedded")
        normal = self.node("SimplifiedLayerNormalization", [x, self.real("norm", s.width, low=0.5, high=1.5)], "first_norm", axis=-1, epsilon=1e-5)
        for i in range(s.layers):
            y = self.mixed(i, normal, tables)
            normal, x = self.added(self.product(y, f"{i}.o", s.width, s.heads * s.size), x, f"{i}.behind_attention")
            gate, up = (self.product(normal, f"{i}.{name}", s.inner, s.width) for name in ("gate", "up"))
            gate = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{i}.sigmoid")], f"{i}.silu")
            y = self.product(self.node("Mul", [gate, up], f"{i}.inner"), f"{i}.down", s.width, s.inner)
            normal, x = self.added(y, x, f"{i}.behind")
        self.product(normal, "logits", s.words, s.width)

        def info(name, element, shape):
            return helper.make_tensor_value_info(name, element, shape)

        states = [state for i in range(s.layers) for state in self.states(i)]
        pasts = [info(f"past.{name}", self.element, shape) for name, shape in states]
        presents = [info(f"present.{name}", self.element, ["present_length" if d == "P" else d for d in shape]) for name, shape in states]
        inputs = [info("ids", TensorProto.INT64, ["B", "S"]), info("mask", TensorProto.INT64, ["B", "T"]), *pasts]
        graph = helper.make_graph(self.nodes, "decoder", inputs, [info("logits", self.element, ["B", "S", s.words]), *presents], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)

    # ---- What a layer makes of rows and of what is remembered, and what that is ----

    def mixed(self, i, x, tables, **more):
        s = self.sizes
        qkv = self.product(x, f"{i}.qkv", (s.heads + 2 * s.shared) * s.size, s.width)
        return self.contrib("GroupQueryAttention", [qkv, "", "", f"past.{i}.key", f"past.{i}.value", "lengths", "total", *tables],
                            [f"{i}.attention", f"present.{i}.key", f"present.{i}.value"], num_heads=s.heads, kv_num_heads=s.shared, do_rotary=1, **more)

    def states(self, i):
        return [(f"{i}.{part}", ["B", self.sizes.shared, "P", self.sizes.size]) for part in ("key", "value")]

    def added(self, x, skip, name):
        """The sum normalised, and the sum."""
        outputs = [name, "", "", f"{name}.sum"]
        self.contrib("SkipSimplifiedLayerNormalization", [x, skip, self.real(f"{name}.norm", self.sizes.width, low=0.5, high=1.5)], outputs, epsilon=1e-5)
        return outputs[0], outputs[3]


class Hybrid(Maker):
    """Layers in turns: linear attention with a state of one size behind a convolution along time, and attention that remembers a window
    (dimension C) alone."""

    WINDOW, TAPS = 6, 4

    def is_linear(self, i):
        return i % 2 == 0

    def mixed(self, i, x, tables, **more):
        if not self.is_linear(i):
            return super().mixed(i, x, tables, local_window_size=self.WINDOW, sliding_window_cache=1, **more)
        s = self.sizes
        columns = s.heads * s.size
        rows = self.product(x, f"{i}.qkv", 3 * columns, s.width)
        rows = self.node("Transpose", [rows], f"{i}.channels", perm=[0, 2, 1])
        taps = self.real(f"{i}.taps", 3 * columns, 1, self.TAPS)
        rows = self.contrib("CausalConvWithState", [rows, taps, "", f"past.{i}.conv"], [f"{i}.conv", f"present.{i}.conv"], activation="silu")
        rows = self.node("Transpose", [rows], f"{i}.rows", perm=[0, 2, 1])
        parts = [f"{i}.{part}" for part in "qkv"]
        self.node("Split", [rows], parts, axis=2, num_outputs=3)
        a, b = (self.product(x, f"{i}.{name}", s.heads, s.width) for name in ("a", "b"))
        gates = [f"{i}.decay", f"{i}.beta"]
        self.contrib("LinearAttentionGate", [a, self.real(f"{i}.bias", s.heads), self.real(f"{i}.kept", s.heads, low=-1, high=-0.1), b], gates)
        y = self.contrib("LinearAttention", [*parts, f"past.{i}.state", *gates], [f"{i}.read", f"present.{i}.state"], q_num_heads=s.heads,
                         kv_num_heads=s.heads, update_rule="gated_delta")
        gate = self.product(x, f"{i}.gate_of_read", columns, s.width)
        return self.contrib("GatedRMSNorm", [y, self.real(f"{i}.read_norm", s.size, low=0.5, high=1.5), gate], f"{i}.gated")

    def states(self, i):
        s = self.sizes
        if self.is_linear(i):
            return [(f"{i}.conv", ["B", 3 * s.heads * s.size, self.TAPS - 1]), (f"{i}.state", ["B", s.heads, s.size, s.size])]
        return [(f"{i}.{part}", ["B", s.shared, "C", s.size]) for part in ("key", "value")]
