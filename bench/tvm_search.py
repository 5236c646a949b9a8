"""Has TVM search a schedule for a matrix product of f32 on one core of this machine: tvm_search.py N TRIALS.

Says {"trials", "seconds"} as a line of JSON when the search is over, then, for each line on stdin, {"us": the least time of a run}.
"""
import json
import logging
import os
import sys
import tempfile
import time

os.environ["TVM_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
import tvm  # noqa: E402
from tvm import te  # noqa: E402
from tvm.s_tir import meta_schedule  # noqa: E402


def product(n):
    a, b = (te.placeholder((n, n), name=name) for name in "ab")
    k = te.reduce_axis((0, n), name="k")
    return te.create_prim_func([a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")])


def main():
    n, trials = int(sys.argv[1]), int(sys.argv[2])
    logging.disable(logging.CRITICAL)
    answers = os.dup(1)
    os.dup2(2, 1)  # what the search prints is no answer
    module = tvm.IRModule({"main": product(n)})
    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": 1})
    with tempfile.TemporaryDirectory() as folder:
        start = time.time()
        database = meta_schedule.tune_tir(module, target, folder, max_trials_global=trials, num_trials_per_iter=min(trials, 32),
                                          num_tuning_cores=os.cpu_count(), database="memory")
        seconds = time.time() - start
        schedule = meta_schedule.tir_integration.compile_tir(database, module, target)
    if schedule is None:
        sys.exit("TVM found no schedule")
    os.write(answers, (json.dumps({"trials": trials, "seconds": seconds}) + "\n").encode())
    run = tvm.compile(schedule.mod, target=target).jit().time_evaluator("main", tvm.cpu(), number=max(1, int(2e8 / n**3)), repeat=20)
    random = np.random.default_rng(0)
    arrays = [tvm.runtime.tensor(random.standard_normal((n, n)).astype(np.float32)) for _ in range(3)]
    for _ in sys.stdin:
        os.write(answers, (json.dumps({"us": min(run(*arrays).results) * 1e6}) + "\n").encode())


if __name__ == "__main__":
    main()
