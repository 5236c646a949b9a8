#!/usr/bin/env python3
"""ONNX's tests of backends through `mcc verify`: counts, a table, and a floor under which the number of passes may not drop."""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import warnings

import onnx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import verify_folders  # noqa: E402

# Of single operators; of small models; of what PyTorch once exported.
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")

FLOOR = 2003
OPEN_FLOOR = 185  # of every eighth test with its dimensions open

# Tests whose results numpy's generator has drawn: nobody else's can be the same. What ours have to be tests/random says.
DRAWN = re.compile(r"test_(bernoulli(_double|_seed)?(_expanded)?|training_dropout(_default)?(_mask)?)$")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MCC_BUILD_DIR", ROOT / "build"))
MCC = os.environ.get("MCC", str(BUILD / "bin/mcc"))


def write_test(test, folder):
    if test.model_dir:
        shutil.copytree(test.model_dir, folder)
        (folder / "data.json").write_text(json.dumps({"rtol": test.rtol, "atol": test.atol}))
        return
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(test.model.SerializeToString())
    (folder / "data.json").write_text(json.dumps({"rtol": test.rtol, "atol": test.atol}))
    for k, data in enumerate(test.data_sets):
        target = folder / f"test_data_set_{k}"
        target.mkdir()
        for word, values, infos in zip(("input", "output"), data, (test.model.graph.input, test.model.graph.output)):
            for i, value in enumerate(values):
                (target / f"{word}_{i}.pb").write_bytes(verify_folders.to_bytes(value, infos[i]))


def make_open_cases(cases, folder):
    shutil.rmtree(folder, ignore_errors=True)
    for case in map(pathlib.Path, cases):
        target = folder / case.name
        shutil.copytree(case, target)
        model = onnx.load(target / "model.onnx")
        verify_folders.open_dimensions(model)
        onnx.save(model, target / "model.onnx")
    return [str(folder / pathlib.Path(case).name) for case in cases]


def make_cases(folder):
    """Writes the tests once for each version of the onnx package."""
    stamp, contents = folder / ".complete", " ".join((onnx.__version__, *KINDS))
    if stamp.exists() and stamp.read_text() == contents:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        for test in (test for kind in KINDS for test in load_model_tests(kind=kind)):
            try:
                write_test(test, folder / test.name)
            except (ValueError, TypeError, NotImplementedError) as error:
                print(f"{test.name}: its data cannot be written: {error}", file=sys.stderr)
    stamp.write_text(contents)


def set_drawn_apart(report):
    """Results that are compared, and differ as they must, are no failures."""
    for case in report["cases"]:
        if DRAWN.match(case["name"]) and case["status"] == "fail" and "elements differ" in case["reason"]:
            case |= {"status": "drawn", "reason": ""}
            report["failed"] -= 1


def status_text(case):
    return "pass, fixed" if case["status"] == "pass" and case.get("fixed_inputs") else case["status"]


def table(report, onnx_version):
    counts = collections.Counter(status_text(case) for case in report["cases"])
    lines = [
        "# ONNX conformance",
        "",
        f"The {len(report['cases'])} tests for backends of onnx {onnx_version} ({', '.join(KINDS)}), compiled for the CPU and run by `mcc verify`.",
        "Written by `tests/conformance/run.py --write`.",
        "",
        "| status | tests | meaning |",
        "|---|---|---|",
    ]
    meanings = {
        "pass": "the outputs agree",
        "pass, fixed": "the outputs agree; compiled for the given value of an input that decides a shape",
        "drawn": "random numbers: of the expected type and shape, but the test's were drawn by numpy",
        "unsupported": "refused with a message",
        "fail": "a wrong answer",
        "crash": "a bug of mcc",
    }
    lines += [f"| {status} | {counts[status]} | {meaning} |" for status, meaning in meanings.items()]
    lines += ["", "| test | status | message |", "|---|---|---|"]
    for case in sorted(report["cases"], key=lambda c: c["name"]):
        reason = case["reason"].replace("|", "\\|")
        if case.get("fixed_inputs"):
            reason = f"fixed: {', '.join(case['fixed_inputs'])} {reason}".strip()
        lines.append(f"| {case['name'].removeprefix('test_')} | {status_text(case)} | {reason} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/conformance.md")
    parser.add_argument("--interpret", action="store_true")
    parser.add_argument("--filter", default="", metavar="RE")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="for a GPU, on a stand-in driver that runs the PTX; every fourth test")
    parser.add_argument("--open", action="store_true", help="with the dimensions of inputs open; every eighth test")
    arguments = parser.parse_args()

    folder = BUILD / "conformance"
    make_cases(folder)
    cases = sorted(str(f) for f in folder.iterdir() if f.is_dir() and re.search(arguments.filter, f.name))
    command = [MCC, "verify", "--json", "--jobs", str(arguments.jobs)] + ["--interpret"] * arguments.interpret
    environment = dict(os.environ)
    if arguments.gpu:
        command += ["--target", "cuda:sm_80"]
        environment |= {"LD_LIBRARY_PATH": str(BUILD / "tests/fake_cuda"), "FAKE_CUDA_RUN": "1"}
        cases = cases if arguments.filter else cases[::4]
    if arguments.open:
        command += ["--open"]
        cases = make_open_cases(cases if arguments.filter else cases[1::8], BUILD / "conformance_open")
    done = subprocess.run(command + cases, stdout=subprocess.PIPE, text=True, env=environment)
    report = json.loads(done.stdout)
    set_drawn_apart(report)
    if not arguments.gpu and not arguments.open:
        (BUILD / "conformance.json").write_text(done.stdout)
    if arguments.write:
        (ROOT / "docs").mkdir(exist_ok=True)
        (ROOT / "docs/conformance.md").write_text(table(report, onnx.__version__))

    for case in report["cases"]:
        if case["status"] in ("fail", "crash"):
            print(f"{case['status']} {case['name']}: {case['reason']}")
    print(f"{report['passed_with_fixed_inputs']} of the passes with inputs fixed, {report['unsupported']} unsupported")
    wrong = report["failed"] + report["crashed"]
    floor = FLOOR // 4 - 20 if arguments.gpu else OPEN_FLOOR if arguments.open else FLOOR
    if not arguments.filter and report["passed"] < floor:
        print(f"only {report['passed']} pass; the floor is {floor}")
        wrong += 1
    print(f"{report['passed']} passed, {wrong} failed, {report['unsupported']} skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
