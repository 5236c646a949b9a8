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

    # ---- What rules are there for ----

    # Neighbouring threads read neighbours: no more sectors than bytes that threads ask for.
    def test_recurrence(self):
        weights = {"w": np.ones((1, 256, 32), np.float32), "r": np.ones((1, 256, 64), np.float32)}
        nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["", "y"], hidden_size=64)]
        found = self.count(nodes, [20, 1, 32], [1, 1, 64], weights=weights)
        steps = max(found, key=lambda launch: launch["read_bytes"])
        self.assertEqual(blocks(steps), 1)
        self.assertGreaterEqual(steps["read_bytes"], 20 * 256 * 64 * 4)
        self.assertLessEqual(steps["waste"][0], 1)

    # Of more states than one multiprocessor should read the weights of: a launch for each step, each with a share of the weights.
    def test_steps(self):
        weights = {"w": np.ones((1, 1024, 32), np.float32), "r": np.ones((1, 1024, 256), np.float32)}
        nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["", "y"], hidden_size=256)]
        found = self.count(nodes, [20, 1, 32], [1, 1, 256], weights=weights)
        steps = [launch for launch in found if launch["read_bytes"] * blocks(launch) > 1024 * 256 * 4 and blocks(launch) == 128]
        self.assertEqual(len(steps), 20)
        for step in steps:
            self.assertLessEqual(step["waste"][0], 1.1)

    # Of a sum over three channels and a window of 16 x 16, each row of the window is a part: all are summed at once.
    def test_parts(self):
        weights = {"w": np.ones((32, 3, 16, 16), np.float32)}
        found = self.count([helper.make_node("Conv", ["x", "w"], ["y"], strides=[16, 16])], [1, 3, 48, 48], [1, 32, 3, 3], weights=weights)
        self.assertEqual([blocks(launch) % 16 for launch in found if launch["loads"] > 16], [0])
        self.assertEqual(len(found), 2)

    # x[:, 2:6] = u: each element once, by a thread of its own.
    def test_slices(self):
        weights = {"u": np.ones((8, 4, 64), np.float32), "at": np.array([[[n, k] for k in range(2, 6)] for n in range(8)])}
        [launch] = self.count([helper.make_node("ScatterND", ["x", "at", "u"], ["y"])], [8, 16, 64], [8, 16, 64], weights=weights)
        self.assertEqual(launch["written_bytes"] * blocks(launch), 8 * 16 * 64 * 4)
        x, y, z = launch["block"]
        self.assertGreaterEqual(x * y * z * blocks(launch) * 4, 8 * 16 * 64)

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
