#!/usr/bin/env python3
"""Compile a trained text-recognition model with mcc, let it read a picture, and time it beside onnxruntime."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TEXT = "The quick brown fox, compiled at 7:42"
MODEL_IN_WHEEL = "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--text", default=TEXT, help="what to draw into the picture (default: %(default)r)")
    parser.add_argument("--picture", metavar="FILE", help="read this picture of one line of text instead")
    parser.add_argument("--out", default=ROOT / "build/demo", metavar="DIR", help="(default: build/demo)")
    parser.add_argument("--mcc", default=ROOT / "build/bin/mcc", metavar="PATH", help="(default: build/bin/mcc)")
    parser.add_argument("--deps", default=ROOT / ".deps", metavar="DIR", help="where the downloaded model is kept")
    parser.add_argument("--seconds", type=float, default=2.0, help="timing per runtime and thread count (default: 2)")
    parser.add_argument("--without-mcc", action="store_true", help="let onnxruntime compute the answer: checks the demo itself")
    options = parser.parse_args()
    if options.picture and not os.path.isfile(options.picture):
        parser.error(f"--picture: there is no file {options.picture}")
    return options


def short_path(word):
    """A path below the current folder, relative to it; anything else as it is."""
    return os.path.relpath(word) if str(word).startswith(os.getcwd() + os.sep) else str(word)


def call(*command, show=True):
    """Runs a command and shows it; returns its stdout. Ends the demo when the command fails."""
    words = [str(word) for word in command]
    if show:
        print("  $ " + " ".join(map(short_path, words)), flush=True)
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"error: exit code {done.returncode} from: {' '.join(words)}")
    return done.stdout


def fetch_model(folder):
    """The model's path; downloads the wheel that carries it the first time (pip checks its hash)."""
    model = folder / "ppocrv4_rec.onnx"
    if not model.exists():
        download = folder / "download"
        shutil.rmtree(download, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                        "--python-version", "3.11", "--only-binary=:all:", "-r", HERE / "model.txt", "-d", download], check=True)
        with zipfile.ZipFile(next(download.glob("*.whl"))) as wheel:
            part = model.with_suffix(".part")
            part.write_bytes(wheel.read(MODEL_IN_WHEEL))
        part.replace(model)
        shutil.rmtree(download)
    return model


def onnxruntime_session(model, threads=0):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def time_onnxruntime(model, image, threads, seconds):
    """Milliseconds: the fastest run and the median one."""
    session = onnxruntime_session(model, threads)
    feeds, times, clock = {session.get_inputs()[0].name: image}, [], time.perf_counter
    session.run(None, feeds)
    end = clock() + seconds
    while len(times) < 5 or clock() < end:
        start = clock()
        session.run(None, feeds)
        times.append((clock() - start) * 1e3)
    return min(times), sorted(times)[len(times) // 2]


def time_mcc(mcc, library, threads, seconds):
    report = json.loads(call(mcc, "bench", library, "--seconds", seconds, "--threads", threads, "--json", show=False))
    return report["min_ms"], report["median_ms"]


def compare_speed(options, model, library, image):
    print("\nLatency on this picture, ms (fastest run / median):")
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        # Turn by turn, so that a busy moment of the machine hits both.
        turns = 3
        ours, theirs = [], []
        for _ in range(turns):
            ours.append(time_mcc(options.mcc, library, threads, options.seconds / turns))
            theirs.append(time_onnxruntime(model, image, threads, options.seconds / turns))
        shown = [f"{min(t[0] for t in of):.2f} / {sorted(t[1] for t in of)[turns // 2]:.2f}" for of in (ours, theirs)]
        print(f"  {threads} thread{'s' if threads > 1 else ' '}   mcc {shown[0]}   onnxruntime {shown[1]}", flush=True)


def compile_and_run(options, model, image, out):
    """(the network's answer, the library)"""
    import numpy as np

    image_file, library = out / "input.npy", out / "ocr.so"
    np.save(image_file, image)
    shape = "x".join(map(str, image.shape))
    start = time.perf_counter()
    call(options.mcc, "compile", model, "-o", library, "--input-shape", f"x={shape}")
    print(f"  compiled in {time.perf_counter() - start:.1f} s, {library.stat().st_size / 2**20:.1f} MB")
    call(options.mcc, "run", library, "--input", f"x={image_file}", "--output-dir", out)
    return np.load(out / "output_0.npy"), library


def main():
    options = parse_arguments()
    # After the arguments: `--help` works without the demo's Python packages.
    from PIL import Image

    import ocr

    out, models = pathlib.Path(options.out).resolve(), pathlib.Path(options.deps).resolve() / "demo-model"
    out.mkdir(parents=True, exist_ok=True)
    models.mkdir(parents=True, exist_ok=True)
    model = fetch_model(models)

    if options.picture:
        picture_file, picture = options.picture, Image.open(options.picture)
    else:
        picture_file, picture = out / "picture.png", ocr.draw_line(options.text)
        picture.save(picture_file)
    image = ocr.to_input(picture)
    session = onnxruntime_session(model)
    # The dictionary stands in the model's own metadata, one character per line.
    characters = session.get_modelmeta().custom_metadata_map["character"].splitlines()

    if options.without_mcc:
        answer, library = session.run(None, {"x": image})[0], None
    else:
        answer, library = compile_and_run(options, model, image, out)
    text, confidence = ocr.to_text(answer, characters)
    print(f"\nPicture:    {short_path(picture_file)}")
    if not options.picture:
        print(f"Drawn:      {options.text}")
    print(f"Text read:  {text}   ({confidence * 100:.1f} % sure)", flush=True)
    if library:
        compare_speed(options, model, library, image)
    if not options.picture and options.text == TEXT and text != TEXT:
        sys.exit("error: the text read is not the text drawn")


if __name__ == "__main__":
    main()
