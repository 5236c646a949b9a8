#!/usr/bin/env python3
"""Compare stored outputs with onnxruntime's, its graph optimisation off: check.py MODEL.onnx OUTPUT_DIR TOLERANCE [DIM=N...]

OUTPUT_DIR holds output_0.npy, output_1.npy, ... for the inputs of inputs.py. TOLERANCE is a share of an output's largest magnitude
by which its elements may be off, 0 for rounding of floats alone. Prints JSON {"ok", "max_error", "max_value",
"reason"}: max_error is absolute, max_value the largest magnitude of the output in which it was seen.
"""

import json
import os
import sys

import numpy as np
import onnxruntime

from inputs import make_inputs, parse_dims

# relative, absolute
TOLERANCE = {2: (1e-2, 1e-2), 4: (1e-3, 1e-4), 8: (1e-3, 1e-4)}


def reference(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def difference(got, want, tolerance):
    """(why it is wrong or "", largest absolute error)"""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}", float("inf")
    if want.dtype.kind != "f":
        wrong = int((got != want).sum())
        return (f"{wrong} of {want.size} elements differ" if wrong else ""), float(wrong)
    relative, absolute = TOLERANCE[want.dtype.itemsize]
    wide_got, wide_want = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isfinite(wide_got), np.isfinite(wide_want)):
        return "infinity or NaN in other places", float("inf")
    finite = np.isfinite(wide_want)
    error = np.abs(wide_got[finite] - wide_want[finite])
    magnitude = np.abs(wide_want[finite])
    wrong = int((error > np.maximum(absolute + relative * magnitude, tolerance * magnitude.max(initial=0))).sum())
    return (f"{wrong} of {want.size} elements off" if wrong else ""), float(error.max(initial=0))


def main():
    path, folder, tolerance = sys.argv[1], sys.argv[2], float(sys.argv[3])
    result = {"ok": True, "max_error": 0.0, "max_value": 0.0, "reason": ""}
    for index, want in enumerate(reference(path, make_inputs(path, parse_dims(sys.argv[4:])))):
        why, error = difference(np.load(os.path.join(folder, f"output_{index}.npy"), allow_pickle=False), want, tolerance)
        if error >= result["max_error"]:
            largest = np.abs(want.astype(np.float64)).max(initial=0) if want.dtype.kind in "fiu" else 1.0
            result.update(max_error=error, max_value=float(largest))
        if why and result["ok"]:
            result.update(ok=False, reason=f"output {index}: {why}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
