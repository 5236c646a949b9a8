"""A case of an operator: the model of one node, its inputs, and what must come out."""

import dataclasses

import numpy as np
import onnx
from onnx import helper, numpy_helper

DOMAIN = "com.microsoft"


@dataclasses.dataclass
class Fixed:
    """An input whose value is in the model."""

    value: np.ndarray


@dataclasses.dataclass
class Case:
    name: str
    op: str
    inputs: list  # arrays, Fixed arrays, and None for those that are left out
    outputs: list  # arrays, and None for those that nobody asks for
    attributes: dict
    domain: str = DOMAIN
    opset: int = 17
    rtol: float = 1e-4
    atol: float = 1e-5
    dims: list | None = None  # of each input what its dimensions are called, None for those that are numbers; then outputs have no declared shapes
    more: list = dataclasses.field(default_factory=list)  # (inputs, outputs) of further runs of the same model

    @staticmethod
    def by_name(inputs, outputs):
        given = {f"x{i}": np.asarray(value) for i, value in enumerate(inputs) if value is not None and not isinstance(value, Fixed)}
        return given, {f"y{i}": np.asarray(value) for i, value in enumerate(outputs) if value is not None}

    def model(self):
        """The model, its inputs and its outputs by name."""
        inputs, outputs = self.by_name(self.inputs, self.outputs)
        names = ["" if value is None else f"x{i}" for i, value in enumerate(self.inputs)]
        fixed = [numpy_helper.from_array(np.asarray(value.value), name) for name, value in zip(names, self.inputs) if isinstance(value, Fixed)]
        results = ["" if value is None else f"y{i}" for i, value in enumerate(self.outputs)]
        node = helper.make_node(self.op, names, results, name="node", domain=self.domain, **self.attributes)

        def shape(name, array):
            if self.dims is None:
                return array.shape
            return [called or size for called, size in zip(self.dims[names.index(name)], array.shape)] if name in names else None

        def infos(arrays):
            return [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), shape(n, a)) for n, a in arrays.items()]

        graph = helper.make_graph([node], "g", infos(inputs), infos(outputs), fixed)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8), inputs, outputs


class Cases:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.all = []

    def add(self, op, variant, inputs, outputs, rtol=1e-4, atol=1e-5, domain=DOMAIN, opset=17, dims=None, more=(), **attributes):
        outputs = outputs if isinstance(outputs, list) else [outputs]
        self.all.append(Case(f"{op}-{variant}", op, inputs, outputs, attributes, domain, opset, rtol, atol, dims, list(more)))

    # ---- Tensors ----

    def real(self, *shape, low=-1.0, high=1.0):
        return self.rng.uniform(low, high, shape).astype(np.float32)

    def bytes(self, dtype, *shape):
        limits = np.iinfo(dtype)
        return self.rng.integers(limits.min, limits.max + 1, shape).astype(dtype)

    def integers(self, low, high, *shape, dtype=np.int32):
        return self.rng.integers(low, high, shape).astype(dtype)


# ---- Quantisation ----


def f32(value):
    return np.asarray(value, np.float32)


def dequantized(x, scale, zero=0, axis=None):
    """(x - zero) * scale; of each line along an axis by itself where that is given."""
    scale, zero = np.asarray(scale, np.float64), np.asarray(zero, np.float64)
    if axis is not None:
        line = [1] * x.ndim
        line[axis] = -1
        scale, zero = scale.reshape(line), zero.reshape(line) if zero.size > 1 else zero
    return (x.astype(np.float64) - zero) * scale


def quantized(y, scale, zero, dtype):
    """Rounded to even, saturated. What is all but a tie would be for float32 to decide: no case has it."""
    steps = np.asarray(y, np.float64) / np.float64(scale)
    to_tie = np.abs(np.abs(steps - np.floor(steps)) - 0.5)
    limits = np.iinfo(dtype)
    inside = (steps + float(zero) > limits.min - 1) & (steps + float(zero) < limits.max + 1)
    assert not ((to_tie > 1e-12) & (to_tie < 2e-5) & inside).any(), "the case lies too close to a tie: take other numbers"
    return np.clip(np.rint(steps) + float(zero), limits.min, limits.max).astype(dtype)


def dynamic(x):
    """DynamicQuantizeLinear: bytes, scale, zero point."""
    low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
    scale = np.float32((np.float32(high) - np.float32(low)) / np.float32(255))
    zero = np.uint8(np.clip(np.rint(-np.float32(low) / scale), 0, 255))
    return np.clip(np.rint(x / scale) + float(zero), 0, 255).astype(np.uint8), scale, zero


# ---- Functions ----


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def softmax(x, axis=-1):
    x = np.asarray(x, np.float64)
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)
