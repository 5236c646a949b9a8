#!/usr/bin/env python3
"""examples/cpp/generate.cpp: the words that it says are those that onnxruntime's likeliest are, step by step."""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MCC_BUILD_DIR", SOURCE / "build")).resolve()
MCC = os.path.abspath(os.environ.get("MCC", BUILD / "bin/mcc"))
COMPILER = os.environ.get("CXX") or shutil.which("c++") or "c++"
sys.path[:0] = [str(SOURCE / "tests/dynamic"), str(SOURCE / "tests")]
from folder_case import FolderCase, main  # noqa: E402
from decoder_model import Maker, Sizes  # noqa: E402


class Generate(FolderCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sizes, cls.model = Sizes(), cls.folder / "decoder.onnx"
        onnx.save(Maker(sizes=cls.sizes).model(), cls.model)
        for words in ((MCC, "compile", cls.model, "-o", cls.folder / "decoder.so"),
                      (COMPILER, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE / 'runtime/include'}", SOURCE / "examples/cpp/generate.cpp",
                       f"-L{BUILD / 'lib'}", f"-Wl,-rpath,{BUILD / 'lib'}", "-lmcc_runtime", "-o", cls.folder / "generate")):
            done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr

    def generate(self, *words):
        return subprocess.run([str(self.folder / "generate"), *map(str, words)], capture_output=True, text=True, timeout=100)

    def likeliest(self, words, steps):
        session = onnxruntime.InferenceSession(str(self.model), providers=["CPUExecutionProvider"])
        pasts = {name: np.zeros((1, self.sizes.shared, 0, self.sizes.size), np.float32) for name in self.sizes.pasts()}
        said, held = [], 0
        for _ in range(steps):
            held += len(words)
            feeds = {"ids": np.array([words]), "mask": np.ones((1, held), np.int64), **pasts}
            logits, *presents = session.run(["logits", *self.sizes.presents()], feeds)
            pasts = dict(zip(pasts, presents))
            words = [int(np.argmax(logits[0, -1]))]
            said += words
        return said

    def test_says_what_is_likeliest(self):
        for words in ([3], [5, 80, 7, 7, 41]):
            for room in ((), ("--room", 20)):
                done = self.generate(self.folder / "decoder.so", "--words", ",".join(map(str, words)), "--steps", 12, "--threads", 1, *room)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual([int(word) for word in done.stdout.split()], self.likeliest(words, 12))
                self.assertIn(f"prompt of {len(words)} words", done.stderr)
        done = self.generate(self.folder / "decoder.so", "--words", "1,2,3", "--steps", 12, "--room", 8)
        self.assertEqual(done.returncode, 3)
        self.assertIn("more words than --room is for", done.stderr)

    def test_what_is_no_decoder(self):
        other = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [onnx.helper.make_tensor_value_info("x", 1, [2])],
                                       [onnx.helper.make_tensor_value_info("y", 1, [2])])
        onnx.save(onnx.helper.make_model(other, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]), self.folder / "other.onnx")
        subprocess.run([MCC, "compile", self.folder / "other.onnx", "-o", self.folder / "other.so"], check=True, capture_output=True)
        done = self.generate(self.folder / "other.so", "--words", 1)
        self.assertEqual(done.returncode, 3)
        self.assertIn("expected a decoder", done.stderr)
        self.assertEqual(self.generate().returncode, 2)


if __name__ == "__main__":
    main(Generate)
