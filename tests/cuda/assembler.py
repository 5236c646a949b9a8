#!/usr/bin/env python3
"""nvJitLink in processes of its own (tests/fake_nvjitlink stands in for it): crashes, refusals, and what is no request."""

import json
import pathlib
import subprocess

from onnx import helper

import stand_in
from stand_in import BUILD, MCC, Case

HOME = BUILD / "tests/fake_nvjitlink"
LIBRARY = HOME / "lib/libnvJitLink.so.13"
NAME = f"nvJitLink 98.7 ({LIBRARY})"


class AssemblerTest(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.folder / "model.onnx"
        nodes = [helper.make_node("MatMul", ["a", "b"], ["m"]), helper.make_node("Softmax", ["m"], ["s"], axis=-1),
                 helper.make_node("MatMul", ["s", "c"], ["y"])]
        stand_in.save(cls.model, nodes, {"a": [70, 50], "b": [50, 90], "c": [90, 30]}, [70, 30])

    def compile(self, name, code=0, crashes=None, **extra):
        out = self.folder / f"{name}.so"
        if crashes is not None:
            extra["FAKE_NVJITLINK_CRASH"] = self.folder / f"{name}.crashes"
            extra["FAKE_NVJITLINK_CRASH"].write_text(str(crashes))
        command = ["compile", self.model, "--target", "cuda:sm_70,sm_80", "-o", out, "--jobs", "7", "--json"]
        done = self.done(stand_in.mcc(*command, CUDA_HOME=HOME, **extra), code)
        return out, json.loads(done.stdout), done.stderr

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


if __name__ == "__main__":
    stand_in.main(AssemblerTest)
