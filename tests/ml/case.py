"""A case of an operator of ai.onnx.ml: one node, its inputs, and what onnxruntime makes of them, or numpy where that is said."""

import dataclasses

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

DOMAIN = "ai.onnx.ml"


@dataclasses.dataclass
class Case:
    name: str
    model: object
    inputs: dict
    outputs: dict
    rtol: float = 1e-4
    atol: float = 1e-5


def model_of(op, inputs, attributes, outputs, domain, opset):
    """outputs: ONNX's element types."""
    results = [f"y{i}" for i in range(len(outputs))]
    node = helper.make_node(op, list(inputs), results, name="node", domain=domain, **attributes)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info(n, t, None) for n, t in zip(results, outputs)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), *([helper.make_opsetid(domain, opset)] if domain else [])], ir_version=8)


class Cases:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.all = []
        onnxruntime.set_default_logger_severity(3)

    def add(self, op, variant, inputs, outputs=(TensorProto.FLOAT,), opset=3, want=None, rtol=1e-4, atol=1e-5, domain=DOMAIN, **attributes):
        """want: the results, where onnxruntime does not say them."""
        inputs = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs)}
        model = model_of(op, inputs, attributes, outputs, domain, opset)
        if want is None:
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            want = session.run(None, inputs)
        want = {f"y{i}": np.asarray(value) for i, value in enumerate(want)}
        self.all.append(Case(f"{op}-{variant}", model, inputs, want, rtol, atol))

    def real(self, *shape, low=-1.0, high=1.0, dtype=np.float32):
        return self.rng.uniform(low, high, shape).astype(dtype)

    def floats(self, count, low=-1.0, high=1.0):
        """As an attribute."""
        return [float(np.float32(v)) for v in self.rng.uniform(low, high, count)]


def tensor(name, values):
    return numpy_helper.from_array(np.asarray(values), name)
