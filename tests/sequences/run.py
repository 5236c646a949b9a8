#!/usr/bin/env python3
"""Sequences and optional values as inputs and outputs: compiled for each number of tensors, and run in one session; by `mcc verify` as test
folders; onnxruntime says what must come out. run.py [TEST...]"""

import json
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
import verify_folders  # noqa: E402
from folder_case import FolderCase, main  # noqa: E402
from session import Session  # noqa: E402

MCC = os.path.abspath(os.environ.get("MCC", pathlib.Path(__file__).parents[2] / "build/bin/mcc"))
HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'


def divided(name, value):
    """The tensors of a value, by their names in a library."""
    if value is None:
        return {}
    if isinstance(value, list):
        return {f"{name}[{i}]": tensor for i, tensor in enumerate(value)}
    return {name: value}


def options_for(feeds):
    """What has to be known of the inputs, whatever their sizes."""
    lengths = [f"--sequence-length={name}={len(value)}" for name, value in feeds.items() if isinstance(value, list)]
    return tuple(lengths + [f"--without={name}" for name, value in feeds.items() if value is None])


def shapes_for(feeds):
    tensors = {key: tensor for name, value in feeds.items() for key, tensor in divided(name, value).items()}
    return tuple(f"--input-shape={name}={'x'.join(map(str, tensor.shape))}" for name, tensor in tensors.items() if tensor.ndim)


class Case(FolderCase):
    def load(self, case):
        head = cases.BATCHED if case in cases.SCANS else HEAD
        model = onnx.parser.parse_model(head + case.__doc__)
        reference = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs = [output.name for output in model.graph.output]
        runs = [(feeds, dict(zip(outputs, reference.run(outputs, feeds)))) for feeds in case()]
        return model, runs

    def mcc(self, *arguments):
        done = subprocess.run([MCC, *map(str, arguments)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check_metadata(self, library, feeds, results):
        """That it says what became of sequences and optional values."""
        metadata = json.loads(self.mcc("inspect", library, "--json"))["metadata"]
        for word, values in (("input", feeds), ("output", results)):
            for name, value in values.items():
                length = metadata.get(f"{word}.{name}.sequence")
                self.assertEqual(length, str(len(value)) if isinstance(value, list) else None)
                if value is None:
                    self.assertEqual(metadata[f"{word}.{name}.optional"], "none")

    def check(self, case, *options, of_sizes=False, threads=1):
        model, runs = self.load(case)
        path, library = self.folder / f"{case.__name__}.onnx", self.folder / f"{case.__name__}.so"
        onnx.save(model, path)
        groups = {}
        for feeds, results in runs:
            groups.setdefault(options_for(feeds) + (shapes_for(feeds) if of_sizes else ()), []).append((feeds, results))
        for chosen, group in groups.items():
            self.mcc("compile", path, "-o", library, *chosen, *options)
            self.check_metadata(library, *group[0])
            session = Session(library, threads)
            for feeds, results in group + group[::-1]:
                want = {key: value for name, result in results.items() for key, value in divided(name, result).items()}
                inputs = {key: value for name, feed in feeds.items() for key, value in divided(name, feed).items()}
                for (name, value), got in zip(want.items(), session.run(inputs, list(want))):
                    with self.subTest(case=case.__name__, options=chosen, output=name):
                        self.assertEqual((value.dtype, value.shape), (got.dtype, got.shape))
                        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)
            session.close()

    def check_folders(self, case):
        model, runs = self.load(case)
        folder = self.folder / case.__name__
        for k, (feeds, results) in enumerate(runs):
            verify_folders.write(folder, model, feeds, results, number=k)
        self.mcc("verify", folder)
        self.mcc("verify", folder, "--open")
        if case not in cases.NOT_INTERPRETED:
            self.mcc("verify", folder, "--interpret")


class Sequences(Case):
    pass


def add_tests():
    for case in cases.ALL:
        name = f"test_{case.__name__}"
        setattr(Sequences, name, lambda self, case=case: self.check(case))
        setattr(Sequences, f"{name}_plain", lambda self, case=case: self.check(case, "-O0", threads=2))
        setattr(Sequences, f"{name}_of_sizes", lambda self, case=case: self.check(case, "--strict", of_sizes=True))
    for case in cases.ALL + cases.STRINGS:
        setattr(Sequences, f"test_{case.__name__}_folders", lambda self, case=case: self.check_folders(case))


add_tests()
if __name__ == "__main__":
    main(Sequences)
