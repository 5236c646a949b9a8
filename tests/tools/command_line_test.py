#!/usr/bin/env python3
"""The command line as other programs use it: files, JSON keys and exit codes that are promised."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

MCC = os.path.abspath(os.environ.get("MCC", "build/bin/mcc"))

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x, int64[N] attention_mask) => (float[N,4] y, float[N,4] z) <float[4] b = {1, 2, 3, 4}> {
  [sum] s = Add(x, b)
  [act] y = Relu(s)
  [cast] m = Cast <to = 1> (attention_mask)
  [axes] axes = Constant <value = int64[1] {1}> ()
  [unsqueeze] u = Unsqueeze(m, axes)
  [mask] z = Mul(y, u)
}"""


class CommandLine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.model = cls.folder / "model.onnx"
        cls.model.write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
        cls.library = cls.folder / "model.so"
        cls.x = np.array([[-3, -1, 0, 1], [5, -5, 2, -9]], np.float32)
        cls.mask = np.array([1, 0], np.int64)
        cls.y = np.maximum(cls.x + np.array([1, 2, 3, 4], np.float32), 0)
        cls.z = cls.y * cls.mask[:, None].astype(np.float32)
        for name in ("x", "mask", "y", "z"):
            np.save(cls.folder / f"{name}.npy", getattr(cls, name))
        done = cls.mcc("compile", cls.model, "-o", cls.library, "--dim", "N=2", "--json")
        assert done.returncode == 0, done.stderr
        cls.compiled = json.loads(done.stdout)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def mcc(cls, *words):
        return subprocess.run([MCC, *map(str, words)], capture_output=True, text=True, cwd=cls.folder, timeout=300)

    def json_of(self, *words, code=0):
        done = self.mcc(*words, "--json")
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def inputs(self):
        return ["--input", "x=x.npy", "--input", "attention_mask=mask.npy"]

    def test_compile_reports(self):
        for key in ("output", "target", "seconds", "kernels", "weight_bytes", "arena_bytes", "file_bytes"):
            self.assertIn(key, self.compiled)

    def test_compiling_twice_gives_the_same_bytes(self):
        again = self.folder / "again"
        again.mkdir()
        self.assertEqual(self.mcc("compile", self.model, "-o", again / "model.so", "--dim", "N=2").returncode, 0)
        self.assertEqual((again / "model.so").read_bytes(), self.library.read_bytes())

    # The linker takes % in a path for a place to put digits.
    def test_folder_with_a_percent_sign(self):
        folder = self.folder / "93%_done"
        folder.mkdir()
        for words in (("-o", folder / "model.so"), ("-o", folder / "model.a", "--header", folder / "model.h")):
            done = self.mcc("compile", self.model, *words, "--dim", "N=2")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((folder / "model.so").read_bytes(), self.library.read_bytes())

    def test_run_writes_the_outputs_in_order(self):
        done = self.mcc("run", self.library, *self.inputs(), "--output-dir", "out/deep")
        self.assertEqual(done.returncode, 0, done.stderr)
        np.testing.assert_array_equal(np.load(self.folder / "out/deep/output_0.npy"), self.y)
        np.testing.assert_array_equal(np.load(self.folder / "out/deep/output_1.npy"), self.z)

    def test_run_compares(self):
        good = self.mcc("run", self.library, *self.inputs(), "--expect", "y=y.npy", "--expect", "z=z.npy")
        self.assertEqual(good.returncode, 0, good.stderr)
        report = self.json_of("run", self.library, *self.inputs(), "--expect", "y=z.npy", code=1)
        (compared,) = report["expect"]
        self.assertEqual((compared["name"], compared["same"], compared["mismatches"]), ("y", False, 2))
        self.assertEqual(compared["first"], 4)
        self.assertAlmostEqual(compared["max_abs_error"], 6.0, places=5)
        loose = self.mcc("run", self.library, *self.inputs(), "--expect", "y=z.npy", "--atol", "10")
        self.assertEqual(loose.returncode, 0, loose.stderr)

    def test_random_inputs_repeat(self):
        first = self.json_of("run", self.library, "--random", 7)["outputs"]
        self.assertEqual(first, self.json_of("run", self.library, "--random", 7)["outputs"])
        self.assertNotEqual(first, self.json_of("run", self.library, "--random", 8)["outputs"])

    def test_bench(self):
        report = self.json_of("bench", self.library, "--seconds", 0.1, "--threads", 1, "--profile", "--trace", "t.json")
        for key in ("min_ms", "median_ms", "p90_ms", "p99_ms"):
            self.assertGreater(report[key], 0)
        self.assertLessEqual(report["min_ms"], report["median_ms"])
        self.assertEqual(report["threads"], 1)
        self.assertGreaterEqual(report["runs"], 3)
        self.assertTrue(report["target"].startswith("cpu"))
        nodes = " ".join(row["onnx_nodes"] for row in report["profile"])
        for name in ("sum", "act", "mask"):
            self.assertIn(name, nodes)
        events = json.loads((self.folder / "t.json").read_text())["traceEvents"]
        self.assertEqual(len(events), len(report["profile"]))

    # What Linux does not list, programs here cannot use, whatever the processor's name promises.
    def test_doctor_lists_the_features_that_this_system_gives(self):
        flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split()
        given = {flag.replace("_", "") for flag in flags}
        report = self.json_of("doctor")
        for name in ("avx2", "fma", "avx512f", "avx512vnni", "avx512bf16", "amx-tile", "amx-int8"):
            plain = name.replace("-", "")
            self.assertEqual(name in report["features"], plain in given, name)
            if name in report["features_withheld"]:
                self.assertNotIn(plain, given)

    def test_inspect(self):
        model = self.json_of("inspect", self.model, code=4)
        self.assertEqual([i["name"] for i in model["inputs"]], ["x", "attention_mask"])
        self.assertEqual(model["inputs"][0]["shape"], [-1, 4])
        self.assertEqual(len(model["errors"]), 2)
        self.assertEqual(self.json_of("inspect", self.model, "--dim", "N=3")["errors"], [])
        library = self.json_of("inspect", self.library)
        self.assertEqual(library["outputs"][1], {"name": "z", "type": "f32", "shape": [2, 4]})
        self.assertIn("model.hash", library["metadata"])

    def test_tasks(self):
        tasks = self.json_of("tasks", self.model, "--dim", "N=2")["tasks"]
        self.assertGreaterEqual(len(tasks), 1)
        for task in tasks:
            self.assertEqual(set(task), {"id", "name", "count", "flops", "bytes", "onnx_nodes", "sizes", "text"})

    # What cannot be written is an error of the machine, says why, and leaves no part of a file.
    def test_what_cannot_be_written(self):
        def refused(*options, output="w.so"):
            (error,) = self.json_of("compile", self.model, "-o", output, "--dim", "N=2", *options, code=5)["errors"]
            return error["message"]

        self.assertEqual(refused("--report", "/dev/full"), "cannot be written: No space left on device")
        self.assertEqual(refused("--header", "/dev/full", output="w.a"), "cannot be written: No space left on device")
        for kind, name in (("graph", "00_fold_constants.txt"), ("llvm", None)):
            first = self.folder / f"full_{kind}"
            first.mkdir()
            if name is None:
                self.mcc("compile", self.model, "-o", "w.so", "--dim", "N=2", "--emit", f"{kind}={first}")
                name = sorted(p.name for p in first.iterdir())[0]
                (first / name).unlink()
            (first / name).symlink_to("/dev/full")
            self.assertEqual(refused("--emit", f"{kind}={first}"), "cannot be written: No space left on device")

        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        whole = self.mcc("compile", self.model, "-o", "w.so", "--dim", "N=2", "--report", "w.html")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        page = self.folder / "w.html"
        self.assertGreater(page.stat().st_size, 20000)
        page.unlink()
        done = subprocess.run([MCC, "compile", self.model, "-o", "w.so", "--dim", "N=2", "--report", page], capture_output=True, text=True,
                              cwd=self.folder, timeout=300, preexec_fn=small_files)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertFalse(page.exists())

    def test_emit(self):
        done = self.mcc("compile", self.model, "-o", "e.so", "--dim", "N=2", "--emit", "graph,tensor,llvm,asm=emitted")
        self.assertEqual(done.returncode, 0, done.stderr)
        endings = {p.suffix for p in (self.folder / "emitted").iterdir()}
        self.assertEqual(endings, {".txt", ".ll", ".s"})
        kernel = sorted((self.folder / "emitted").glob("mcc_kernel_0*.txt"))[0].read_text()
        for stage in ("trace", "unscheduled", "scheduled", "lower_blocks", "vectorize_loops", "lower_math"):
            self.assertIn(f"\n// {stage}", "\n" + kernel)

    def write_case(self, name, y):
        data = self.folder / name / "test_data_set_0"
        data.mkdir(parents=True)
        (self.folder / name / "model.onnx").write_bytes(self.model.read_bytes())
        for file, tensor, array in (
            ("input_0", "x", self.x),
            ("input_1", "attention_mask", self.mask),
            ("output_0", "y", y),
            ("output_1", "z", self.z),
        ):
            (data / f"{file}.pb").write_bytes(numpy_helper.from_array(array, tensor).SerializeToString())
        return name

    def test_verify(self):
        good, bad = self.write_case("good", self.y), self.write_case("bad", self.y + 1)
        for extra in ([], ["--interpret"]):
            report = self.json_of("verify", good, bad, *extra, code=1)
            self.assertEqual([(c["name"], c["status"]) for c in report["cases"]], [("good", "pass"), ("bad", "fail")])
            self.assertEqual([report[k] for k in ("passed", "failed", "unsupported", "crashed")], [1, 1, 0, 0])
            self.assertIn("output 'y'", report["cases"][1]["reason"])
        self.assertEqual(self.mcc("verify", good).returncode, 0)

    def test_verify_against_the_reference(self):
        self.assertEqual(self.mcc("verify", self.model, "--dim", "N=5").returncode, 0)
        kernels = self.json_of("verify", self.model, "--dim", "N=5", "--kernels")
        self.assertGreaterEqual(kernels["passed"], 1)
        self.assertEqual(self.mcc("verify", self.model).returncode, 0)  # at several sizes of what is open

    def test_doctor(self):
        report = self.json_of("doctor")
        self.assertGreaterEqual(report["cores"], 1)
        self.assertGreater(report["vector_bits"], 0)

    def test_help(self):
        self.assertIn("compile", self.mcc("--help").stdout)
        self.assertEqual(self.mcc("compile", "--help").returncode, 0)
        self.assertTrue(self.mcc("--version").stdout.startswith("mcc "))


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=0)
    failed = len(program.result.failures) + len(program.result.errors)
    print(f"{program.result.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
