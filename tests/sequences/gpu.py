#!/usr/bin/env python3
"""The same models (cases.py) for GPUs, on the stand-in driver, which runs PTX. gpu.py [TEST...]"""

import ctypes
import os

import cases
import run
from session import BUILD

DRIVER = BUILD / "tests/fake_cuda/libcuda.so.1"
os.environ.update({"FAKE_CUDA_RUN": "1", "FAKE_CUDA_SM": "90", "LD_LIBRARY_PATH": f"{DRIVER.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"})
ctypes.CDLL(str(DRIVER), mode=ctypes.RTLD_GLOBAL)  # the loader finds it by its name from now on


class Gpu(run.Case):
    pass


def add_tests():
    for case in cases.ALL:
        setattr(Gpu, f"test_{case.__name__}", lambda self, case=case: self.check(case, "--target", "cuda:sm_80"))


add_tests()
if __name__ == "__main__":
    run.main(Gpu)
