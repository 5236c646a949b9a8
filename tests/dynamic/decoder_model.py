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
            qkv = self.product(normal, f"{i}.qkv", (s.heads + 2 * s.shared) * s.size, s.width)
            y = self.contrib("GroupQueryAttention", [qkv, "", "", f"past.{i}.key", f"past.{i}.value", "lengths", "total", *tables],
                             [f"{i}.attention", f"present.{i}.key", f"present.{i}.value"], num_heads=s.heads, kv_num_heads=s.shared, do_rotary=1)
            normal, x = self.added(self.product(y, f"{i}.o", s.width, s.heads * s.size), x, f"{i}.behind_attention")
            gate, up = (self.product(normal, f"{i}.{name}", s.inner, s.width) for name in ("gate", "up"))
            gate = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{i}.sigmoid")], f"{i}.silu")
            y = self.product(self.node("Mul", [gate, up], f"{i}.inner"), f"{i}.down", s.width, s.inner)
            normal, x = self.added(y, x, f"{i}.behind")
        self.product(normal, "logits", s.words, s.width)

        def info(name, element, shape):
            return helper.make_tensor_value_info(name, element, shape)

        pasts = [info(f"past.{i}.{part}", self.element, ["B", s.shared, "P", s.size]) for i in range(s.layers) for part in ("key", "value")]
        presents = [info(name, self.element, ["B", s.shared, "present_length", s.size]) for name in s.presents()]
        inputs = [info("ids", TensorProto.INT64, ["B", "S"]), info("mask", TensorProto.INT64, ["B", "T"]), *pasts]
        graph = helper.make_graph(self.nodes, "decoder", inputs, [info("logits", self.element, ["B", "S", s.words]), *presents], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)

    def added(self, x, skip, name):
        """The sum normalised, and the sum."""
        outputs = [name, "", "", f"{name}.sum"]
        self.contrib("SkipSimplifiedLayerNormalization", [x, skip, self.real(f"{name}.norm", self.sizes.width, low=0.5, high=1.5)], outputs, epsilon=1e-5)
        return outputs[0], outputs[3]
