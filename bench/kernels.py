#!/usr/bin/env python3
"""Write one-operator models: kernels.py OUT_DIR [PATTERN]. Prints JSON {name: {"path", "flop"}}.

A case is batch x (m x k times k x n). Without a suffix the second operand is a constant (a layer's weights, which a
compiler may pack); _ab multiplies two inputs; _ta and _tb read the first and the second transposed (Gemm).
"""

import json
import os
import re
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# batch, m, k, n, suffixes
CASES = [(1, n, n, n, kind) for n in (128, 512, 1024) for kind in ("", "_ab")]
CASES += [(1, m, 768, 3072, kind) for m in (1, 2, 4, 8) for kind in ("", "_ab")]
CASES += [(1, 1000, 1000, 1000, "_ab"), (1, 1001, 1001, 1001, "_ab"), (1, 129, 129, 129, "_ab"),
          (1, 1001, 1001, 1001, ""), (1, 129, 129, 129, "")]
CASES += [(1, 4096, 64, 64, "_ab"), (1, 4096, 512, 16, "_ab"), (1, 64, 4096, 64, "_ab"), (1, 32, 512, 4096, "_ab"),
          (1, 1024, 16, 1024, "_ab"), (1, 512, 512, 10, "_ab")]
CASES += [(12, 128, 64, 128, "_ab"), (12, 128, 128, 64, "_ab"), (12, 1, 64, 128, "_ab"), (12, 197, 64, 197, "_ab")]
CASES += [(1, 512, 512, 512, kind) for kind in ("_ta", "_tb", "_ta_tb")]
CASES += [(1, 128, 768, 768, kind) for kind in ("_tb", "_ta")] + [(1, 1, 1024, 1000, "_tb"), (1, 1000, 1001, 129, "_tb")]


def name_of(batch, m, k, n, kind):
    shape = str(m) if m == k == n else f"{m}x{k}x{n}"
    return f"matmul_{f'{batch}x' if batch > 1 else ''}{shape}{kind}"


def matmul(batch, m, k, n, kind):
    outer = [batch] if batch > 1 else []

    def info(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, outer + shape)

    weights = [] if kind else [numpy_helper.from_array(
        np.random.default_rng(0).standard_normal((k, n)).astype(np.float32), "b")]
    a = info("a", [k, m] if "_ta" in kind else [m, k])
    b = info("b", [n, k] if "_tb" in kind else [k, n])
    if "_t" in kind:
        node = helper.make_node("Gemm", ["a", "b"], ["c"], "matmul", transA=int("_ta" in kind), transB=int("_tb" in kind))
    else:
        node = helper.make_node("MatMul", ["a", "b"], ["c"], "matmul")
    graph = helper.make_graph([node], "matmul", [a] if weights else [a, b], [info("c", [m, n])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    folder, pattern, written = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "", {}
    os.makedirs(folder, exist_ok=True)
    for case in CASES:
        name = name_of(*case)
        if not re.search(pattern, name):
            continue
        path = os.path.join(folder, name + ".onnx")
        onnx.save(matmul(*case), path)
        written[name] = {"path": path, "flop": 2 * case[0] * case[1] * case[2] * case[3]}
    print(json.dumps(written))


if __name__ == "__main__":
    main()
