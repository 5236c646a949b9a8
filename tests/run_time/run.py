#!/usr/bin/env python3
"""Sizes and control flow that data decides, in one session of the compiled model after the other; onnxruntime says what must come out."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime

import cases

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dynamic"))
from folder_case import FolderCase, main  # noqa: E402
from session import RunError, Session  # noqa: E402

MCC = os.path.abspath(os.environ.get("MCC", pathlib.Path(__file__).parents[2] / "build/bin/mcc"))
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


class RunTimeCase(FolderCase):
    def compile(self, case, *options):
        model = onnx.parser.parse_model(HEAD + case.__doc__)
        path = self.folder / f"{case.__name__}.onnx"
        onnx.save(model, path)
        library = self.folder / f"{case.__name__}.so"
        done = subprocess.run([MCC, "compile", path, "-o", library, *options], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path, library, [output.name for output in model.graph.output]

    def check(self, case, *options, threads=1):
        path, library, outputs = self.compile(case, *options)
        reference = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        session = Session(library, threads)
        inputs = case()
        for feeds in inputs + inputs[::-1]:
            feeds, known = feeds if isinstance(feeds, tuple) else (feeds, None)
            with self.subTest(case=case.__name__, **{name: str(value) for name, value in feeds.items() if value.size < 8}):
                for want, got in zip(known or reference.run(outputs, feeds), session.run(feeds, outputs)):
                    self.assertEqual(want.dtype, got.dtype)
                    self.assertEqual(want.shape, got.shape)
                    rtol = 2e-3 if want.dtype == np.float16 else 1e-4
                    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol / 10)
        session.close()

    def check_refused(self, case, *options):
        message, feeds = case()
        path, library, outputs = self.compile(case, *options)
        session = Session(library, 1)
        with self.assertRaisesRegex(RunError, message):
            session.run(feeds, outputs)
        session.close()


class RunTime(RunTimeCase):
    pass


def add_tests():
    for case in cases.ALL:
        setattr(RunTime, f"test_{case.__name__}", lambda self, case=case: self.check(case))
        setattr(RunTime, f"test_{case.__name__}_plain", lambda self, case=case: self.check(case, "-O0", threads=2))
    for case in cases.REFUSED:
        setattr(RunTime, f"test_refuses_{case.__name__}", lambda self, case=case: self.check_refused(case))


add_tests()
if __name__ == "__main__":
    main(RunTime)
