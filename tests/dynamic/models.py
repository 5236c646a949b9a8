"""Small models with open dimensions: what networks compute of the shapes of their inputs, and kernels along every kind of open axis."""

import dataclasses

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(7)
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


@dataclasses.dataclass
class Model:
    name: str
    nodes: list  # (operator or domain::operator, inputs, outputs, attributes)
    inputs: dict  # name: shape, with names of open dimensions
    outputs: tuple
    ranges: dict  # of open dimensions: (least, most)
    constants: dict
    sizes: tuple  # to run at: one dict each
    limits: dict = dataclasses.field(default_factory=dict)  # of integer inputs: values are below
    element: int = FLOAT  # of the others, and of constants that are floats

    def proto(self):
        def info(name, shape):
            return helper.make_tensor_value_info(name, INT if name in self.limits else self.element, shape)

        def constant(value):
            value = np.asarray(value)
            return value.astype(self.dtype()) if value.dtype == np.float32 else value

        def node(i, op, inputs, outputs, attributes):
            domain, _, op = op.rpartition("::")
            return helper.make_node(op, inputs, outputs, name=f"{op}_{i}", domain=domain, **attributes)

        domains = {"ai.onnx.ml": 3, "com.microsoft": 1}
        used = [name for name in domains if any(op.startswith(name) for op, *_ in self.nodes)]
        graph = helper.make_graph([node(i, *n) for i, n in enumerate(self.nodes)],
                                  self.name, [info(*item) for item in self.inputs.items()], [onnx.ValueInfoProto(name=n) for n in self.outputs],
                                  [numpy_helper.from_array(constant(v), n) for n, v in self.constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), *(helper.make_opsetid(name, domains[name]) for name in used)],
                                  ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    def dtype(self):
        return helper.tensor_dtype_to_np_dtype(self.element)

    def feeds(self, sizes):
        random = np.random.default_rng(1)
        feeds = {}
        for name, shape in self.inputs.items():
            dims = [sizes.get(d, d) for d in shape]
            feeds[name] = random.integers(0, self.limits[name], dims) if name in self.limits else random.standard_normal(dims).astype(self.dtype())
        return feeds


def reseed():
    """Weights of models that are made next are those of a program that has made none before."""
    RANDOM.bit_generator.state = np.random.default_rng(7).bit_generator.state


def weights(*shape):
    return (RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) + 1)).astype(np.float32)


def ints(*values):
    return np.array(values, dtype=np.int64)


def mlp():
    return Model("mlp", [("Gemm", ["x", "w", "b"], ["h"], {}), ("Relu", ["h"], ["r"], {}), ("Gemm", ["r", "v"], ["y"], {})],
                 {"x": ["N", 40]}, ("y",), {"N": (1, 64)}, {"w": weights(40, 64), "b": weights(64), "v": weights(64, 10)},
                 tuple({"N": n} for n in (1, 2, 16, 33, 64)))


def attention():
    width, heads = 32, 4
    nodes = [("Shape", ["x"], ["s"], {}), ("Gather", ["s", "zero"], ["n"], {}), ("Gather", ["s", "one"], ["t"], {}),
             ("Unsqueeze", ["n", "axis"], ["n1"], {}), ("Unsqueeze", ["t", "axis"], ["t1"], {}),
             ("Concat", ["n1", "t1", "heads", "depth"], ["apart"], {"axis": 0}), ("Concat", ["n1", "t1", "width"], ["whole"], {"axis": 0})]
    for k in "qkv":
        nodes += [("MatMul", ["x", "w" + k], [k + "0"], {}), ("Reshape", [k + "0", "apart"], [k + "1"], {}),
                  ("Transpose", [k + "1"], [k], {"perm": [0, 2, 3, 1] if k == "k" else [0, 2, 1, 3]})]
    nodes += [("MatMul", ["q", "k"], ["scores"], {}), ("Div", ["scores", "scale"], ["scaled"], {}), ("Softmax", ["scaled"], ["p"], {"axis": -1}),
              ("MatMul", ["p", "v"], ["o"], {}), ("Transpose", ["o"], ["o1"], {"perm": [0, 2, 1, 3]}), ("Reshape", ["o1", "whole"], ["o2"], {}),
              ("Add", ["o2", "x"], ["sum"], {}), ("LayerNormalization", ["sum", "gamma", "beta"], ["y"], {})]
    return Model("attention", nodes, {"x": ["N", "T", width]}, ("y",), {"N": (1, 8), "T": (1, 128)},
                 {**{"w" + k: weights(width, width) for k in "qkv"}, "zero": np.int64(0), "one": np.int64(1), "axis": ints(0), "heads": ints(heads),
                  "depth": ints(width // heads), "width": ints(width), "scale": np.float32(3), "gamma": weights(width), "beta": weights(width)},
                 tuple({"N": n, "T": t} for n, t in ((1, 1), (3, 5), (1, 64), (8, 127), (2, 128))))


def decoder():
    """Attention to what was before, of which there may be nothing: keys and values that grow."""
    width, heads = 32, 2
    nodes = [("Shape", ["keys0"], ["s0"], {}), ("Gather", ["s0", "two"], ["p"], {}), ("Shape", ["x"], ["s"], {}), ("Gather", ["s", "one"], ["t"], {}),
             ("Add", ["p", "t"], ["all"], {}), ("Range", ["zero", "all", "one"], ["of_keys"], {}), ("Range", ["p", "all", "one"], ["of_queries"], {}),
             ("Unsqueeze", ["of_keys", "first"], ["of_key"], {}), ("Unsqueeze", ["of_queries", "last"], ["of_query"], {}),
             ("LessOrEqual", ["of_key", "of_query"], ["sees"], {})]
    for k in "qkv":
        nodes += [("MatMul", ["x", "w" + k], [k + "0"], {}), ("Reshape", [k + "0", "apart"], [k + "1"], {}),
                  ("Transpose", [k + "1"], [k], {"perm": [0, 2, 1, 3]})]
    nodes += [("Concat", ["keys0", "k"], ["keys"], {"axis": 2}), ("Concat", ["values0", "v"], ["values"], {"axis": -2}),
              ("Transpose", ["keys"], ["columns"], {"perm": [0, 1, 3, 2]}), ("MatMul", ["q", "columns"], ["qk"], {}), ("Mul", ["qk", "scale"], ["scaled"], {}),
              ("Where", ["sees", "scaled", "far"], ["scores"], {}), ("Softmax", ["scores"], ["weight"], {"axis": -1}),
              ("MatMul", ["weight", "values"], ["o"], {}), ("Transpose", ["o"], ["o1"], {"perm": [0, 2, 1, 3]}), ("Reshape", ["o1", "together"], ["o2"], {}),
              ("MatMul", ["o2", "wo"], ["y"], {})]
    of_cache = ["N", heads, "P", width // heads]
    return Model("decoder", nodes, {"x": ["N", "T", width], "keys0": of_cache, "values0": of_cache}, ("y", "keys", "values"),
                 {"N": (1, 4), "T": (1, 40), "P": (0, 64)},
                 {**{"w" + k: weights(width, width) for k in "qkvo"}, "zero": np.int64(0), "one": np.int64(1), "two": np.int64(2), "first": ints(0),
                  "last": ints(1), "apart": ints(0, 0, heads, width // heads), "together": ints(0, 0, width), "scale": np.float32(0.25),
                  "far": np.float32(-1e4)},
                 tuple(dict(zip("NTP", n)) for n in ((1, 5, 0), (1, 1, 5), (4, 1, 64), (3, 40, 1), (2, 7, 0), (1, 33, 31))))


def convolutions():
    return Model("convolutions", [
        ("Conv", ["x", "c1", "b1"], ["a"], {"pads": [1] * 4, "strides": [2, 2]}), ("Relu", ["a"], ["a1"], {}),
        ("Conv", ["a1", "c2"], ["b"], {"pads": [1] * 4}), ("Add", ["b", "a1"], ["c"], {}),
        ("MaxPool", ["c"], ["d"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}), ("Conv", ["d", "dw"], ["e"], {"pads": [1] * 4, "group": 16}),
        ("AveragePool", ["e"], ["k"], {"kernel_shape": [2, 2]}), ("GlobalAveragePool", ["k"], ["g"], {}), ("Flatten", ["g"], ["f"], {}),
        ("Gemm", ["f", "fc"], ["y"], {})],
        {"x": ["N", 3, "H", "W"]}, ("y", "e"), {"N": (1, 4), "H": (8, 96), "W": (8, 96)},
        {"c1": weights(16, 3, 3, 3), "b1": weights(16), "c2": weights(16, 16, 3, 3), "dw": weights(16, 1, 3, 3), "fc": weights(16, 10)},
        tuple({"N": n, "H": h, "W": w} for n, h, w in ((1, 8, 8), (2, 31, 50), (4, 96, 9), (1, 64, 96))))


def volumes():
    return Model("volumes", [
        ("Conv", ["x", "c1", "b1"], ["a"], {"pads": [1] * 6, "strides": [1, 2, 2]}), ("Relu", ["a"], ["a1"], {}),
        ("Conv", ["a1", "c2"], ["b"], {"pads": [1, 0, 0, 1, 0, 0]}), ("Add", ["b", "a1"], ["c"], {}),
        ("MaxPool", ["c"], ["d"], {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}), ("Conv", ["d", "dw"], ["e"], {"pads": [1] * 6, "group": 16}),
        ("ReduceMean", ["e"], ["y"], {"axes": [2, 3, 4], "keepdims": 0})],
        {"x": ["N", 3, "D", "H", "W"]}, ("y", "e"), {"N": (1, 3), "D": (2, 17), "H": (8, 40), "W": (8, 40)},
        {"c1": weights(16, 3, 3, 3, 3), "b1": weights(16), "c2": weights(16, 16, 3, 1, 1), "dw": weights(16, 1, 3, 3, 3)},
        tuple({"N": n, "D": d, "H": h, "W": w} for n, d, h, w in ((1, 2, 8, 8), (2, 9, 21, 40), (3, 17, 40, 9))))


def batches():
    """An open batch over images of one size: Winograd's algorithm, and a residual."""
    return Model("batches", [("Conv", ["x", "c"], ["a"], {"pads": [1] * 4}), ("Relu", ["a"], ["r"], {}), ("Conv", ["r", "c"], ["b"], {"pads": [1] * 4}),
                             ("Add", ["b", "x"], ["y"], {})],
                 {"x": ["N", 32, 28, 28]}, ("y",), {"N": (1, 5)}, {"c": weights(32, 32, 3, 3)}, tuple({"N": n} for n in (1, 2, 5)))


def shapes():
    """Shape arithmetic of every kind, also as data."""
    return Model("shapes", [
        ("Shape", ["x"], ["s"], {}), ("Slice", ["s", "i0", "i1"], ["n"], {}), ("Slice", ["s", "i1", "i2"], ["t"], {}),
        ("Mul", ["n", "t"], ["nt"], {}), ("Add", ["t", "i1"], ["t1"], {}), ("Div", ["t1", "i2"], ["half"], {}),
        ("Concat", ["n", "t1", "i2"], ["want"], {"axis": 0}), ("Equal", ["want", "minus"], ["is_open"], {}), ("Where", ["is_open", "n", "want"], ["dims"], {}),
        ("ConstantOfShape", ["dims"], ["ones"], {"value": numpy_helper.from_array(np.array([1.5], dtype=np.float32))}),
        ("Squeeze", ["t"], ["t0"], {}), ("Range", ["c0", "t0", "c1"], ["positions"], {}), ("Cast", ["positions"], ["p"], {"to": FLOAT}),
        ("Unsqueeze", ["p", "i1"], ["column"], {}), ("Add", ["x", "column"], ["moved"], {}),
        ("Concat", ["n", "t", "six"], ["whole"], {"axis": 0}), ("Expand", ["row", "whole"], ["rows"], {}), ("Sub", ["moved", "rows"], ["y"], {}),
        ("Cast", ["nt"], ["count"], {"to": FLOAT}), ("ReduceSum", ["x", "every"], ["total"], {"keepdims": 0}), ("Div", ["total", "count"], ["mean"], {}),
        ("Reshape", ["x", "flat"], ["z"], {}), ("Tile", ["row", "tiles"], ["tiled"], {}),
        ("Sub", ["n", "t"], ["less"], {}), ("Div", ["less", "i3"], ["third"], {}), ("Mod", ["less", "i3"], ["rest"], {}), ("Add", ["t", "third"], ["t2"], {}),
        ("ConstantOfShape", ["t2"], ["zeros"], {})],
        {"x": ["N", "T", 6]}, ("y", "ones", "mean", "z", "tiled", "half", "third", "rest", "zeros"), {"N": (1, 9), "T": (1, 70)},
        {"i0": ints(0), "i1": ints(1), "i2": ints(2), "i3": ints(3), "minus": ints(-1), "c0": np.int64(0), "c1": np.int64(1), "six": ints(6), "row": weights(1, 6),
         "every": ints(0, 1, 2), "flat": ints(-1, 6), "tiles": ints(2, 3)},
        tuple({"N": n, "T": t} for n, t in ((1, 1), (2, 7), (9, 70), (4, 33))))


def movements():
    """Slices, joins, transpositions and padding along open axes."""
    return Model("movements", [
        ("Slice", ["x", "i1", "end", "i1"], ["rest"], {}), ("Slice", ["x", "i0", "minus", "i1"], ["first"], {}), ("Sub", ["rest", "first"], ["steps"], {}),
        ("Concat", ["steps", "first"], ["joined"], {"axis": 2}), ("Transpose", ["joined"], ["turned"], {"perm": [2, 0, 1]}),
        ("Pad", ["x", "pads"], ["padded"], {}), ("ReduceMax", ["padded"], ["most"], {"axes": [1], "keepdims": 0}),
        ("Concat", ["x", "x"], ["twice"], {"axis": 0}), ("ReduceMean", ["twice"], ["means"], {"axes": [0, 1], "keepdims": 1}),
        ("Slice", ["x", "minus", "least", "i1", "minus"], ["back"], {}), ("Slice", ["x", "end", "below", "i1", "minus2"], ["odd"], {}),
        ("Slice", ["x", "below", "end32", "i1"], ["all"], {})],
        {"x": ["N", "T", 5]}, ("turned", "most", "means", "back", "odd", "all"), {"N": (1, 6), "T": (2, 50)},
        {"i0": ints(0), "i1": ints(1), "minus": ints(-1), "end": ints(2**62), "pads": ints(0, 2, 0, 0, 1, 0),
         "least": ints(1 - 2**63), "below": ints(-2**31), "end32": ints(2**31 - 1), "minus2": ints(-2)},
        tuple({"N": n, "T": t} for n, t in ((1, 2), (3, 17), (6, 50))))


def recurrent():
    return Model("recurrent", [
        ("Gather", ["table", "x"], ["e"], {}), ("Transpose", ["e"], ["t"], {"perm": [1, 0, 2]}),
        ("LSTM", ["t", "w", "r", "b"], ["o", "", ""], {"hidden_size": 12, "direction": "bidirectional"}), ("Transpose", ["o"], ["u"], {"perm": [2, 0, 1, 3]}),
        ("Reshape", ["u", "flat"], ["y"], {})],
        {"x": ["N", "T"]}, ("y",), {"N": (1, 4), "T": (1, 40)},
        {"table": weights(30, 8), "w": weights(2, 48, 8), "r": weights(2, 48, 12), "b": weights(2, 96), "flat": ints(0, 0, 24)},
        tuple({"N": n, "T": t} for n, t in ((1, 1), (4, 9), (2, 40))), {"x": 30})


def wide_recurrent():
    """Steps that are launches on GPUs: one for LSTM, two for GRU."""
    return Model("wide_recurrent", [
        ("LSTM", ["x", "w", "r", "b"], ["o", "", "c"], {"hidden_size": 160}), ("Squeeze", ["o", "i1"], ["s"], {}),
        ("GRU", ["s", "w2", "r2"], ["y", "h"], {"hidden_size": 150, "direction": "bidirectional"})],
        {"x": ["T", "N", 8]}, ("y", "h", "c"), {"N": (1, 4), "T": (1, 40)},
        {"w": weights(1, 640, 8), "r": weights(1, 640, 160), "b": weights(1, 1280), "w2": weights(2, 450, 160), "r2": weights(2, 450, 150), "i1": ints(1)},
        tuple({"N": n, "T": t} for n, t in ((1, 1), (3, 5), (2, 12), (2, 3), (2, 3), (2, 3))))


def signals():
    """One spatial dimension; upsampling of what is not open, to sizes that are computed."""
    return Model("signals", [
        ("Conv", ["x", "c", "b"], ["a"], {"pads": [2, 2], "dilations": [1]}), ("Sigmoid", ["a"], ["g"], {}), ("Mul", ["a", "g"], ["s"], {}),
        ("Shape", ["s"], ["shape"], {}), ("Slice", ["shape", "i2", "i3"], ["t"], {}), ("Concat", ["two", "more", "t"], ["sizes"], {"axis": 0}),
        ("Resize", ["s", "", "", "sizes"], ["u"], {"mode": "nearest"}), ("Conv", ["u", "d"], ["y"], {"strides": [3]})],
        {"x": [2, 7, "T"]}, ("y",), {"T": (8, 300)},
        {"c": weights(24, 7, 5), "b": weights(24), "d": weights(5, 48, 3), "i2": ints(2), "i3": ints(3), "two": ints(2), "more": ints(48)},
        tuple({"T": t} for t in (8, 33, 257, 300)))


def expansions():
    """Operators of other domains: what stands for them takes the sizes that it does not look at."""
    ms, ml, width = "com.microsoft::", "ai.onnx.ml::", 32
    return Model("expansions", [
        (ms + "Attention", ["x", "qkv", "b"], ["a"], {"num_heads": 4}), (ms + "SkipLayerNormalization", ["a", "x", "gamma", "beta"], ["s"], {}),
        (ms + "BiasGelu", ["s", "beta"], ["g"], {}), (ms + "FusedMatMul", ["g", "w"], ["f"], {"alpha": 0.5}),
        (ms + "MultiHeadAttention", ["f", "x", "x"], ["m"], {"num_heads": 2}), ("ReduceMean", ["m"], ["mean"], {"axes": [1], "keepdims": 0}),
        (ml + "Scaler", ["mean"], ["scaled"], {"offset": [0.25], "scale": [2.0]}), (ml + "Normalizer", ["scaled"], ["y"], {"norm": "L2"}),
        (ml + "TreeEnsembleRegressor", ["scaled"], ["z"],
         {"n_targets": 1, "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [3, 0, 0], "nodes_values": [0.0] * 3,
          "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0],
          "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.5, -2.5]})],
        {"x": ["N", "T", width]}, ("y", "z", "m"), {"N": (1, 4), "T": (1, 20)},
        {"qkv": weights(width, 3 * width), "b": weights(3 * width), "gamma": weights(width), "beta": weights(width), "w": weights(width, width)},
        tuple({"N": n, "T": t} for n, t in ((1, 1), (3, 7), (4, 20))))


def resizes():
    """Along open axes: by whole and fractional scales, to the sizes of another tensor, in every way to find positions."""
    nodes, outputs = [("Shape", ["x"], ["sx"], {}), ("Slice", ["sx", "i0", "i2"], ["nc"], {}), ("Shape", ["z"], ["sz"], {}),
                      ("Slice", ["sz", "i2", "i4"], ["hw"], {}), ("Concat", ["nc", "hw"], ["sizes"], {"axis": 0})], []
    ways = [("nearest", "asymmetric", "floor"), ("nearest", "half_pixel", "round_prefer_floor"), ("nearest", "align_corners", "ceil"),
            ("linear", "half_pixel", "floor"), ("linear", "pytorch_half_pixel", "floor"), ("linear", "align_corners", "floor"), ("linear", "asymmetric", "floor"),
            ("cubic", "half_pixel", "floor")]
    for mode, coordinates, rounding in ways:
        for i, by in enumerate((["twice"], ["apart"], ["", "sizes"])):
            if coordinates == "align_corners" and by == ["apart"]:
                continue  # onnxruntime rounds the extent down before it divides by it
            outputs.append(f"{mode}_{coordinates}_{i}")
            nodes.append(("Resize", ["x", "", *by], [outputs[-1]],
                          {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}))
    return Model("resizes", nodes, {"x": ["N", 3, "H", "W"], "z": [1, 1, "P", "Q"]}, tuple(outputs), {d: (1, 40) for d in "NHWPQ"},
                 {"twice": np.float32([1, 1, 2, 2]), "apart": np.float32([1, 1, 1.5, 0.5]), "i0": ints(0), "i2": ints(2), "i4": ints(4)},
                 tuple(dict(zip("NHWPQ", sizes)) for sizes in ((1, 4, 4, 8, 8), (2, 5, 8, 3, 11), (1, 1, 2, 5, 4), (1, 9, 16, 1, 1), (2, 10, 13, 37, 20))))


def parts():
    """Open axes in parts: equal ones, and such that are computed; numbers as vectors of an open size; images that grow."""
    return Model("parts", [
        ("Split", ["x"], ["a", "b"], {"axis": 2}), ("Concat", ["b", "a"], ["y"], {"axis": 2}), ("Shape", ["x"], ["s"], {}), ("Slice", ["s", "i3", "i4"], ["w"], {}),
        ("Div", ["w", "i3"], ["third"], {}), ("Sub", ["w", "third"], ["rest"], {}), ("Concat", ["third", "rest"], ["sizes"], {"axis": 0}),
        ("Split", ["x", "sizes"], ["c", "d"], {"axis": 3}), ("ReduceSum", ["c"], ["z"], {"keepdims": 1}),
        ("Conv", ["d", "k"], ["e"], {"pads": [1] * 4}), ("ConvTranspose", ["e", "t", "bias"], ["f"], {"strides": [2, 2], "pads": [1, 1, 1, 1]}), ("Relu", ["f"], ["g"], {}),
        ("ConvTranspose", ["g", "u"], ["v"], {"strides": [2, 2], "auto_pad": "SAME_UPPER", "group": 2}),
        ("Squeeze", ["w"], ["depth"], {}), ("OneHot", ["labels", "depth", "values"], ["o"], {"axis": -1})],
        {"x": ["N", 3, "H", "W"], "labels": ["L"]}, ("y", "z", "v", "o"), {"N": (1, 3), "H": (2, 41), "W": (4, 40), "L": (1, 9)},
        {"i3": ints(3), "i4": ints(4), "k": weights(8, 3, 3, 3), "t": weights(8, 6, 4, 4), "bias": weights(6), "u": weights(6, 2, 3, 3), "values": np.float32([-1, 2])},
        tuple(dict(zip("NHWL", sizes)) for sizes in ((1, 2, 4, 1), (2, 8, 9, 3), (3, 40, 33, 9))), {"labels": 12})


def transposed():
    """Transposed convolutions of open pictures and signals, each a convolution for all phases of its stride."""
    return Model("transposed", [
        ("ConvTranspose", ["x", "a", "bias"], ["p"], {"strides": [2, 2], "pads": [1, 1, 1, 1]}), ("Relu", ["p"], ["u"], {}),
        ("ConvTranspose", ["u", "b"], ["y"], {"strides": [2, 2]}),
        ("ConvTranspose", ["x", "c"], ["z"], {"strides": [3, 2], "output_padding": [1, 1], "pads": [1, 0, 0, 2]}),
        ("ConvTranspose", ["x", "c"], ["v"], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ("ConvTranspose", ["s", "d"], ["w"], {"strides": [4], "pads": [2, 2]}),
        ("ConvTranspose", ["s", "d"], ["o"], {"strides": [3], "pads": [5, 6]})],
        {"x": ["N", 3, "H", "W"], "s": ["N", 4, "L"]}, ("y", "z", "v", "w", "o"), {"N": (1, 3), "H": (2, 41), "W": (4, 40), "L": (3, 60)},
        {"a": weights(3, 16, 4, 4), "bias": weights(16), "b": weights(16, 5, 2, 2), "c": weights(3, 6, 3, 5), "d": weights(4, 6, 8)},
        tuple(dict(zip("NHWL", sizes)) for sizes in ((1, 2, 4, 3), (2, 8, 9, 17), (3, 40, 33, 60))))


def upsampled():
    """A signal of more and more places and ever fewer channels, as speech is made: each step takes the layout of the one before."""
    return Model("upsampled", [
        ("ConvTranspose", ["x", "a", "bias"], ["p"], {"strides": [4], "pads": [2, 2]}), ("LeakyRelu", ["p"], ["q"], {"alpha": 0.1}),
        ("Conv", ["q", "k"], ["r"], {"pads": [3, 3], "dilations": [3]}), ("Add", ["r", "p"], ["s"], {}), ("LeakyRelu", ["s"], ["t"], {"alpha": 0.1}),
        ("ConvTranspose", ["t", "b"], ["u"], {"strides": [4], "pads": [2, 2]}), ("LeakyRelu", ["u"], ["v"], {"alpha": 0.1}),
        ("Conv", ["v", "c"], ["w"], {"pads": [3, 3]}), ("Tanh", ["w"], ["y"], {})],
        {"x": [1, 32, "L"]}, ("y",), {"L": (1, 90)},
        {"a": weights(32, 16, 8), "bias": weights(16), "k": weights(16, 16, 3), "b": weights(16, 8, 8), "c": weights(1, 8, 7)},
        tuple({"L": n} for n in (1, 7, 64, 90)))


def images():
    """Windows that run over the end, padding that follows from a stride of 1, mirrored edges, blocks that become channels and back."""
    return Model("images", [
        ("Conv", ["x", "k"], ["a"], {"auto_pad": "SAME_UPPER"}), ("MaxPool", ["a"], ["b"], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("AveragePool", ["b"], ["c"], {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}), ("Pad", ["c", "pads"], ["d"], {"mode": "reflect"}),
        ("DepthToSpace", ["d"], ["e"], {"blocksize": 2}), ("Sigmoid", ["e"], ["f"], {}), ("SpaceToDepth", ["f"], ["y"], {"blocksize": 2}),
        ("SpaceToDepth", ["x"], ["z"], {"blocksize": 2})],
        {"x": ["N", 4, "H", "W"]}, ("y", "z"), {"N": (1, 3), "H": (8, 41), "W": (8, 41)}, {"k": weights(8, 4, 4, 3), "pads": ints(0, 0, 1, 1, 0, 0, 1, 1)},
        tuple(dict(zip("NHW", sizes)) for sizes in ((1, 8, 8), (2, 28, 14), (3, 40, 10))))


def corners():
    """Windows with more padding than there are rows."""
    return Model("corners", [("Conv", ["x", "k"], ["p"], {"group": 8, "dilations": [1, 2], "pads": [2, 0, 2, 1]}), ("ReduceMean", ["p"], ["y"], {"axes": [1]})],
                 {"x": [1, 16, "H", "W"]}, ("y",), {"H": (1, 40), "W": (4, 40)}, {"k": weights(128, 2, 3, 3)},
                 tuple({"H": h, "W": w} for h, w in ((1, 4), (3, 14), (40, 33))))


def pyramid():
    """Feature maps that are joined with larger ones, with heights and widths that need not be even."""
    nodes = [("Conv", ["x", "c1"], ["a"], {"pads": [1] * 4, "strides": [2, 2]}), ("Relu", ["a"], ["a1"], {}),
             ("Conv", ["a1", "c2"], ["b"], {"pads": [1] * 4, "strides": [2, 2]}), ("Relu", ["b"], ["b1"], {}), ("Conv", ["b1", "c2"], ["c"], {"pads": [1] * 4}),
             ("Shape", ["c"], ["sc"], {}), ("Slice", ["sc", "i0", "i2"], ["nc"], {}), ("Shape", ["a1"], ["sa"], {}), ("Slice", ["sa", "i2", "i4"], ["hw"], {}),
             ("Concat", ["nc", "hw"], ["sizes"], {"axis": 0}), ("Resize", ["c", "", "", "sizes"], ["up"], {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
             ("Add", ["up", "a1"], ["p"], {}), ("Conv", ["p", "c2"], ["p1"], {"pads": [1] * 4}),
             ("Resize", ["p1", "", "twice"], ["p2"], {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}), ("Conv", ["p2", "c3"], ["y"], {})]
    return Model("pyramid", nodes, {"x": ["N", 3, "H", "W"]}, ("y", "p1"), {"N": (1, 2), "H": (8, 90), "W": (8, 90)},
                 {"c1": weights(16, 3, 3, 3), "c2": weights(16, 16, 3, 3), "c3": weights(4, 16, 1, 1), "i0": ints(0), "i2": ints(2), "i4": ints(4),
                  "twice": np.float32([1, 1, 2, 2])},
                 tuple({"N": n, "H": h, "W": w} for n, h, w in ((1, 8, 8), (2, 31, 50), (1, 65, 90))))


def tiled_images():
    """Winograd's algorithm at any height and width: smaller than a tile, no multiple of one, and in several bands; pads of every kind."""
    return Model("tiled_images", [
        ("Conv", ["x", "c1", "b1"], ["a"], {"pads": [1] * 4}), ("Relu", ["a"], ["r"], {}), ("Conv", ["r", "c2"], ["b"], {"pads": [2, 0, 1, 2]}),
        ("Conv", ["b", "c3"], ["c"], {"pads": [0, 1, 1, 1]}), ("Conv", ["c", "c4"], ["d"], {"pads": [1] * 4}), ("Add", ["c", "d"], ["y"], {})],
        {"x": ["N", 64, "H", "W"]}, ("y",), {"N": (1, 2), "H": (1, 100), "W": (1, 100)},
        {"c1": weights(64, 64, 3, 3), "b1": weights(64), "c2": weights(48, 64, 3, 3), "c3": weights(64, 48, 3, 3), "c4": weights(64, 64, 3, 3)},
        tuple({"N": n, "H": h, "W": w} for n, h, w in ((1, 1, 1), (2, 2, 5), (1, 7, 7), (2, 31, 50), (1, 1, 64), (1, 97, 100))))


def waves():
    """Convolutions of signals: strides, dilations, groups, depthwise, padding of every kind; down to a length of 1."""
    return Model("waves", [
        ("Conv", ["x", "first"], ["a"], {"pads": [9, 9], "strides": [2]}), ("Relu", ["a"], ["a1"], {}),
        ("Conv", ["a1", "strided", "bias"], ["b"], {"pads": [2, 2], "strides": [2]}),
        ("Conv", ["b", "dilated"], ["c"], {"pads": [2, 2], "dilations": [2]}), ("Sigmoid", ["c"], ["s"], {}), ("Mul", ["c", "s"], ["c1"], {}), ("Add", ["c1", "b"], ["d"], {}),
        ("Conv", ["d", "grouped"], ["e"], {"pads": [1, 1], "group": 2}), ("Conv", ["e", "depthwise"], ["f"], {"pads": [3, 3], "group": 32}),
        ("Conv", ["f", "even"], ["g"], {"auto_pad": "SAME_UPPER"}), ("Conv", ["g", "even"], ["h"], {"auto_pad": "SAME_LOWER"}),
        ("MaxPool", ["h"], ["m"], {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}), ("AveragePool", ["m"], ["v"], {"kernel_shape": [3], "pads": [1, 1]}),
        ("Conv", ["v", "point"], ["y"], {"auto_pad": "VALID"}), ("ReduceMean", ["h"], ["z"], {"axes": [2], "keepdims": 0})],
        {"x": ["N", 1, "T"]}, ("y", "z"), {"N": (1, 4), "T": (1, 2000)},
        {"first": weights(32, 1, 10), "strided": weights(32, 32, 5), "bias": weights(32), "dilated": weights(32, 32, 3), "grouped": weights(32, 16, 3),
         "depthwise": weights(32, 1, 7), "even": weights(32, 32, 4), "point": weights(20, 32, 1)},
        tuple({"N": n, "T": t} for n, t in ((1, 1), (2, 2), (1, 7), (3, 100), (4, 1999))))


def spectra():
    """Short-time transforms of signals of any length from one window on, of which typical sizes have to be several."""
    window = np.hanning(48).astype(np.float32)
    nodes = [("STFT", ["x", "step", "window", "length"], ["a"], {}), ("STFT", ["c", "step", "window"], ["b"], {"onesided": 0}),
             ("Pad", ["x", "around"], ["p"], {"mode": "reflect"}), ("STFT", ["p", "step", "", "length"], ["d"], {}),
             ("DFT", ["a"], ["y"], {"axis": 2}), ("ReduceSumSquare", ["b"], ["z"], {"axes": [3], "keepdims": 0}), ("Mul", ["d", "d"], ["v"], {})]
    return Model("spectra", nodes, {"x": ["N", "T"], "c": ["N", "T", 2]}, ("y", "z", "v"), {"N": (1, 3), "T": (48, 2000)},
                 {"window": window, "step": np.int64(16), "length": np.int64(48), "around": ints(0, 24, 0, 24)},
                 tuple({"N": n, "T": t} for n, t in ((1, 48), (3, 100), (2, 1999))))


def small():
    """Sizes in a range of which the smaller ones, and one in the middle, are too small for the windows."""
    nodes = [("QuantizeLinear", ["x", "s", "zero"], ["q"], {}), ("DequantizeLinear", ["q", "s", "zero"], ["d"], {}), ("DequantizeLinear", ["w", "s"], ["v"], {}),
             ("Conv", ["d", "v"], ["c"], {"strides": [2, 2], "group": 4}), ("Relu", ["c"], ["r"], {}), ("QuantizeLinear", ["r", "s", "zero"], ["p"], {}),
             ("DequantizeLinear", ["p", "s", "zero"], ["e"], {}), ("MaxPool", ["e"], ["m"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
             ("QuantizeLinear", ["m", "s", "zero"], ["t"], {}), ("DequantizeLinear", ["t", "s", "zero"], ["y"], {})]
    w = np.random.default_rng(5).integers(-40, 40, (4, 1, 3, 3)).astype(np.int8)
    return Model("small", nodes, {"x": [1, 4, "H", "W"]}, ("y",), {"H": (1, 26), "W": (1, 14)},
                 {"s": np.float32(0.125), "zero": np.uint8(60), "w": w}, tuple({"H": h, "W": w} for h, w in ((5, 7), (26, 14), (9, 8))))


def covered():
    """Padding by which as many windows as ceil(size / stride) cover an image: what it is depends on the size."""
    nodes = [("Conv", ["x", "c1"], ["a"], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}), ("Relu", ["a"], ["r"], {}),
             ("Conv", ["r", "depthwise"], ["b"], {"auto_pad": "SAME_UPPER", "group": 16}), ("Conv", ["b", "c2"], ["c"], {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
             ("MaxPool", ["r"], ["m"], {"auto_pad": "SAME_LOWER", "kernel_shape": [3, 3], "strides": [2, 2]}),
             ("AveragePool", ["r"], ["v"], {"auto_pad": "SAME_UPPER", "kernel_shape": [3, 2], "strides": [2, 2]}),
             ("AveragePool", ["r"], ["w"], {"auto_pad": "SAME_UPPER", "kernel_shape": [2, 2], "strides": [2, 2], "count_include_pad": 1}),
             ("Conv", ["m", "c3"], ["d"], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}), ("Add", ["v", "w"], ["s"], {})]
    return Model("covered", nodes, {"x": ["N", 3, "H", "W"]}, ("c", "d", "s"), {"N": (1, 2), "H": (1, 90), "W": (1, 90)},
                 {"c1": weights(16, 3, 3, 3), "depthwise": weights(16, 1, 4, 4), "c2": weights(8, 16, 5, 3), "c3": weights(8, 16, 1, 2)},
                 tuple({"N": n, "H": h, "W": w} for n, h, w in ((1, 8, 9), (2, 31, 50), (1, 65, 90), (1, 1, 2))))


# Boxes of all sizes, and as many samples of each as it has pixels.
def pooled_boxes():
    nodes = [("Split", ["r"], ["c", "e"], {"axis": 1}), ("Mul", ["c", "spread"], ["middle"], {}), ("Mul", ["e", "spread"], ["extent"], {}),
             ("Abs", ["extent"], ["half"], {}), ("Sub", ["middle", "half"], ["from"], {}), ("Add", ["middle", "half"], ["to"], {}),
             ("Concat", ["from", "to"], ["boxes"], {"axis": 1}),
             ("RoiAlign", ["x", "boxes", "i"], ["y"], {"output_height": 3, "output_width": 2}),
             ("RoiAlign", ["v", "boxes", "i"], ["z"], {"output_height": 2, "output_width": 2, "mode": "max"})]
    return Model("pooled_boxes", nodes, {"x": ["N", 8, "H", "W"], "v": ["N", 2, "H", "W"], "r": ["K", 4], "i": ["K"]}, ("y", "z"),
                 {"N": (1, 4), "H": (1, 40), "W": (1, 40), "K": (1, 20)}, {"spread": np.float32(12)},
                 tuple(dict(zip("NHWK", n)) for n in ((1, 20, 30, 9), (4, 1, 2, 3), (2, 40, 17, 20), (1, 7, 40, 1))), {"i": 1})


def bytes_of(*shape, low=-127, high=128, dtype=np.int8):
    return RANDOM.integers(low, high, shape).astype(dtype)


def quantized():
    """Convolutions between QuantizeLinear and DequantizeLinear; by powers of two, so that all that is rounded is the same everywhere."""
    nodes, constants, last = [("QuantizeLinear", ["x", "s0", "z0"], ["q0"], {})], {"s0": np.float32(2**-5), "z0": np.uint8(120)}, "q0"
    layers = ((3, 16, 3, 2, 1, np.int8), (16, 16, 3, 1, 16, np.int8), (16, 40, 1, 1, 1, np.uint8), (40, 32, 3, 2, 1, np.int8))
    for i, (inputs, outputs, size, stride, group, dtype) in enumerate(layers):
        unsigned = dtype == np.uint8
        constants |= {f"w{i}": bytes_of(outputs, inputs // group, size, size, low=0 if unsigned else -127, high=256 if unsigned else 128, dtype=dtype),
                      f"ws{i}": np.full(outputs, 2.0**-9, np.float32), f"wz{i}": np.full(outputs, 125 if unsigned else 0, dtype),
                      f"b{i}": (bytes_of(outputs) * 2.0**-6).astype(np.float32), f"s{i + 1}": np.float32(2**-3), f"z{i + 1}": np.uint8(90)}
        nodes += [("DequantizeLinear", [last, f"s{i}", f"z{i}"], [f"d{i}"], {}), ("DequantizeLinear", [f"w{i}", f"ws{i}", f"wz{i}"], [f"wd{i}"], {"axis": 0}),
                  ("Conv", [f"d{i}", f"wd{i}", f"b{i}"], [f"c{i}"], {"pads": [size // 2] * 4, "strides": [stride] * 2, "group": group}),
                  ("Relu", [f"c{i}"], [f"r{i}"], {}), ("QuantizeLinear", [f"r{i}", f"s{i + 1}", f"z{i + 1}"], [f"q{i + 1}"], {})]
        last = f"q{i + 1}"
    nodes.append(("DequantizeLinear", [last, f"s{len(layers)}", f"z{len(layers)}"], ["y"], {}))
    return Model("quantized", nodes, {"x": ["N", 3, "H", "W"]}, ("y",), {"N": (1, 3), "H": (4, 48), "W": (4, 48)}, constants,
                 ({"N": 1, "H": 32, "W": 32}, {"N": 3, "H": 5, "W": 40}, {"N": 2, "H": 48, "W": 7}))


def quantized_on_the_way():
    """Convolutions of bytes whose zero point a run knows, with padding and without, and of a table for each of a batch."""
    nodes = [("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], {}),
             ("ConvInteger", ["q", "w", "z", "wz"], ["c"], {"pads": [1] * 4}), ("ConvInteger", ["q", "v", "z"], ["e"], {"strides": [2, 2]}),
             ("Cast", ["c"], ["cf"], {"to": FLOAT}), ("Cast", ["e"], ["ef"], {"to": FLOAT}), ("Mul", ["cf", "s"], ["y"], {}), ("Mul", ["ef", "s"], ["u"], {}),
             ("Shape", ["x"], ["sizes"], {}), ("Expand", ["table", "sizes"], ["tables"], {}), ("DynamicQuantizeLinear", ["tables"], ["qt", "st", "zt"], {}),
             ("ConvInteger", ["qt", "v", "zt"], ["g"], {}), ("Cast", ["g"], ["gf"], {"to": FLOAT}), ("Mul", ["gf", "st"], ["t"], {})]
    constants = {"w": bytes_of(24, 8, 3, 3, low=0, high=255, dtype=np.uint8), "wz": np.uint8(120), "v": bytes_of(32, 8, 2, 2), "table": weights(8, 12, 10)}
    return Model("quantized_on_the_way", nodes, {"x": ["N", 8, 12, 10]}, ("y", "u", "t"), {"N": (1, 5)}, constants, ({"N": 1}, {"N": 5}, {"N": 2}))


ALL = (mlp, attention, decoder, convolutions, volumes, batches, shapes, movements, recurrent, signals, expansions, resizes, pyramid, parts, transposed, upsampled, images, corners, tiled_images, waves, spectra, covered, small, pooled_boxes, quantized, quantized_on_the_way)
