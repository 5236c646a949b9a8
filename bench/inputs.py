#!/usr/bin/env python3
"""Seeded inputs of a model: the same for every runtime.

inputs.py MODEL.onnx OUT_DIR [DIM=N...] writes one .npy per input and prints JSON
{"inputs": [{"name", "file", "shape", "dynamic"}]}.
"""

import json
import os
import sys

import numpy as np
import onnx


def declared_inputs(path):
    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in constants]


def shape_of(value, dims):
    """The input's shape; a dimension without a value takes the one given under its name, else 1."""
    return [d.dim_value if d.HasField("dim_value") else dims.get(d.dim_param, 1) for d in value.type.tensor_type.shape.dim]


def make_input(rng, name, element_type, shape):
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element_type)
    if dtype == bool:
        return np.ones(shape, dtype)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, 2 if "mask" in name else 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def make_inputs(path, dims):
    rng = np.random.default_rng(0)
    return {value.name: make_input(rng, value.name, value.type.tensor_type.elem_type, shape_of(value, dims))
            for value in declared_inputs(path)}


def parse_dims(texts):
    return {name: int(size) for name, _, size in (text.rpartition("=") for text in texts)}


def main():
    path, folder, dims = sys.argv[1], sys.argv[2], parse_dims(sys.argv[3:])
    os.makedirs(folder, exist_ok=True)
    dynamic = {value.name: not all(d.HasField("dim_value") for d in value.type.tensor_type.shape.dim)
               for value in declared_inputs(path)}
    listed = []
    for index, (name, array) in enumerate(make_inputs(path, dims).items()):
        file = os.path.join(folder, f"input_{index}.npy")
        np.save(file, array)
        listed.append({"name": name, "file": file, "shape": list(array.shape), "dynamic": dynamic[name]})
    print(json.dumps({"inputs": listed}))


if __name__ == "__main__":
    main()
