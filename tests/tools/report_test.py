#!/usr/bin/env python3
"""The page of `mcc log report` in a real browser: its script runs, its plots are drawn, and nothing is asked of the net."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import unittest
import zlib

from tune_test import MCC, model

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


def pixels(path):
    """Width and the rows of an 8-bit RGB or RGBA PNG file."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and color in (2, 6)
            channels = 3 if color == 2 else 4
        if kind == b"IDAT":
            packed += body
        at += 12 + length
    raw, stride = zlib.decompress(packed), width * channels
    rows, before = [], bytearray(stride)
    for y in range(height):
        kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            a = row[i - channels] if i >= channels else 0
            b = before[i]
            c = before[i - channels] if i >= channels else 0
            p = a + b - c
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            row[i] = (row[i] + (0, a, b, (a + b) // 2, paeth)[kind]) & 255
        rows.append(row)
        before = row
    return width, height, channels, rows


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        (cls.folder / "model.onnx").write_bytes(model().SerializeToString())
        cls.mcc("tune", "model.onnx", "--tune-log", "log.json", "--trials", "80", "--no-check")
        cls.mcc("log", "report", "log.json", "-o", "report.html")
        cls.page = (cls.folder / "report.html").read_text()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def mcc(cls, *words):
        done = subprocess.run([MCC, *words], capture_output=True, text=True, cwd=cls.folder, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def browse(self, *options):
        return subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             f"--user-data-dir={self.folder}/profile", *options, (self.folder / "report.html").as_uri()],
            capture_output=True, text=True, timeout=180)

    def test_is_self_contained(self):
        markup = re.sub(r"<script.*?</script>", "", self.page, flags=re.S)
        self.assertNotRegex(markup, r"(src|href)\s*=")
        self.assertNotIn("@import", markup)

    def test_shows_every_task(self):
        data = json.loads(self.mcc("log", "report", "log.json", "--json"))
        self.assertGreaterEqual(len(data["tasks"]), 2)
        # What the log has, but for what the races measured again; fewer than asked for where the search had nothing left to gain.
        trials = {(r["task"], r["trace"]) for r in map(json.loads, (self.folder / "log.json").read_text().splitlines()) if r["kind"] == "trial"}
        self.assertGreater(len(trials), 20)
        self.assertEqual(sum(len(t["trials"]) for t in data["tasks"]), len(trials))
        for task in data["tasks"]:
            self.assertGreater(task["best_us"], 0)
            self.assertGreater(task["bound_us"], 0)
            self.assertLessEqual(task["best_us"], task["default_us"])
            self.assertTrue(any(t["footprint"] for t in task["trials"]))
            self.assertAlmostEqual(task["roofline_share"], task["bound_us"] / task["best_us"])

    def test_rates_the_cost_models(self):
        data = json.loads(self.mcc("log", "report", "log.json", "--json", "--cost-model", "analyzer"))
        self.assertEqual([m["model"] for m in data["models"]], ["analyzer", "xgboost", "auto"])
        for model in data["models"]:
            self.assertEqual(model["count"] > 0, model["tasks"] > 0)
            for measure in ("pairwise", "recall", "peak1", "peak5"):
                self.assertTrue(0 <= model[measure] <= 1, model)
            self.assertLessEqual(model["peak1"], model["peak5"])
        # The measures again, from the scores and times that the plots show.
        task = next(t for t in data["tasks"] if t["quality"] and not any(r["error"] != "none" for r in t["trials"]))
        points = [(r["predicted"], r["us"]) for r in task["trials"]]
        if task["quality"]["count"] == len(points):
            pairs = [(a, b) for i, a in enumerate(points) for b in points[i + 1:] if a[1] != b[1]]
            right = sum(0.5 if a[0] == b[0] else (a[0] > b[0]) == (a[1] < b[1]) for a, b in pairs)
            self.assertAlmostEqual(task["quality"]["pairwise"], right / len(pairs))
        done = subprocess.run([MCC, "log", "report", "log.json", "--json", "--cost-model", "magic"], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 2)

    @unittest.skipIf(BROWSER is None, "no browser (chromium) is installed")
    def test_runs_in_a_browser(self):
        dom = self.browse("--dump-dom").stdout
        self.assertIn('data-ready="yes"', dom)
        rows = re.findall(r'id="row_[0-9a-f]+"', dom)
        data = json.loads(self.mcc("log", "report", "log.json", "--json"))
        self.assertEqual(len(rows), len(data["tasks"]))

    @unittest.skipIf(BROWSER is None, "no browser (chromium) is installed")
    def test_draws(self):
        picture = self.folder / "report.png"
        self.browse("--window-size=1000,1700", f"--screenshot={picture}")
        width, height, channels, rows = pixels(picture)
        # Lines and bars in the colours of the plots, below the table.
        colors = {(11, 110, 153): 0, (217, 115, 13): 0, (68, 131, 97): 0}
        for row in rows:
            for x in range(0, width * channels, channels):
                color = (row[x], row[x + 1], row[x + 2])
                if color in colors:
                    colors[color] += 1
        for color, count in colors.items():
            self.assertGreater(count, 50, f"nothing is drawn in {color}")


if __name__ == "__main__":
    unittest.main()
