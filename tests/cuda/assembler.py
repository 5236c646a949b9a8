#!/usr/bin/env python3
"""What makes machine code: nvJitLink in processes of its own (tests/fake_nvjitlink stands in for it) and ptxas (a script stands in for
it): which of them is taken, what a broken one ends in, and what is said of architectures that it has dropped."""

import json
import pathlib
import re
import subprocess

from onnx import helper

import stand_in
from stand_in import BUILD, MCC, Case

HOME = BUILD / "tests/fake_nvjitlink"
LIBRARY = HOME / "lib/libnvJitLink.so.13"
NAME = f"nvJitLink 98.7 ({LIBRARY})"

# Code for a kernel with 33 registers for $3, -arch=sm_80; of sm_70 it knows nothing.
PTXAS = """#!/bin/sh
case "$*" in *--version*) echo "Cuda compilation tools, release 99.1, V99.1.2"; exit 0;; esac
case "$*" in *sm_70*) echo "ptxas fatal : Value 'sm_70' is not defined for option 'gpu-name'"; exit 255;; esac
"""
WORKS = """
sed -n "s/^.visible .entry \\([a-z_0-9]*\\)(.*/Compiling entry function '\\1' for 'sm'\\nUsed 33 registers/p" "$5"
echo code > "$4"
"""


class AssemblerTest(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.folder / "model.onnx"
        nodes = [helper.make_node("MatMul", ["a", "b"], ["m"]), helper.make_node("Softmax", ["m"], ["s"], axis=-1),
                 helper.make_node("MatMul", ["s", "c"], ["y"])]
        stand_in.save(cls.model, nodes, {"a": [70, 50], "b": [50, 90], "c": [90, 30]}, [70, 30])

    # A folder of CUDA with this ptxas.
    def cuda(self, name, body):
        program = self.folder / name / "bin/ptxas"
        program.parent.mkdir(parents=True)
        program.write_text(PTXAS + body)
        program.chmod(0o700)
        return program.parents[1]

    def compile(self, name, code=0, crashes=None, home=HOME, **extra):
        out = self.folder / f"{name}.so"
        if crashes is not None:
            extra["FAKE_NVJITLINK_CRASH"] = self.folder / f"{name}.crashes"
            extra["FAKE_NVJITLINK_CRASH"].write_text(str(crashes))
        command = ["compile", self.model, "--target", "cuda:sm_70,sm_80", "-o", out, "--jobs", "7", "--json"]
        done = self.done(stand_in.mcc(*command, CUDA_HOME=home, **extra), code)
        return out, json.loads(done.stdout), done.stderr

    # Candidates are then compiled by the driver, which is said once, and no reason to reject them.
    def test_tuning_with_one_that_is_too_old(self):
        home = self.cuda("outdated", "echo \"ptxas fatal : Value 'sm_80' is not defined for option 'gpu-name'\"; exit 255\n")
        done = self.done(stand_in.mcc("tune", self.model, "--target", "cuda:sm_80", "--tune-log", self.folder / "old.json", "--trials", "3",
                                      "--no-check", "--no-library", "--json", CUDA_HOME=home))
        problem = "a newer CUDA's assembler is needed for sm_80 ($CUDA_HOME names one)"
        self.assertEqual(done.stderr.count(problem), 1)
        report = json.loads(done.stdout)
        self.assertIn(problem, report["notes"][0])
        self.assertFalse([task["errors"] for task in report["tasks"] if task["errors"]])
        doctor = json.loads(self.done(stand_in.mcc("doctor", "--json", CUDA_HOME=home)).stdout)
        self.assertIn(problem, doctor["cuda_assembler_problem"])
        self.assertIn(problem, self.done(stand_in.mcc("doctor", CUDA_HOME=home)).stdout)
        works = json.loads(self.done(stand_in.mcc("doctor", "--json", CUDA_HOME=self.cuda("suits", WORKS))).stdout)
        self.assertEqual((works["cuda_assembler"][:10], works["cuda_assembler_problem"]), ("ptxas 99.1", None))

    def test_figures_and_code_come_back(self):
        out, report, errors = self.compile("whole")
        self.assertEqual((report["device"]["assembler"], report["device"]["most_registers"]), (NAME, 24))
        self.assertEqual(errors, "")
        again, _, _ = self.compile("again")
        self.assertEqual(out.read_bytes(), again.read_bytes())

    def test_a_crash_costs_an_attempt(self):
        whole, _, _ = self.compile("without")
        out, _, errors = self.compile("with", crashes=1)
        self.assertIn(f"warning: the process of {NAME} was killed by SIGABRT on PTX for sm_", errors)
        self.assertIn("tries again", errors)
        self.assertEqual(out.read_bytes(), whole.read_bytes())

    def test_crashes_without_end_are_an_error(self):
        out, report, _ = self.compile("never", code=5, crashes=1000)
        error = report["errors"][0]
        self.assertIn("killed by SIGABRT", error["message"])
        self.assertIn("2 times", error["message"])
        self.assertIn("--no-cubin", error["hint"])
        self.assertFalse(out.exists())

    def test_what_it_complains_about_is_said(self):
        out, report, _ = self.compile("refused", code=5, FAKE_NVJITLINK_REFUSE="line 7: no such instruction\n  'x'")
        self.assertIn("line 7: no such instruction", report["errors"][0]["message"])
        self.assertFalse(out.exists())

    def test_a_process_of_it_alone(self):
        def talk(text, library=LIBRARY):
            return subprocess.run([MCC, "assemble-worker", library], input=text, capture_output=True, text=True, timeout=60)

        ptx = ".entry k() \"\\\n"
        done = talk(json.dumps({"arch": "sm_80", "ptx": ptx}) + "\n")
        answer = json.loads(done.stdout)
        self.assertEqual((done.returncode, answer["arch"], answer["entries"][0][:3]), (0, "sm_80", ["k", 24, 512]))
        self.assertEqual(bytes.fromhex(answer["cubin"]), bytes((ord(c) + i) % 256 for i, c in enumerate(ptx)))
        for garbage in ("{", "[]", "7", '{"arch": "sm_80"}', '{"arch": 7, "ptx": ""}'):
            done = talk(garbage + "\n")
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertIn('expected {"arch"', done.stderr)
        self.assertEqual(talk("", pathlib.Path(__file__)).returncode, 5)

    # nvJitLink's code is to be linked, and has more registers than ptxas' for the same PTX.
    def test_ptxas_comes_first(self):
        home = self.cuda("both", WORKS)
        (home / "lib").mkdir()
        (home / "lib" / LIBRARY.name).symlink_to(LIBRARY)
        _, report, errors = self.compile("both", home=home)
        self.assertEqual(report["device"]["assembler"], f"ptxas 99.1 ({home / 'bin/ptxas'})")
        self.assertEqual((report["device"]["most_registers"], errors), (33, ""))

    # Registers that it spares for more blocks at a time, and spills for, are had by asking.
    def test_no_spills_for_more_blocks(self):
        spills = """
case "$(cat "$5")" in *minnctapersm*) n=0;; *) n=4;; esac
sed -n "s/^.visible .entry \\([a-z_0-9]*\\)(.*/Compiling entry function '\\1' for 'sm'\\nFunction properties for \\1\\n    8 bytes stack frame, $n bytes spill stores, $n bytes spill loads\\nUsed $((44 - n)) registers/p" "$5"
echo code > "$4"
"""
        _, report, _ = self.compile("spills", home=self.cuda("spills", spills))
        self.assertEqual((report["device"]["spilled_bytes"], report["device"]["most_registers"]), (0, 44))

    # Of what is for an architecture that the assembler has dropped there is PTX alone.
    def test_dropped_architectures_are_named(self):
        home = self.cuda("dropped", WORKS)
        out, report, _ = self.compile("dropped", home=home)
        self.assertEqual(report["device"]["without_machine_code"], ["sm_70"])
        device = json.loads(stand_in.mcc("inspect", out, "--json").stdout)["device"]
        self.assertEqual({i["arch"] for i in device["images"] if i["kind"] == "cubin"}, {"sm_80"})
        said = self.done(stand_in.mcc("compile", self.model, "--target", "cuda:sm_70", "-o", out, CUDA_HOME=home)).stderr
        self.assertIn("which makes none for sm_70", said)
        said = self.done(stand_in.mcc("compile", self.model, "--target", "cuda:sm_80", "-o", out, CUDA_HOME=home)).stderr
        self.assertNotIn("makes none", said)

    # A CUDA that is named and is none: what is used instead is said.
    def test_a_cuda_that_is_none(self):
        for name in ("nowhere", "empty"):
            home = self.folder / name
            if name == "empty":
                home.mkdir()
            _, _, errors = self.compile(name, home=home)
            self.assertIn(f"warning: $CUDA_HOME ({home}) has no ptxas and no nvJitLink that works; ", errors)

    def test_a_ptxas_that_is_broken(self):
        old = "echo 'kernels.ptx, line 5; fatal : Unsupported .version 7.8; current version is 7.0'; exit 255"
        for name, body, message in (("no_code", "exit 0", "wrote no machine code for sm_"),
                                    ("old", old, "refuses PTX for sm_70: kernels.ptx, line 5; fatal : Unsupported .version 7.8; current version is 7.0"),
                                    ("silent", "exit 3", "ended with exit code 3 on PTX for sm_"),
                                    ("crash", "kill -SEGV $$", "crashed (signal 11) on PTX for sm_")):
            with self.subTest(name):
                home = self.cuda(name, body)
                if name == "old":
                    (home / "bin/ptxas").write_text(PTXAS.replace("sm_70*", "no_such*") + body)
                out, report, _ = self.compile(name, code=5, home=home)
                error = report["errors"][0]
                self.assertIn(f"ptxas 99.1 ({home / 'bin/ptxas'}) {message}", error["message"])
                self.assertEqual((error["where"][:6], error["hint"]), ("node '", "--no-cubin leaves the PTX to the driver"))
                self.assertFalse(out.exists())
                # What is picked by its figures cannot be, and says why.
                done = self.done(stand_in.mcc("tune", self.model, "--target", "cuda:sm_80", "--no-measure", "--tune-log", self.folder / f"{name}.json",
                                              CUDA_HOME=home))
                self.assertRegex(done.stdout, rf"nothing can be built: .*{re.escape(message.split(' PTX')[0])}")


if __name__ == "__main__":
    stand_in.main(AssemblerTest)
