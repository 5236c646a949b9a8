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

    def has_strings(self):
        return any(a.dtype == object for a in (*self.inputs.values(), *self.outputs.values()))


def array_of(values):
    """Strings as objects, which have any length."""
    array = np.asarray(values)
    return array.astype(object) if array.dtype.kind in "US" else array


def element_of(array):
    return TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def model_of(op, inputs, attributes, outputs, domain, opset):
    """outputs: ONNX's element types."""
    results = [f"y{i}" for i in range(len(outputs))]
    node = helper.make_node(op, list(inputs), results, name="node", domain=domain, **attributes)
    infos = [helper.make_tensor_value_info(n, element_of(a), a.shape) for n, a in inputs.items()]
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info(n, t, None) for n, t in zip(results, outputs)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), *([helper.make_opsetid(domain, opset)] if domain else [])], ir_version=8)


def run(model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


class Cases:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.all = []
        onnxruntime.set_default_logger_severity(3)

    def add(self, op, variant, inputs, outputs=(TensorProto.FLOAT,), opset=3, want=None, rtol=1e-4, atol=1e-5, domain=DOMAIN, **attributes):
        """want: the results, where onnxruntime does not say them."""
        inputs = {f"x{i}": array_of(x) for i, x in enumerate(inputs)}
        model = model_of(op, inputs, attributes, outputs, domain, opset)
        if want is None:
            want = run(model, inputs)
        want = {f"y{i}": array_of(value) for i, value in enumerate(want)}
        self.all.append(Case(f"{op}-{variant}", model, inputs, want, rtol, atol))

    def maps(self, variant, x, open_rows=False, **attributes):
        """ZipMap: rows of scores in the order of the keys."""
        model = model_of("ZipMap", {"x0": x}, attributes, (TensorProto.FLOAT,), DOMAIN, 1)
        if open_rows:
            model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
        keys = attributes.get("classlabels_strings") or attributes["classlabels_int64s"]
        key_type = TensorProto.STRING if "classlabels_strings" in attributes else TensorProto.INT64
        value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
        model.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(helper.make_map_type_proto(key_type, value)))
        (got,) = run(model, {"x0": x})
        want = np.array([[row[key] for key in keys] for row in got], np.float32)
        self.all.append(Case(f"ZipMap-{variant}", model, {"x0": x}, {"y0": want}))

    def model(self, name, nodes, inputs, outputs, want=None, opset=21, initializers=(), open_rows=False, **tolerance):
        """Several nodes; inputs: arrays by name; outputs: ONNX's element types by name."""
        inputs = {n: array_of(x) for n, x in inputs.items()}
        infos = [helper.make_tensor_value_info(n, element_of(a), ["N", *a.shape[1:]] if open_rows else a.shape) for n, a in inputs.items()]
        graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()], list(initializers))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 3)], ir_version=10)
        if want is None:
            want = run(model, inputs)
        self.all.append(Case(name, model, inputs, {n: array_of(value) for n, value in zip(outputs, want)}, **tolerance))

    def real(self, *shape, low=-1.0, high=1.0, dtype=np.float32):
        return self.rng.uniform(low, high, shape).astype(dtype)

    def floats(self, count, low=-1.0, high=1.0):
        """As an attribute."""
        return [float(np.float32(v)) for v in self.rng.uniform(low, high, count)]


def tensor(name, values):
    return numpy_helper.from_array(np.asarray(values), name)
