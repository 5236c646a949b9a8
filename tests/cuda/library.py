#!/usr/bin/env python3
"""Products by cuBLASLt, which is a stand-in over the stand-in driver (tests/fake_cublaslt): measured beside what is generated, logged,
compiled in, run; and what becomes of a library that is not there, refuses, or computes something else. library.py [TEST...]"""

import json

import numpy as np
from onnx import helper

import stand_in
from stand_in import PATIENT, Case, main

RANDOM = np.random.default_rng(1)


def weights(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


# name: nodes, inputs, output, weights. How the library is called for them stands in test_products.
PRODUCTS = {
    "plain": ([("MatMul", ["x", "w"], {})], {"x": [7, 40]}, [7, 33], {"w": weights(40, 33)}),
    "turned": ([("Gemm", ["x", "w", "b"], {"transA": 1, "transB": 1})], {"x": [40, 7]}, [7, 33],
               {"w": weights(33, 40), "b": weights(33)}),
    "variables": ([("MatMul", ["x", "z"], {})], {"x": [3, 5, 40], "z": [3, 40, 6]}, [3, 5, 6], {}),
    "one_row": ([("MatMul", ["x", "w"], {})], {"x": [1, 40]}, [1, 33], {"w": weights(40, 33)}),
    "residual": ([("MatMul", ["x", "w"], {}), ("Add", ["", "b"], {}), ("Add", ["", "r"], {})], {"x": [2, 5, 40], "r": [2, 5, 33]},
                 [2, 5, 33], {"w": weights(40, 33), "b": weights(33)}),
    "relu": ([("Gemm", ["x", "w", "b"], {}), ("Relu", [""], {})], {"x": [7, 40]}, [7, 33],
             {"w": weights(40, 33), "b": weights(33)}),
    "pixels": ([("Conv", ["x", "w"], {})], {"x": [2, 12, 5, 4]}, [2, 9, 5, 4], {"w": weights(9, 12, 1, 1)}),
}


def save(path, nodes, inputs, output, constants):
    made = []
    for i, (op, names, attributes) in enumerate(nodes):
        names = [name or f"v{i - 1}" for name in names]
        made.append(helper.make_node(op, names, ["y" if i == len(nodes) - 1 else f"v{i}"], **attributes))
    stand_in.save(path, made, inputs, output, constants)


def mcc(*arguments, library=True, **extra):
    return stand_in.mcc(*arguments, library=library, **extra)


class Library(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, parts in PRODUCTS.items():
            save(cls.folder / f"{name}.onnx", *parts)
        # A log whose best is the library's, and what was compiled with it.
        cls.model, cls.log, cls.library = (cls.folder / f for f in ("plain.onnx", "best.json", "best.so"))
        cls.done(mcc("tune", cls.model, "--target", "cuda:sm_80", "--tune-log", cls.log, "--trials", "4", "--no-check", *PATIENT))
        cls.done(mcc("compile", cls.model, "--target", "cuda:sm_80", "--tune-log", cls.log, "--locked", "-o", cls.library))

    def tune(self, model, log, *options, trials=5, **extra):
        return self.done(mcc("tune", self.folder / model, "--tune-log", self.folder / log, "--target", "cuda:sm_80",
                                  "--no-check", "--trials", trials, *PATIENT, *options, **extra))

    def trials(self, log, sketch="library"):
        lines = [json.loads(line) for line in (self.folder / log).read_text().splitlines()]
        return [line for line in lines if line["kind"] == "trial" and line["sketch"] == sketch]

    # Trials of a library that behaves so, of which none may have a time; what is generated has some.
    def gets_no_time(self, log, error, words, **extra):
        self.tune("plain.onnx", log, FAKE_CUBLASLT_ALGORITHMS=3, **extra)
        trials = self.trials(log)
        self.assertEqual([t["error"] for t in trials], [error] * 3)
        self.assertTrue(all(words in t["message"] for t in trials), trials)
        self.assertTrue(any(t["error"] == "none" and t["checked"] for t in self.trials(log, "rules")))
        compiled = json.loads(self.done(mcc("compile", self.model, "--target", "cuda:sm_80", "--tune-log", self.folder / log, "-o",
                                                 self.folder / "own.so", "--json")).stdout)
        self.assertEqual(compiled["device"]["library_calls"], 0)

    # What the library is asked for in a run, whose result is the processor's.
    def calls(self, model, log, *options):
        library, calls = self.folder / "called.so", self.folder / "calls"
        self.done(mcc("compile", self.folder / model, "--target", "cuda:sm_80", "--tune-log", self.folder / log, "--locked", "-o",
                           library, *options))
        calls.unlink(missing_ok=True)
        self.done(mcc("compile", self.folder / model, "-o", self.folder / "cpu.so"))
        self.done(mcc("run", self.folder / "cpu.so", "--random", "5", "--output-dir", self.folder / "out"))
        tolerance = "1e-4" if not options else "1e-1"
        self.done(mcc("run", library, "--random", "5", "--rtol", tolerance, "--atol", tolerance, "--expect",
                           f"y={self.folder / 'out' / 'output_0.npy'}", FAKE_CUBLASLT_LOG=calls))
        return calls.read_text().splitlines()

    def test_products(self):
        expected = {"plain": "1x 7x33x40 type 0 to 0 compute 68 beta 0 epilogue 1 ",
                    "turned": "1x 7x33x40 type 0 to 0 compute 68 beta 0 epilogue 4 ",
                    "variables": "3x 5x6x40 type 0 to 0 compute 68 beta 0 epilogue 1 ",
                    "one_row": "1x 1x33x40 type 0 to 0 compute 68 beta 0 epilogue 1 ",
                    "residual": "1x 10x33x40 type 0 to 0 compute 68 beta 1 epilogue 4 ",
                    "relu": "1x 7x33x40 type 0 to 0 compute 68 beta 0 epilogue 1 ",  # a launch of ours has the rest
                    "pixels": "2x 9x20x12 type 0 to 0 compute 68 beta 0 epilogue 1 "}
        for name in PRODUCTS:
            with self.subTest(name):
                said = self.tune(f"{name}.onnx", f"{name}.json").stderr
                self.assertEqual(said.count("cuBLASLt 13.1.0 is a candidate for 1 tasks"), 1, said)
                trials = self.trials(f"{name}.json")
                self.assertEqual({t["error"] for t in trials}, {"none", "rejected"})  # the stand-in has two algorithms
                self.assertTrue(all(t["checked"] for t in trials if t["error"] == "none"))
                self.assertTrue(all("cuBLASLt names 2 algorithms" in t["message"] for t in trials if t["error"] != "none"))
                if name == "residual":  # also without what the library adds to the sum
                    self.assertEqual(sum("bind(" in t["trace"] for t in trials if t["source"] == "search"), 1)
                calls = self.calls(f"{name}.onnx", f"{name}.json")
                self.assertEqual({call[:call.index("algorithm")] for call in calls}, {expected[name]})

    # 16 bits and TF32 for those who ask for it: the types of what is called, and TF32 for nobody else.
    def test_precisions(self):
        for precision, types in (("fp16", "type 2 to 0 compute 68"), ("bf16", "type 14 to 0 compute 68"),
                                 ("tf32", "type 0 to 0 compute 77")):
            with self.subTest(precision):
                options = ("--precision", precision)
                self.tune("turned.onnx", f"{precision}.json", *options, trials=8)
                self.assertTrue(self.trials(f"{precision}.json"))
                calls = self.calls("turned.onnx", f"{precision}.json", *options)
                self.assertEqual({call[:call.index(" beta")] for call in calls}, {f"1x 7x33x40 {types}"})
        self.gets_no_time("narrow.json", "wrong", "", FAKE_CUBLASLT="tf32")

    def test_says_what_it_needs(self):
        inspected = json.loads(self.done(mcc("inspect", self.library, "--json", library=False)).stdout)
        self.assertIn("libcublasLt.so.13", inspected["metadata"]["needs"])
        self.assertEqual(inspected["device"]["launches"], [{"kernel": "matmul", "library": "cublasLt", "product": [1, 7, 33, 40]}])
        explained = self.done(mcc("explain", self.library, "y", library=False)).stdout
        self.assertIn("call of cublasLt, 7x33, sums of 40", explained)
        self.assertIn('key="library", value="cublasLt:', explained)
        self.assertIn("sketch library", explained)

    def test_wrong_results_are_no_best(self):
        self.gets_no_time("wrong.json", "wrong", "", FAKE_CUBLASLT="wrong")

    def test_refusals_are_counted(self):
        self.gets_no_time("refuses.json", "rejected", "CUBLAS_STATUS_NOT_SUPPORTED", FAKE_CUBLASLT="refuses")
        self.gets_no_time("fails.json", "rejected", "a product failed", FAKE_CUBLASLT="fails")
        self.gets_no_time("absent.json", "rejected", "it does not work with this GPU", FAKE_CUBLASLT="absent")

    def test_not_installed(self):
        for command in ("tune", "doctor"):
            result = self.tune("plain.onnx", "none.json", library=False) if command == "tune" else mcc("doctor", library=False)
            self.assertEqual((result.stderr if command == "tune" else result.stdout).count("cuBLASLt"), 1)
        self.assertFalse(self.trials("none.json"))
        self.assertIsNone(json.loads(mcc("doctor", "--json", library=False).stdout)["cublaslt"])
        self.assertEqual(json.loads(mcc("doctor", "--json").stdout)["cublaslt"], "13.1.0")

    # Of several versions, the newest that the driver is not too old for.
    def test_suits_the_driver(self):
        folder = self.folder / "versions"
        folder.mkdir()
        (folder / "libcublasLt.so.13").symlink_to(stand_in.DRIVER / "libcuda.so.1")  # a library, but not this one
        (folder / "libcublasLt.so.12").symlink_to(stand_in.LIBRARY / "libcublasLt.so.13")
        for driver, version in ((12080, "13.1.0"), (13000, None)):
            report = mcc("doctor", "--json", LD_LIBRARY_PATH=f"{stand_in.DRIVER}:{folder}", FAKE_CUDA_DRIVER=driver)
            self.assertEqual(json.loads(self.done(report).stdout)["cublaslt"], version)

    def test_not_asked_for(self):
        self.tune("plain.onnx", "without.json", "--no-library")
        self.assertFalse(self.trials("without.json"))
        self.done(mcc("tune", self.model, "--target", "cuda:sm_80", "--tune-log", self.folder / "analysis.json", "--no-measure"))
        self.assertFalse(self.trials("analysis.json"))

    # Where the library is missing when the model is to run; the model compiles all the same.
    def test_missing_at_load(self):
        arguments = (self.model, "--target", "cuda:sm_80", "--tune-log", self.log, "-o", self.folder / "elsewhere.so")
        self.done(mcc("compile", *arguments, library=False))
        self.assertEqual((self.folder / "elsewhere.so").read_bytes(), self.library.read_bytes())
        result = self.done(mcc("run", self.library, "--random", "5", library=False), 5)
        self.assertIn("libcublasLt.so.13, .12 and .11 can be loaded", result.stderr)
        self.assertIn("--no-library", result.stderr)
        self.done(mcc("run", self.library, "--random", "5", FAKE_CUBLASLT="absent"), 5)
        refused = self.done(mcc("run", self.library, "--random", "5", FAKE_CUBLASLT="refuses"), 5)
        self.assertIn("it does not compute this product on this GPU (CUBLAS_STATUS_NOT_SUPPORTED, 15)", refused.stderr)
        # An algorithm that another version does not name: the best it has.
        self.done(mcc("run", self.library, "--random", "5", FAKE_CUBLASLT_ALGORITHMS=1))
        self.done(mcc("compile", *arguments, "--no-library", library=False))
        self.done(mcc("run", self.folder / "elsewhere.so", "--random", "5", library=False))

    # In a person's schedule; what the library does not compute is an error, with the reason.
    def test_by_hand(self):
        steps, made = self.folder / "steps.txt", self.folder / "hand.so"
        call = 'annotate(loop="matmul.i0", key="library", value="cublasLt:0")'
        steps.write_text(f"kernel matmul\n{call}\n")
        compiled = self.done(mcc("compile", self.model, "--target", "cuda:sm_80", "--schedule", steps, "-o", made, "--json"))
        self.assertEqual(json.loads(compiled.stdout)["device"]["library_calls"], 1)
        self.done(mcc("run", made, "--random", "5"))
        fused = 'compute_inline(block="bias")\nreverse_compute_at(block="unary", loop="matmul.i1")\n' + call
        for model, text, reason in (("relu.onnx", f"kernel matmul_bias_unary\n{fused}\n", "it does not compute max("),
                                    ("plain.onnx", f"kernel matmul\n{call.replace('Lt:0', 'Lt:99')}\n", 'expected library = "cublasLt:0"')):
            steps.write_text(text)
            failed = self.done(mcc("compile", self.folder / model, "--target", "cuda:sm_80", "--schedule", steps, "-o", made), 4)
            self.assertIn(reason, failed.stderr)

    # Only the kernel and the GPU that it was measured for.
    def test_is_not_carried_over(self):
        for model, target in ((self.model, "cuda:sm_90"), (self.folder / "wider.onnx", "cuda:sm_80")):
            save(self.folder / "wider.onnx", [("MatMul", ["x", "w"], {})], {"x": [7, 40]}, [7, 34], {"w": weights(40, 34)})
            compiled = json.loads(self.done(mcc("compile", model, "--target", target, "--tune-log", self.log, "-o",
                                                     self.folder / "other.so", "--json")).stdout)
            self.assertEqual(compiled["device"]["library_calls"], 0)
        both = self.folder / "both.so"
        self.done(mcc("compile", self.model, "--target", "cuda:sm_80,sm_90", "--tune-log", self.log, "-o", both))
        self.done(mcc("run", both, "--random", "5", library=False), 5)
        self.done(mcc("run", both, "--random", "5", library=False, FAKE_CUDA_SM=90))


if __name__ == "__main__":
    main(Library)
