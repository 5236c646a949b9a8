#!/usr/bin/env python3
"""The same (run.py) for GPUs, on the stand-in driver, which runs PTX and refuses races and what lies outside of buffers. gpu.py [TEST...]"""

import run
from session import use_stand_in_driver

use_stand_in_driver()


class Gpu(run.Random):
    OPTIONS = ("--target", "cuda:sm_80")
    MANY = 20_000  # it is slow


class GpuVerified(run.Verified):
    OPTIONS = ("--target", "cuda:sm_80")


if __name__ == "__main__":
    run.main(Gpu, GpuVerified)
