#!/usr/bin/env python3
"""What the stand-in driver counts of launches (FAKE_CUDA_COUNT), through bench/launches.py: facts of models whose bytes, sectors
and products are known. launches.py [TEST...]"""

import json
import subprocess
import sys

import numpy as np
from onnx import helper

import stand_in
from stand_in import BUILD, MCC, ROOT, Case

sys.path.insert(0, str(ROOT / "bench"))
import launches

SECTOR = 32


def blocks(launch):
    x, y, z = launch["grid"]
    return x * y * z


class Launches(Case):
    # The launches of a model of one input, in the order of the estimates.
    def count(self, nodes, shape, output, *words, arch="sm_80", weights=None):
        model = self.folder / "model.onnx"
        stand_in.save(model, nodes, {"x": shape}, output, weights)
        command = [sys.executable, ROOT / "bench/launches.py", model, "--arch", arch, "--json", "--mcc", MCC,
                   "--driver", BUILD / "tests/fake_cuda", *(["--", *words] if words else [])]
        return json.loads(self.done(subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)).stdout)

    def test_elements(self):
        [launch] = self.count([helper.make_node("Relu", ["x"], ["y"])], [256, 1024], [256, 1024])
        total = 256 * 1024 * 4
        for kind in ("read", "written"):
            self.assertEqual(launch[f"{kind}_bytes"] * blocks(launch), total)
            self.assertEqual(launch[f"{kind}_sectors"] * SECTOR, launch[f"{kind}_bytes"])
        self.assertEqual(launch["waste"], [1, 1])
        self.assertNotIn("problem", launch)

    def test_row_sums(self):
        [launch] = self.count([helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], [1, 1 << 14], [])
        self.assertEqual(launch["grid"], [1, 1, 1])
        self.assertEqual(launch["read_sectors"], (1 << 14) * 4 // SECTOR)
        self.assertEqual((launch["written_bytes"], launch["written_sectors"]), (4, 1))
        x, y, z = launch["block"]
        self.assertEqual(launch["loads"] * x * y * z, 1 << 14)

    # Each element lies in a sector of its own.
    def test_waste(self):
        nodes = [helper.make_node("Slice", ["x", "from", "to", "axes", "steps"], ["y"])]
        weights = {name: np.array([value]) for name, value in (("from", 0), ("to", 1 << 20), ("axes", 1), ("steps", 8))}
        [launch] = self.count(nodes, [4, 8192], [4, 1024], weights=weights)
        self.assertEqual(launch["read_bytes"] * blocks(launch), 4 * 1024 * 4)
        self.assertEqual(launch["waste"], [8, 1])

    def test_products(self):
        weights = {"w": np.ones((256, 128), np.float32)}
        for arch in ("sm_80", "sm_90a"):
            found = self.count([helper.make_node("MatMul", ["x", "w"], ["y"])], [128, 256], [128, 128], "--precision", "fp16",
                               arch=arch, weights=weights)
            self.assertEqual(sum(launch["matrix_fmas"] * blocks(launch) for launch in found), 128 * 128 * 256)

    def test_estimates(self):
        launch = {"entry": "one_thread", "grid": [1, 1, 1], "block": [1, 1, 1], "longest": 100000, "steps": 100000, "loads": 1,
                  "read_bytes": 4, "read_sectors": 1, "written_bytes": 4, "written_sectors": 1, "matrix_fmas": 0}
        wide = launch | {"entry": "wide", "grid": [108, 1, 1], "block": [256, 1, 1], "longest": 100, "steps": 800}
        slow, fast = launches.rows([wide, launch], launches.GPUS["sm_80"])
        self.assertEqual((slow["entry"], slow["by"], slow["waste"]), ("one_thread", "longest", [8, 8]))
        self.assertGreater(slow["us"], 20 * fast["us"])

    def test_problems(self):
        done = subprocess.run([sys.executable, ROOT / "bench/launches.py", "no.onnx", "--driver", self.folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no stand-in driver in", done.stderr)


if __name__ == "__main__":
    stand_in.main(Launches)
