#!/usr/bin/env python3
"""Write one-operator models: kernels.py OUT_DIR. Prints JSON {name: {"path", "flop"}}.

matmul_N multiplies by a constant (a layer's weights, which a compiler may pack); matmul_N_ab multiplies two inputs.
"""

import json
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (128, 512, 1024)


def matmul(size, constant):
    def info(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size])

    weights = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"], "matmul")], "matmul",
        [info("a")] if constant else [info("a"), info("b")], [info("c")],
        [numpy_helper.from_array(weights, "b")] if constant else [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    folder, written = sys.argv[1], {}
    os.makedirs(folder, exist_ok=True)
    for size in SIZES:
        for suffix, constant in (("", True), ("_ab", False)):
            name = f"matmul_{size}{suffix}"
            path = os.path.join(folder, name + ".onnx")
            onnx.save(matmul(size, constant), path)
            written[name] = {"path": path, "flop": 2 * size**3}
    print(json.dumps(written))


if __name__ == "__main__":
    main()
