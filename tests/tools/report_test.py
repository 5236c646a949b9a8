#!/usr/bin/env python3
"""The pages of `mcc log report` and `mcc compile --report` in a real browser: their scripts run, plots are drawn, nothing is asked of the net."""

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


class Page(unittest.TestCase):
    """A folder with a model, the program, and a browser that looks at report.html."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        (cls.folder / "model.onnx").write_bytes(model().SerializeToString())

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

    def expect_colors(self, height, *expected):
        """Lines and bars in the colours of the plots."""
        picture = self.folder / "report.png"
        self.browse(f"--window-size=1000,{height}", f"--screenshot={picture}")
        width, height, channels, rows = pixels(picture)
        colors = dict.fromkeys(expected, 0)
        for row in rows:
            for x in range(0, width * channels, channels):
                color = (row[x], row[x + 1], row[x + 2])
                if color in colors:
                    colors[color] += 1
        for color, count in colors.items():
            self.assertGreater(count, 50, f"nothing is drawn in {color}")

    def expect_self_contained(self):
        markup = re.sub(r"<script.*?</script>", "", (self.folder / "report.html").read_text(), flags=re.S)
        self.assertNotRegex(markup, r"(src|href)\s*=")
        self.assertNotIn("@import", markup)


class Report(Page):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mcc("tune", "model.onnx", "--tune-log", "log.json", "--trials", "80", "--no-check")
        cls.mcc("log", "report", "log.json", "-o", "report.html")

    def test_is_self_contained(self):
        self.expect_self_contained()

    def test_shows_every_task(self):
        data = json.loads(self.mcc("log", "report", "log.json", "--json"))
        self.assertGreaterEqual(len(data["tasks"]), 2)
        self.assertEqual(sum(len(t["trials"]) for t in data["tasks"]), 80)
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
        self.assertEqual(task["quality"]["count"], len(points))
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
        self.expect_colors(1700, (11, 110, 153), (217, 115, 13), (68, 131, 97))


class CompileReport(Page):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mcc("compile", "model.onnx", "--report", "report.html", "-o", "model.so")
        page = (cls.folder / "report.html").read_text()
        cls.data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.S)[1])

    def test_is_self_contained(self):
        self.expect_self_contained()

    def test_says_what_the_library_has(self):
        library = json.loads(self.mcc("inspect", "model.so", "--json"))
        self.assertEqual([k["id"] for k in self.data["kernels"]], [k["task"] for k in library["schedules"]["kernels"]])
        self.assertEqual(len(self.data["steps"]), library["nodes"])
        self.assertEqual(sum(k["count"] for k in self.data["kernels"]), library["nodes"])
        self.assertEqual(self.data["weight_bytes"], library["weight_bytes"])
        # The arena holds what is alive at any time, and without gaps no more.
        self.assertEqual(max(s["live_bytes"] for s in self.data["steps"]), library["arena_bytes"])
        self.assertEqual(sorted(n for k in self.data["kernels"] for n in k["nodes"]), ["bias", "product", "relu", "second", "softmax"])
        # 32 x 48 x 64 and 32 x 64 x 24 multiplications and additions, and some of the epilogues.
        flops = sum(k["flops"] * k["count"] for k in self.data["kernels"])
        products = 2 * 32 * 64 * (48 + 24)
        self.assertTrue(products < flops < 1.1 * products, flops)

    def test_is_the_same_each_time(self):
        page = (self.folder / "report.html").read_bytes()
        self.mcc("compile", "model.onnx", "--report", "again.html", "-o", "model.so")
        self.assertEqual((self.folder / "again.html").read_bytes(), page)

    def test_needs_a_place_to_write(self):
        done = subprocess.run([MCC, "compile", "model.onnx", "--report", "nowhere/page.html", "-o", "model.so"], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 5)
        self.assertIn("nowhere/page.html: cannot be written", done.stderr)

    @unittest.skipIf(BROWSER is None, "no browser (chromium) is installed")
    def test_draws(self):
        dom = self.browse("--dump-dom").stdout
        self.assertIn('data-ready="yes"', dom)
        self.assertEqual(len(re.findall(r'id="row_[0-9a-f]+"', dom)), len(self.data["kernels"]))
        self.expect_colors(1200, (11, 110, 153), (217, 115, 13), (68, 131, 97))


if __name__ == "__main__":
    unittest.main()
