#!/usr/bin/env python3
"""The same models (cases.py) for GPUs, on the stand-in driver, which runs PTX and refuses races and what lies outside of buffers. gpu.py [TEST...]"""

import cases
import run
from session import use_stand_in_driver

use_stand_in_driver()
CUDA = ("--target", "cuda:sm_80")  # all goes through the assembler, where there is one; the stand-in takes PTX


class Gpu(run.RunTimeCase):
    pass


def add_tests():
    for case in cases.ALL:
        setattr(Gpu, f"test_{case.__name__}", lambda self, case=case: self.check(case, *CUDA))
    for case in cases.REFUSED:
        setattr(Gpu, f"test_refuses_{case.__name__}", lambda self, case=case: self.check_refused(case, *CUDA))


add_tests()
if __name__ == "__main__":
    run.main(Gpu)
