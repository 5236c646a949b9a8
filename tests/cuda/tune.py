#!/usr/bin/env python3
"""Tuning on a GPU, which is the stand-in driver that runs PTX (tests/fake_cuda): what is measured, and what candidates that hang,
die, compute nonsense or ask for too much cost. tune.py [TEST...]"""

import json

import numpy as np
from onnx import helper

from stand_in import DRIVER, LIBRARY, MCC, NO_LIBRARY, PATIENT, Case, main, mcc, save

THREADS = (32, 64, 128, 256, 512)  # that the one kernel of the plain model may have


# Whether the trial's result has been compared, or is so slow (on a busy machine the stand-in may be) that this does not matter.
def is_looked_at(trial):
    return trial["checked"] or min(trial["times_us"]) > 10_000


class CudaTune(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.plain, cls.layers = cls.folder / "plain.onnx", cls.folder / "layers.onnx"
        save(cls.plain, [helper.make_node("Sigmoid", ["x"], ["y"])], {"x": [1000]}, [1000])
        rng = np.random.default_rng(1)
        save(cls.layers,
             [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"], axis=-1)],
             {"x": [4, 8]}, [4, 16], {"w": rng.standard_normal((8, 16)).astype(np.float32)})

    def tune(self, model, log, *options, patience=PATIENT, **extra):
        return json.loads(self.done(mcc("tune", model, "--tune-log", self.folder / log, "--target", "cuda:sm_80", "--no-check",
                                        "--json", *patience, *options, **extra)).stdout)

    def trials(self, log):
        lines = [json.loads(line) for line in (self.folder / log).read_text().splitlines()]
        return [line for line in lines if line["kind"] == "trial"]

    # Trials of the plain model by their threads, with the driver told what to do with one of them.
    def plain_trials(self, log, action, patience):
        report = self.tune(self.plain, log, "--trials", "20", patience=patience, FAKE_CUDA_LAUNCH=action)
        trials = {}
        for t in self.trials(log):
            threads = t["point"]["y.threads"][0] if "y.threads" in t["point"] else list(t["point"].values())[0][0]
            if trials.setdefault(threads, t) is not t:  # measured once more at the end
                self.assertIn(t["source"], ("final", "default"))
        self.assertEqual(tuple(sorted(trials)), THREADS)
        return report, trials

    def only_one_fails(self, log, threads, action, error, words, patience=PATIENT):
        report, trials = self.plain_trials(log, f" {threads}x1x1 ={action}", patience)
        for n, trial in trials.items():
            self.assertEqual(trial["error"], error if n == threads else "none", (n, trial["message"]))
            if n != threads:
                self.assertTrue(is_looked_at(trial))
        self.assertIn(words, trials[threads]["message"])
        self.assertEqual(report["tasks"][0]["errors"], {error: 1})

    def test_finds_and_applies(self):
        report = self.tune(self.layers, "a.json", "--trials", "14")
        self.assertEqual(report["trials"], 14)
        for trial in self.trials("a.json"):
            self.assertEqual((trial["error"], trial["target"]), ("none", "nvptx64-nvidia-cuda sm_80"))
            self.assertTrue(is_looked_at(trial))
            self.assertIn("Stand-in GPU", trial["device"])
            self.assertLessEqual(trial["max_error"], 1)
        compiled = json.loads(self.done(mcc("compile", self.layers, "-o", self.folder / "gpu.so", "--target", "cuda:sm_80",
                                            "--tune-log", self.folder / "a.json", "--locked", "--json")).stdout)
        self.assertEqual(compiled["schedules"]["exact"], 2)
        self.done(mcc("compile", self.layers, "-o", self.folder / "cpu.so"))
        self.done(mcc("run", self.folder / "cpu.so", "--random", "5", "--output-dir", self.folder / "out"))
        self.done(mcc("run", self.folder / "gpu.so", "--random", "5", "--rtol", "1e-4", "--atol", "1e-5",
                      "--expect", f"y={self.folder / 'out' / 'output_0.npy'}"))
        verified = json.loads(self.done(mcc("log", "verify", self.folder / "a.json", self.layers, "--target", "cuda:sm_80",
                                            "--json")).stdout)["trials"]
        self.assertTrue(all(row["checked"] and row["error"] == "none" for row in verified))

    def test_a_gpu_elsewhere(self):
        there = f"env LD_LIBRARY_PATH={DRIVER}:{LIBRARY} FAKE_CUDA_RUN=1 FAKE_CUDA_SM=90 '{MCC}'"
        words = ("tune", self.layers, "--tune-log", self.folder / "w.json", "--target", "cuda", "--trials", "9", *PATIENT)
        refused = mcc(*words, driver=False, LD_LIBRARY_PATH=NO_LIBRARY.name)
        self.assertIn("there is no GPU", self.done(refused, 5).stderr)
        refused = mcc(*words, "--worker", f"'{MCC}'", driver=False, LD_LIBRARY_PATH=NO_LIBRARY.name)
        self.assertIn("--worker: there is no GPU", self.done(refused, 5).stderr)
        found = self.done(mcc(*words, "--worker", there, driver=False, LD_LIBRARY_PATH=NO_LIBRARY.name))
        self.assertIn("another machine (Stand-in GPU)", found.stderr)
        self.assertIn("cuBLASLt", found.stderr)  # it is there, not here
        self.assertIn("--target cuda:sm_90", found.stdout)
        trials = self.trials("w.json")
        self.assertTrue(any("library" in trial["trace"] and trial["error"] == "none" for trial in trials))
        for trial in trials:
            self.assertEqual(trial["device"], "Stand-in GPU")
            if "library" not in trial["trace"]:
                self.assertEqual(trial["error"], "none", trial["message"])
        target = found.stdout.split("--target ")[1].split()[0]
        compiled = json.loads(self.done(mcc("compile", self.layers, "-o", self.folder / "w.so", "--target", target, "--locked",
                                            "--tune-log", self.folder / "w.json", "--json", driver=False)).stdout)
        self.assertEqual(compiled["schedules"]["exact"], 2)
        verify = ("log", "verify", self.folder / "w.json", self.layers, "--target", "cuda", "--json")
        self.assertIn("there is no GPU", self.done(mcc(*verify, driver=False, LD_LIBRARY_PATH=NO_LIBRARY.name), 5).stdout)
        verified = json.loads(self.done(mcc(*verify, "--worker", there, "--append", driver=False, LD_LIBRARY_PATH=NO_LIBRARY.name)).stdout)
        self.assertTrue(verified["trials"])
        self.assertTrue(all(row["error"] == "none" for row in verified["trials"]))
        self.assertEqual(self.trials("w.json")[-1]["device"], "Stand-in GPU")

    def test_a_list_of_architectures(self):
        targets = ("--target", "cuda:sm_80,sm_90")
        self.done(mcc("tune", self.plain, "--tune-log", self.folder / "l.json", *targets, "--no-measure"))
        self.assertEqual([t["target"].split()[-1] for t in self.trials("l.json")], ["sm_80", "sm_90"])
        # The one that is here is measured, or the last whose code runs here.
        for sm in (80, 86, 90):
            self.done(mcc("tune", self.plain, "--tune-log", self.folder / "l.json", *targets, "--no-check", "--trials", "1", FAKE_CUDA_SM=sm))
        measured = [t["target"].split()[-1] for t in self.trials("l.json") if t["source"] != "picked"]
        self.assertEqual(measured, ["sm_80", "sm_80", "sm_90"])
        compiled = json.loads(self.done(mcc("compile", self.plain, "-o", self.folder / "l.so", *targets, "--tune-log",
                                            self.folder / "l.json", "--locked", "--json")).stdout)
        self.assertEqual(compiled["schedules"]["exact"], 1)

    def test_algorithms_against_each_other(self):
        model = self.folder / "top.onnx"
        save(model, [helper.make_node("TopK", ["x", "k"], ["y", "i"])], {"x": [1, 64]}, [1, 10], {"k": np.array([10], np.int64)})
        report = self.tune(model, "t.json", "--trials", "8")
        self.assertEqual(report["trials"], 8)
        (choice,) = report["choices"]
        self.assertEqual(choice["problem"], "the first 10 of 64 elements, 1 time")
        self.assertEqual(set(choice["us"]), {"by_steps", "by_rank"})
        self.assertTrue(all(trial["error"] == "none" for trial in self.trials("t.json")))
        compiled = json.loads(self.done(mcc("compile", model, "-o", self.folder / "t.so", "--target", "cuda:sm_80", "--tune-log",
                                            self.folder / "t.json", "--locked", "--json")).stdout)
        self.assertEqual(compiled["schedules"]["exact"], compiled["kernels"])

    # All keys in one launch, or parts of them and a launch that puts these together; parts one after the other where tensor cores
    # multiply.
    def test_parts_of_attention_against_each_other(self):
        self.attention_by_each("f32", 4, 512, 2, "attention of 4 queries to 512 keys, 2 and 2 numbers of 32 bits, 1 times",
                               {"whole": 1, "parts_2": 2, "parts_4": 2}, 1e-5)

    def test_attention_of_16_bits_by_each_algorithm(self):
        self.attention_by_each("fp16", 40, 290, 16, "attention of 40 queries to 290 keys, 16 and 16 numbers of 16 bits, 1 times",
                               {"whole": 1, "parts_2": 2, "rolling": 1}, 1e-2)

    # launches: of the attention, by algorithm; allowed: absolute errors.
    def attention_by_each(self, precision, rows, keys, depth, problem, launches, allowed):
        model, log = self.folder / f"{precision}.onnx", self.folder / f"{precision}.json"
        save(model, [helper.make_node("MatMul", ["q", "k"], ["scores"]), helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
                     helper.make_node("MatMul", ["weights", "v"], ["y"])],
             {"q": [1, rows, depth], "k": [1, depth, keys], "v": [1, keys, depth]}, [1, rows, depth])
        how = () if precision == "f32" else ("--precision", precision)
        report = self.tune(model, log.name, "--trials", "12", *how)
        (choice,) = [choice for choice in report["choices"] if choice["problem"] == problem]
        self.assertEqual(set(choice["us"]), set(launches))
        self.assertTrue(all(trial["error"] == "none" for trial in self.trials(log.name)))
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        (logged,) = [line for line in lines if line["kind"] == "choice" and line["problem"] == problem]
        self.assertEqual(logged["algorithm"], choice["algorithm"])
        self.done(mcc("compile", model, "-o", self.folder / "cpu.so"))
        self.done(mcc("run", self.folder / "cpu.so", "--random", "5", "--output-dir", self.folder / "out"))
        # What was chosen, and what would have been had another one been faster: each was measured, so the log has its schedule.
        library = self.folder / "attention.so"
        for algorithm in sorted(choice["us"], key=lambda name: name != choice["algorithm"]):
            logged["algorithm"] = algorithm
            log.write_text("".join(json.dumps(line) + "\n" for line in lines))
            compiled = json.loads(self.done(mcc("compile", model, "-o", library, "--target", "cuda:sm_80", "--tune-log", log, "--locked",
                                                "--json", *how)).stdout)
            self.assertEqual(compiled["schedules"]["exact"], compiled["kernels"])
            made = json.loads(self.done(mcc("inspect", library, "--json")).stdout)["device"]["launches"]
            self.assertEqual(len(made), launches[algorithm] + compiled["kernels"] - 1, algorithm)
            self.done(mcc("run", library, "--random", "5", "--rtol", "1e-4", "--atol", str(allowed), "--expect",
                          f"y={self.folder / 'out' / 'output_0.npy'}"))

    def test_the_whole_model_is_measured(self):
        done = mcc("tune", self.plain, "--tune-log", self.folder / "w.json", "--target", "cuda", "--trials", "4")
        self.assertIn("whole model, measured", self.done(done).stdout)

    def test_what_was_picked_is_measured_first(self):
        self.done(mcc("tune", self.layers, "--tune-log", self.folder / "p.json", "--target", "cuda:sm_80", "--no-measure"))
        picked = {t["trace"] for t in self.trials("p.json")}
        self.tune(self.layers, "p.json", "--trials", "10")
        measured = {t["trace"] for t in self.trials("p.json") if t["source"] != "picked"}
        self.assertFalse(picked - measured)

    def test_a_hanging_kernel_costs_one_candidate(self):
        self.only_one_fails("hang.json", 64, "hang", "timeout", "a run took more than", patience=("--timeout", "4s"))

    # What has no time is not the fastest.
    def test_events_that_tell_nothing(self):
        report = self.tune(self.plain, "events.json", "--trials", "2", FAKE_CUDA_FAIL="cuEventElapsedTime:400")
        self.assertEqual(report["tasks"][0]["errors"], {"crash": 2})

    # A driver that compiles for longer than a run may take.
    def test_loading_is_no_running(self):
        report = self.tune(self.plain, "slow.json", "--trials", "1", FAKE_CUDA_LOAD=3)
        self.assertEqual(report["tasks"][0]["errors"], {})

    def test_an_illegal_address_costs_one_candidate(self):
        self.only_one_fails("illegal.json", 512, "700", "crash", "an illegal memory access was encountered")

    def test_a_launch_beyond_the_gpu_costs_one_candidate(self):
        self.only_one_fails("resources.json", 256, "701", "rejected", "launching the kernel")

    def test_a_wrong_result_is_no_best(self):
        self.only_one_fails("wrong.json", 32, "skip", "wrong", "")

    def test_out_of_memory(self):
        report = self.tune(self.plain, "memory.json", "--trials", "3", FAKE_CUDA_MEMORY=1000)
        self.assertEqual(report["tasks"][0]["errors"], {"rejected": 3})
        self.assertIn("no candidate has a time (3 rejected)", report["notes"][0])
        self.assertIn("out of memory", self.trials("memory.json")[0]["message"])

    def test_every_kernel_dies(self):
        report = self.tune(self.plain, "dead.json", "--trials", "3", FAKE_CUDA_LAUNCH="x=700")
        self.assertEqual(report["tasks"][0]["errors"], {"crash": 3})

    # The whole model runs in another process than the one that measures.
    def test_a_gpu_of_one_process_at_a_time(self):
        result = mcc("tune", self.plain, "--tune-log", self.folder / "one.json", "--target", "cuda", "--trials", "4",
                     FAKE_CUDA_EXCLUSIVE=self.folder / "lock")
        self.assertIn("whole model, measured", self.done(result).stdout)
        self.assertNotIn("could not be measured", result.stderr)

    def test_a_gpu_of_no_process(self):
        result = self.done(mcc("tune", self.plain, "--tune-log", self.folder / "x.json", "--target", "cuda", FAKE_CUDA_EXCLUSIVE="none"), 5)
        self.assertIn("the compute mode of the GPU here (Stand-in GPU) lets no process use it", result.stderr)

    def test_another_gpu_is_here(self):
        result = self.done(mcc("tune", self.plain, "--tune-log", self.folder / "x.json", "--target", "cuda:sm_90"), 5)
        self.assertIn("the GPU here (Stand-in GPU, sm_80) cannot run code for sm_90", result.stderr)
        self.assertIn("--no-measure", result.stderr)


if __name__ == "__main__":
    main(CudaTune)
