#!/usr/bin/env python3
"""Runs the cases in cases/: wrong inputs, and the message and exit code that each must give (see README.md)."""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnx.parser

HERE = pathlib.Path(__file__).parent
MCC = os.path.abspath(os.environ.get("MCC", HERE.parents[1] / "build/bin/mcc"))


def read_case(path):
    """The sections of a case: [(title, text)], in order."""
    sections = []
    for line in path.read_text().splitlines():
        if line.startswith("== "):
            sections.append((line[3:], []))
        elif sections:
            sections[-1][1].append(line)
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"{path}: text before the first section")
    return [(title, "\n".join(lines).strip("\n")) for title, lines in sections]


def make_file(folder, title, text):
    name, *kind = title.split()
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if kind == ["hex"]:
        target.write_bytes(bytes.fromhex(text))
    elif name.endswith(".npy"):
        np.save(target, eval(text, {"np": np}))
    elif name.endswith(".onnx"):
        model = onnx.parser.parse_model(text)
        target.write_bytes(model.SerializeToString())
    else:
        target.write_text(text)


def run_case(path):
    """(exit code, stdout, stderr) of the last command; stderr says so if an earlier one failed."""
    sections = read_case(path)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        commands = []
        for title, text in sections:
            if title == "command":
                commands = text.splitlines()
            elif title not in ("exit", "stdout", "stderr"):
                make_file(folder, title, text)
        for i, command in enumerate(commands):
            words = shlex.split(command)
            words[0] = MCC if words[0] == "mcc" else words[0]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, errors="replace", timeout=300)
            if i + 1 < len(commands) and done.returncode != 0:
                return done.returncode, "", f"`{command}` failed: {done.stderr}"
        return done.returncode, done.stdout.strip("\n"), done.stderr.strip("\n")


def update(path, got):
    lines = []
    for title, text in read_case(path):
        text = got.get(title, text)
        lines += [f"== {title}", text]
    head = [line for line in path.read_text().split("== ", 1)[0].splitlines() if line]
    path.write_text("\n".join(head + lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    passed = failed = 0
    for path in sorted((HERE / "cases").glob("*.txt")):
        if arguments.names and path.stem not in arguments.names:
            continue
        expected = dict(read_case(path))
        code, stdout, stderr = run_case(path)
        got = {"exit": str(code), "stdout": stdout, "stderr": stderr}
        if arguments.update:
            update(path, got)
        different = [title for title in got if expected.get(title, got[title]) != got[title]]
        if arguments.update or not different:
            passed += 1
            continue
        failed += 1
        for title in different:
            print(f"{path.stem}: {title}\n--- expected\n{expected[title]}\n--- got\n{got[title]}\n")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
