#!/usr/bin/env python3
"""Random small models against onnxruntime (see README.md). run.py [--seed S] [--count N] [--only K] [--open] [--keep FOLDER]"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1])]
import models
import verify_folders

MCC = os.path.abspath(os.environ.get("MCC", pathlib.Path(__file__).parents[2] / "build/bin/mcc"))
STAND_IN = pathlib.Path(os.environ.get("MCC_BUILD_DIR", pathlib.Path(__file__).parents[2] / "build")) / "tests/fake_cuda"
# Of GPUs on a stand-in driver that runs the kernels' PTX.
TARGETS = ("cpu", "cpu:x86-64-v2", "cuda:sm_80")


def environment(target):
    if not target.startswith("cuda"):
        return None
    architecture = "".join(c for c in target if c.isdigit())
    return {**os.environ, "LD_LIBRARY_PATH": str(STAND_IN), "FAKE_CUDA_RUN": "1", "FAKE_CUDA_SM": architecture}


def build(case):
    nodes = []
    for i, (op, inputs, attributes) in enumerate(case.nodes):
        many = case.outputs if i + 1 == len(case.nodes) else 1
        outputs = [f"v{i}"] if many == 1 else [f"v{i}_{k}" for k in range(many)]
        nodes.append(helper.make_node(op, inputs, outputs, name=f"n{i}", **attributes))
    def info(name, x):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)

    graph = helper.make_graph(nodes, "g", [info(n, x) for n, x in case.inputs.items()], [onnx.ValueInfoProto(name=n) for n in nodes[-1].output],
                              [numpy_helper.from_array(x, n) for n, x in case.constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def reference(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def write(folder, case, is_open):
    """The case as one of ONNX's test cases; False where ONNX or onnxruntime does not take the model."""
    try:
        model = build(case)
        wanted = reference(model, case.inputs)
    except Exception:  # of many kinds, and none of them ours
        return False
    # onnxruntime gives some empty results another shape than ONNX's rules do.
    if any([d.dim_value for d in o.type.tensor_type.shape.dim] != list(w.shape) for o, w in zip(model.graph.output, wanted)):
        return False
    if is_open:
        verify_folders.open_dimensions(model)
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "data.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))
    for word, values, infos in (("input", case.inputs.values(), model.graph.input), ("output", wanted, model.graph.output)):
        for i, (value, about) in enumerate(zip(values, infos)):
            (data / f"{word}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(value), about.name).SerializeToString())
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=480)
    parser.add_argument("--only", type=int, help="the number of one case")
    parser.add_argument("--maker", choices=sorted({m.__name__ for m in models.MAKERS}))
    parser.add_argument("--target", action="append", help="in place of " + ", ".join(TARGETS))
    parser.add_argument("--open", action="store_true", help="with the dimensions of inputs open")
    parser.add_argument("--keep", help="leave the cases there")
    arguments = parser.parse_args()
    makers = [m for m in models.MAKERS if arguments.maker in (None, m.__name__)]
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(arguments.keep or temporary)
        folders, refused = [], 0
        for i in range(arguments.count) if arguments.only is None else [arguments.only]:
            # A case depends on its number alone, so that one can be made again.
            rng = np.random.default_rng([arguments.seed, i])
            case = makers[i % len(makers)](rng)
            folder = root / f"{i:05}_{makers[i % len(makers)].__name__}"
            if write(folder, case, arguments.open):
                folders.append(str(folder))
            else:
                refused += 1
        failed = passed = skipped = 0
        targets = arguments.target or TARGETS
        for k, target in enumerate(targets):
            some = folders[k :: len(targets)] if arguments.only is None else folders
            if not some:
                continue
            command = [MCC, "verify", "--json", "--target", target, "--seconds", "60", *["--open"] * arguments.open]
            done = subprocess.run([*command, *some], capture_output=True, text=True, env=environment(target))
            if not done.stdout:
                print(f"mcc verify: exit {done.returncode}: {done.stderr}")
                return 1
            for one in json.loads(done.stdout)["cases"]:
                passed += one["status"] == "pass"
                skipped += one["status"] == "unsupported"
                if one["status"] in ("fail", "crash"):
                    failed += 1
                    print(f"{one['status']} {one['name']} ({target}): {one['reason']}")
                elif one["status"] == "unsupported" and arguments.keep:
                    print(f"unsupported {one['name']}: {one['reason']}")
    print(f"{refused} models that onnxruntime does not take")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
