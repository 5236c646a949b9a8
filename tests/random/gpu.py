#!/usr/bin/env python3
"""The same (run.py) for GPUs, on the stand-in driver, which runs PTX and refuses races and what lies outside of buffers. gpu.py [TEST...]"""

import ctypes
import os

import run
from session import BUILD

DRIVER = BUILD / "tests/fake_cuda/libcuda.so.1"
os.environ.update({"FAKE_CUDA_RUN": "1", "FAKE_CUDA_SM": "90", "LD_LIBRARY_PATH": f"{DRIVER.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"})
ctypes.CDLL(str(DRIVER), mode=ctypes.RTLD_GLOBAL)  # the loader finds it by its name from now on


class Gpu(run.Random):
    OPTIONS = ("--target", "cuda:sm_80")
    MANY = 20_000  # it is slow


class GpuVerified(run.Verified):
    OPTIONS = ("--target", "cuda:sm_80")


if __name__ == "__main__":
    run.main(Gpu, GpuVerified)
