#!/usr/bin/env python3
"""The same models (cases.py) for GPUs, on the stand-in driver, which runs PTX. gpu.py [TEST...]"""

import cases
import run
from session import use_stand_in_driver

use_stand_in_driver()


class Gpu(run.Case):
    pass


def add_tests():
    for case in cases.ALL:
        setattr(Gpu, f"test_{case.__name__}", lambda self, case=case: self.check(case, "--target", "cuda:sm_80"))


add_tests()
if __name__ == "__main__":
    run.main(Gpu)
