"""Writes the models whose kernels make up the golden set: tasks.py FOLDER. One operator (with its epilogue) a model."""
import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

RANDOM = numpy.random.default_rng(0)


def weights(name, *shape):
    scale = 1 / numpy.sqrt(max(1, numpy.prod(shape[1:])))
    return numpy_helper.from_array((RANDOM.standard_normal(shape) * scale).astype(numpy.float32), name)


def model(folder, name, nodes, inputs, outputs, constants=()):
    def infos(shapes):
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in shapes.items()]

    graph = helper.make_graph(nodes, name, infos(inputs), infos(outputs), list(constants))
    opset = helper.make_opsetid("", 20)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), folder / f"{name}.onnx")


def matmul(folder, name, m, k, n):
    model(folder, name, [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (m, k)}, {"y": (m, n)}, [weights("w", k, n)])


def batched(folder, name, b, m, k, n):
    model(folder, name, [helper.make_node("MatMul", ["q", "k"], ["y"])],
          {"q": (b, m, k), "k": (b, k, n)}, {"y": (b, m, n)})


def conv(folder, name, size, cin, cout, kernel, stride=1, group=1, pad=None):
    pad = kernel // 2 if pad is None else pad
    out = (size + 2 * pad - kernel) // stride + 1
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[kernel] * 2, strides=[stride] * 2,
                              pads=[pad] * 4, group=group),
             helper.make_node("Relu", ["c"], ["y"])]
    model(folder, name, nodes, {"x": (1, cin, size, size)}, {"y": (1, cout, out, out)},
          [weights("w", cout, cin // group, kernel, kernel), weights("b", cout)])


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for n in (128, 256, 512, 1024):
        matmul(folder, f"matmul_{n}", n, n, n)
    matmul(folder, "matmul_mlp", 128, 768, 3072)
    conv(folder, "conv_stem", 224, 3, 64, 7, stride=2)
    conv(folder, "conv_3x3_56", 56, 64, 64, 3)
    conv(folder, "conv_3x3_28s2", 56, 128, 128, 3, stride=2)
    conv(folder, "conv_3x3_14", 14, 256, 256, 3)
    conv(folder, "conv_1x1_56", 56, 64, 256, 1, pad=0)
    conv(folder, "conv_1x1_28", 28, 512, 128, 1, pad=0)
    conv(folder, "conv_1x1_14", 14, 1024, 256, 1, pad=0)
    conv(folder, "conv_1x1_7", 7, 512, 2048, 1, pad=0)
    conv(folder, "depthwise_56", 56, 144, 144, 3, group=144)
    conv(folder, "depthwise_14", 14, 384, 384, 3, group=384)
    batched(folder, "attention_scores", 12, 128, 64, 128)
    batched(folder, "attention_values", 12, 128, 128, 64)
    model(folder, "max_pool", [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)],
          {"x": (1, 64, 112, 112)}, {"y": (1, 64, 56, 56)})
    model(folder, "global_pool", [helper.make_node("GlobalAveragePool", ["x"], ["y"])],
          {"x": (1, 512, 14, 14)}, {"y": (1, 512, 1, 1)})
    shape = (12, 128, 128)
    model(folder, "softmax", [helper.make_node("Softmax", ["x"], ["y"], axis=-1)], {"x": shape}, {"y": shape})
    shape = (128, 768)
    model(folder, "layer_norm", [helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)],
          {"x": shape}, {"y": shape}, [weights("s", 768), weights("b", 768)])
    shape = (128, 3072)
    model(folder, "gelu", [helper.make_node("Gelu", ["x"], ["y"])], {"x": shape}, {"y": shape})


if __name__ == "__main__":
    main()
