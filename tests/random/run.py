#!/usr/bin/env python3
"""Random numbers of compiled models: element by element what philox.py gives, and distributions as they should be. run.py [TEST...]"""

import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime

import philox

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dynamic"))
from folder_case import FolderCase, main  # noqa: E402
from session import Session  # noqa: E402

MCC = os.path.abspath(os.environ.get("MCC", pathlib.Path(__file__).parents[2] / "build/bin/mcc"))
HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
SEED = 20240607


class Random(FolderCase):
    OPTIONS = ()
    MANY = 200_000  # numbers of a distribution's test

    # Each under a name of its own: a loaded library is not loaded again.
    def compile(self, text, *options):
        name = f"model_{len(list(self.folder.glob('*.onnx')))}"
        model = onnx.parser.parse_model(HEAD + text)
        onnx.checker.check_model(model)
        path, library = self.folder / f"{name}.onnx", self.folder / f"{name}.so"
        onnx.save(model, path)
        done = subprocess.run([MCC, "compile", path, "-o", library, *self.OPTIONS, *options], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        return library, [output.name for output in model.graph.output]

    def runs(self, text, feeds={}, count=1, seed=SEED, threads=1, options=()):
        """The outputs of the first `count` runs of a session: a list for each run; feeds are the same, or one for each."""
        library, outputs = self.compile(text, *options)
        session = Session(library, threads, seed=seed)
        results = [session.run(feeds[k] if isinstance(feeds, list) else feeds, outputs) for k in range(count)]
        session.close()
        return results

    def one(self, text, feeds={}, **how):
        return self.runs(text, feeds, **how)[0]

    def check_mean(self, x, mean, deviation):
        """The mean of independent numbers, within five deviations."""
        self.assertLess(abs(np.mean(x, dtype=np.float64) - mean), 5 * deviation / math.sqrt(x.size))

    def check_uncorrelated(self, x, y):
        x, y = x.astype(np.float64).ravel() - x.mean(), y.astype(np.float64).ravel() - y.mean()
        self.assertLess(abs((x * y).mean()) / (x.std() * y.std()), 5 / math.sqrt(x.size))

    def check_distribution(self, x, cumulative):
        """Kolmogorov and Smirnov's test; 1.95 is exceeded once in a thousand times, and the seed is fixed."""
        x = np.sort(x.astype(np.float64).ravel())
        n = x.size
        expected = cumulative(x)
        distance = max((np.arange(1, n + 1) / n - expected).max(), (expected - np.arange(n) / n).max())
        self.assertLess(distance * math.sqrt(n), 1.95)

    # ---- The numbers themselves ----

    def test_known_answers(self):
        for counter, key, block in philox.KNOWN:
            self.assertEqual(tuple(int(word) for word in philox.block(counter, key)), block)

    def test_uniform(self):
        text = "g () => (float[7,33] y, double[5,9] z) { y = RandomUniform<shape=[7,33]>() z = RandomUniform<shape=[5,9], dtype=11>() }"
        for options in ((), ("-O0",), ("--strict",)):
            for k, (y, z) in enumerate(self.runs(text, count=3, options=options)):
                np.testing.assert_array_equal(y, philox.uniform((7, 33), SEED, 0, k))
                np.testing.assert_array_equal(z, philox.uniform((5, 9), SEED, 1, k, np.float64))

    def test_normal(self):
        text = "g () => (float[7,33] y, double[5,9] z) { y = RandomNormal<shape=[7,33]>() z = RandomNormal<shape=[5,9], dtype=11>() }"
        for options in ((), ("-O0",), ("--strict",)):
            for k, (y, z) in enumerate(self.runs(text, count=3, options=options)):
                np.testing.assert_allclose(y, philox.normal((7, 33), SEED, 0, k), rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(z, philox.normal((5, 9), SEED, 1, k, np.float64), rtol=1e-12, atol=1e-14)

    def test_parameters_and_types(self):
        text = """g (float[40] x) => (float[40] a, float16[40] b, double[40] c, float[40] d) {
            a = RandomUniformLike<low=-3.0, high=5.0>(x)
            b = RandomNormalLike<mean=2.0, scale=0.5, dtype=10>(x)
            c = RandomNormalLike<mean=-1.0, scale=3.0, dtype=11>(x)
            bf = RandomUniformLike<dtype=16>(x)
            d = Cast<to=1>(bf) }"""
        a, b, c, d = self.one(text, {"x": np.zeros(40, np.float32)})
        np.testing.assert_allclose(a, philox.uniform(40, SEED, 0) * 8 - 3, atol=1e-6)
        np.testing.assert_allclose(b, (philox.normal(40, SEED, 1) * 0.5 + 2).astype(np.float16), rtol=2e-3)
        np.testing.assert_allclose(c, philox.normal(40, SEED, 2, 0, np.float64) * 3 - 1, rtol=1e-12)
        np.testing.assert_allclose(d, philox.uniform(40, SEED, 3), rtol=4e-3)

    def test_types_of_like(self):
        text = "g (float16[6] h, double[6] d) => (float16[6] y, double[6] z) { y = RandomUniformLike(h) z = RandomNormalLike(d) }"
        y, z = self.one(text, {"h": np.zeros(6, np.float16), "d": np.zeros(6)})
        np.testing.assert_array_equal(y, philox.uniform(6, SEED, 0).astype(np.float16))
        np.testing.assert_allclose(z, philox.normal(6, SEED, 1, 0, np.float64), rtol=1e-12)

    # Rounding to fewer digits would make the end of the interval of one number in some thousands.
    def test_uniform_never_gives_the_end(self):
        n = self.MANY
        text = f"""g () => (float[{n}] a, float[{n}] b, float[{n}] c) {{
            x = RandomUniform<shape=[{n}], dtype=10>() a = Cast<to=1>(x)
            b = RandomUniform<shape=[{n}], low=1.0, high=1.0000004>()
            z = RandomUniform<shape=[{n}], low=-2.0, high=-1.0, dtype=16>() c = Cast<to=1>(z) }}"""
        a, b, c = self.one(text)
        for x, low, high in ((a, 0, 1), (b, 1, np.float32(1.0000004)), (c, -2, -1)):
            self.assertGreaterEqual(x.min(), low)
            self.assertLess(x.max(), high)

    def test_threads_make_no_difference(self):
        text = f"g () => (float[3, {self.MANY}] y) {{ y = RandomNormal<shape=[3, {self.MANY}]>() }}"
        (one,), (two,) = self.one(text, threads=1), self.one(text, threads=2)
        np.testing.assert_array_equal(one, two)

    def test_empty_and_scalar(self):
        text = "g (float[0,3] x, float s) => (float[0,3] a, float b) { a = RandomNormalLike(x) b = RandomUniformLike(s) }"
        a, b = self.one(text, {"x": np.zeros((0, 3), np.float32), "s": np.array(0, np.float32)})
        self.assertEqual(a.shape, (0, 3))
        np.testing.assert_array_equal(b, philox.uniform((), SEED, 1))

    def test_open_shapes(self):
        text = "g (float[N,M,3] x) => (float[N,M,3] y) { z = RandomNormalLike(x) y = Add(x, z) }"
        shapes = [(2, 5, 3), (1, 1, 3), (3, 17, 3), (2, 5, 3)]
        feeds = [{"x": np.full(shape, 10, np.float32)} for shape in shapes]
        for options in ((), ("--dim", "N=1..8")):
            for k, (shape, (y,)) in enumerate(zip(shapes, self.runs(text, feeds, len(shapes), options=options))):
                np.testing.assert_allclose(y, 10 + philox.normal(shape, SEED, 0, k), rtol=1e-6)

    # ---- Seeds ----

    def test_seeds_of_nodes(self):
        text = """g () => (float[50] a, float[50] b, float[50] c) {
            a = RandomNormal<shape=[50], seed=3.5>() b = RandomUniform<shape=[50], seed=3.5>() c = RandomUniform<shape=[50]>() }"""
        for seed in (1, 2):
            for k, (a, b, c) in enumerate(self.runs(text, count=2, seed=seed)):
                np.testing.assert_allclose(a, philox.normal(50, philox.key_of(3.5), 0, k), rtol=1e-5, atol=1e-6)
                np.testing.assert_array_equal(b, philox.uniform(50, philox.key_of(3.5), 1, k))
                np.testing.assert_array_equal(c, philox.uniform(50, seed, 2, k))

    def test_sessions_without_a_seed_differ(self):
        text = "g () => (float[50] a) { a = RandomUniform<shape=[50]>() }"
        (a,), (b,) = self.one(text, seed=None), self.one(text, seed=None)
        self.assertTrue((a != b).any())

    def test_seed_of_the_command_line(self):
        library, _ = self.compile("g () => (float[50] a) { a = RandomUniform<shape=[50]>() }")
        results = []
        for options in (["--seed", "7"], ["--seed", "7"], ["--seed", "8"], [], []):
            subprocess.run([MCC, "run", library, "--output-dir", self.folder, *options], check=True, capture_output=True)
            results.append(np.load(self.folder / "output_0.npy"))
        np.testing.assert_array_equal(results[0], philox.uniform(50, 7))
        np.testing.assert_array_equal(results[0], results[1])
        for i, j in ((1, 2), (2, 3), (3, 4)):
            self.assertTrue((results[i] != results[j]).any())

    # ---- What passes must not do: merge, fold, compute twice in different ways ----

    def test_equal_nodes_are_not_merged(self):
        a, b = self.one("g () => (float[99] a, float[99] b) { a = RandomUniform<shape=[99], seed=1.0>() b = RandomUniform<shape=[99], seed=1.0>() }")
        self.assertTrue((a != b).all())

    def test_all_users_see_the_same_numbers(self):
        text = """g (float[4,4] w) => (float[8,4] x, float[8,4] zero, float[8,4] product, float[4] sum) {
            x = RandomNormal<shape=[8,4]>() t = Transpose<perm=[1,0]>(x) y = Transpose<perm=[1,0]>(t) e = Exp(y) l = Log(e) zero = Sub(l, x)
            product = MatMul(x, w) axes = Constant<value_ints=[0]>() sum = ReduceSum<keepdims=0>(y, axes) }"""
        w = np.arange(16, dtype=np.float32).reshape(4, 4)
        for options in ((), ("-O0",)):
            x, zero, product, total = self.one(text, {"w": w}, options=options)
            np.testing.assert_allclose(zero, 0, atol=1e-5)
            np.testing.assert_allclose(product, x @ w, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(total, x.sum(0), rtol=1e-4, atol=1e-5)

    def test_fuses_with_what_is_around(self):
        text = """g (float[2,3,N] m, float[2,3,N] s) => (float[2,3,N] z) {
            e = Exp(s) n = RandomNormalLike(m) c = Constant<value_float=0.667>() a = Mul(n, e) b = Mul(a, c) z = Add(m, b) }"""
        m, s = (np.linspace(-1, 1, 66, dtype=np.float32).reshape(2, 3, 11) for _ in range(2))
        (z,) = self.one(text, {"m": m, "s": s})
        np.testing.assert_allclose(z, m + philox.normal(m.shape, SEED) * np.exp(s) * np.float32(0.667), rtol=1e-5, atol=1e-6)

    # ---- Control flow ----

    def test_iterations_draw_anew(self):
        text = """g (int64 n, float[5] x) => (float[5] y, float[T,5] all) {
            t = Constant<value = bool {1}>()
            y, all = Loop(n, t, x) <body = b (int64 i, bool c, float[5] s) => (bool d, float[5] u, float[5] r) {
                d = Identity(c) r = RandomUniformLike(s) u = Add(s, r) }> }"""
        feeds = [{"n": np.array(k, np.int64), "x": np.zeros(5, np.float32)} for k in (3, 2, 4)]
        for options in ((), ("-O0",)):
            execution = 0
            for f, (y, every) in zip(feeds, self.runs(text, feeds, 3, options=options)):
                n = int(f["n"])
                want = np.stack([philox.uniform(5, SEED, 0, execution + i) for i in range(n)])
                np.testing.assert_array_equal(every, want)
                np.testing.assert_allclose(y, want.sum(0), rtol=1e-6)
                execution += n

    def test_iterations_of_a_known_number_draw_anew(self):
        text = """g (float[5] x) => (float[4,5] all) {
            n = Constant<value = int64 {4}>() t = Constant<value = bool {1}>()
            y, all = Loop(n, t, x) <body = b (int64 i, bool c, float[5] s) => (bool d, float[5] u, float[5] r) {
                d = Identity(c) r = RandomUniformLike(s) u = Add(s, r) }> }"""
        (every,) = self.one(text, {"x": np.zeros(5, np.float32)})
        self.assertEqual(len(np.unique(every)), 20)

    def test_loops_in_loops_draw_anew(self):
        text = """g (int64 n, int64 m, float[3] x) => (float[A,B,3] all) {
            t = Constant<value = bool {1}>()
            all = Loop(n, t) <body = outer (int64 i, bool c) => (bool d, float[B,3] rows) {
                d = Identity(c)
                rows = Loop(m, t) <body = inner (int64 j, bool e) => (bool f, float[3] r) { f = Identity(e) r = RandomUniformLike(x) }> }> }"""
        (every,) = self.one(text, {"n": np.array(3, np.int64), "m": np.array(2, np.int64), "x": np.zeros(3, np.float32)})
        self.assertEqual(every.shape, (3, 2, 3))
        np.testing.assert_array_equal(every.reshape(6, 3), np.stack([philox.uniform(3, SEED, 0, k) for k in range(6)]))

    def test_branches(self):
        text = """g (bool c) => (float[6] y) {
            y = If(c) <then_branch = t () => (float[6] a) { a = RandomUniform<shape=[6]>() },
                       else_branch = e () => (float[6] b) { b = RandomNormal<shape=[6]>() }> }"""
        conditions = [True, False, True, True, False]
        seen = {True: 0, False: 0}
        for condition, (y,) in zip(conditions, self.runs(text, [{"c": np.array(c)} for c in conditions], 5)):
            k = seen[condition] if not self.OPTIONS else None
            if k is not None:  # GPUs run both branches
                want = philox.uniform(6, SEED, 0, k) if condition else philox.normal(6, SEED, 1, k)
                np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
            seen[condition] += 1
            self.assertTrue(np.isfinite(y).all())

    # ---- Bernoulli, Multinomial, Dropout ----

    def test_bernoulli(self):
        for onnx_type, dtype in (("float16", np.float16), ("float", np.float32), ("double", np.float64)):
            text = f"""g ({onnx_type}[N] p) => ({onnx_type}[N] y, bool[N] b, int32[N] i) {{
                y = Bernoulli(p) b = Bernoulli<dtype=9>(p) i = Bernoulli<dtype=6, seed=2.0>(p) }}"""
            p = np.linspace(0, 1, 1001).astype(dtype)
            y, b, i = self.one(text, {"p": p})
            wide = np.float64 if dtype == np.float64 else np.float32
            for got, seed, stream in ((y, SEED, 0), (b, SEED, 1), (i, philox.key_of(2.0), 2)):
                want = philox.uniform(1001, seed, stream, 0, wide) < p.astype(wide)
                np.testing.assert_array_equal(got.astype(bool), want)
                self.assertTrue(set(got.astype(np.float32)) <= {0, 1})
            self.assertEqual((y[0], y[-1]), (0, 1))

    def test_multinomial(self):
        text = "g (float[B,C] x) => (int32[B,S] y, int64[B,7] z) { y = Multinomial<sample_size=1000>(x) z = Multinomial<sample_size=7, dtype=7>(x) }"
        p = np.array([[0.1, 0.2, 0.3, 0.4], [0.97, 0.0, 0.01, 0.02], [0, 0, 0, 1]])
        with np.errstate(divide="ignore"):
            x = (np.log(p) + np.array([[0], [50], [-7]])).astype(np.float32)
        y, z = self.one(text, {"x": x})
        self.assertEqual((y.dtype, y.shape, z.dtype, z.shape), (np.int32, (3, 1000), np.int64, (3, 7)))
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        sums = e.cumsum(1)
        for got, stream in ((y, 0), (z, 1)):
            wanted = philox.uniform(got.shape, SEED, stream, 0, np.float64) * sums[:, -1:]
            np.testing.assert_array_equal(got, (sums[:, None, :] <= wanted[:, :, None]).sum(2))
        for row, of in zip(y, p):
            counts = np.bincount(row, minlength=4)
            self.assertTrue((counts[of == 0] == 0).all())
            chi = ((counts - 1000 * of)[of > 0] ** 2 / (1000 * of[of > 0])).sum()
            self.assertLess(chi, 16.3)  # once in a thousand times, with three degrees of freedom

    # The classes themselves are what onnxruntime means by them.
    def test_multinomial_is_onnxruntimes(self):
        text = "g (float[B,C] x) => (int32[B,S] y) { y = Multinomial<sample_size=20000, seed=1.0>(x) }"
        x = np.array([[0.5, -1, 2, np.nan, 0], [1, 1, -np.inf, 3, np.inf]], np.float32)
        (got,) = self.one(text, {"x": x})
        reference = onnxruntime.InferenceSession(onnx.parser.parse_model(HEAD + text).SerializeToString(), providers=["CPUExecutionProvider"])
        (want,) = reference.run(None, {"x": x})
        for a, b in zip(got, want):
            np.testing.assert_allclose(np.bincount(a, minlength=5) / 20000, np.bincount(b, minlength=5) / 20000, atol=0.02)

    def test_dropout(self):
        for onnx_type, dtype in (("float16", np.float16), ("float", np.float32), ("double", np.float64)):
            text = f"""g ({onnx_type}[N] x, float r) => ({onnx_type}[N] y, bool[N] m, {onnx_type}[N] z) {{
                t = Constant<value = bool {{1}}>() y, m = Dropout<seed=5>(x, r, t) z = Dropout(x, , t) }}"""
            x = np.linspace(-2, 2, 1000).astype(dtype)
            for r in (0.25, 0.0, 0.9):
                y, m, z = self.one(text, {"x": x, "r": np.array(r, np.float32)})
                keeps = philox.uniform(1000, 5, 0) >= np.float32(r)
                np.testing.assert_array_equal(m, keeps)
                np.testing.assert_allclose(y, np.where(keeps, x / (1 - r), 0).astype(dtype), rtol=2e-3 if dtype == np.float16 else 1e-6)
                np.testing.assert_array_equal(z != 0, philox.uniform(1000, SEED, 1) >= 0.5)
                if r == 0:
                    np.testing.assert_array_equal(y, x)

    def test_dropout_whose_mode_the_run_says(self):
        text = "g (float[N] x, float r, bool t) => (float[N] y, bool[N] m) { y, m = Dropout(x, r, t) }"
        x = np.linspace(1, 2, 100, dtype=np.float32)
        feeds = [{"x": x, "r": np.array(0.4, np.float32), "t": np.array(t)} for t in (True, False, True)]
        for k, (f, (y, m)) in enumerate(zip(feeds, self.runs(text, feeds, 3))):
            keeps = philox.uniform(100, SEED, 0, k) >= np.float32(0.4) if f["t"] else np.ones(100, bool)
            np.testing.assert_array_equal(m, keeps)
            np.testing.assert_allclose(y, np.where(keeps, x / (0.6 if f["t"] else 1), 0), rtol=1e-6)

    # ---- Distributions ----

    def test_normal_distribution(self):
        n = self.MANY
        text = f"g () => (float[{n}] x, double[{n}] y) {{ x = RandomNormal<shape=[{n}]>() y = RandomNormal<shape=[{n}], dtype=11>() }}"
        for results in zip(*self.runs(text, count=2)):
            for x in results:
                x = x.astype(np.float64)
                for power, mean, deviation in ((1, 0, 1), (2, 1, math.sqrt(2)), (3, 0, math.sqrt(15)), (4, 3, math.sqrt(96))):
                    self.check_mean(x**power, mean, deviation)
                self.check_distribution(x, np.vectorize(lambda t: 0.5 * math.erfc(-t / math.sqrt(2))))
                for tail in (2.0, 3.0, 3.5):
                    p = math.erfc(tail / math.sqrt(2))
                    self.check_mean((abs(x) > tail).astype(np.float64), p, math.sqrt(p))

    def test_uniform_distribution(self):
        n = self.MANY
        (x,), (y,) = self.runs(f"g () => (float[{n}] x) {{ x = RandomUniform<shape=[{n}]>() }}", count=2)
        for u in (x, y):
            self.check_mean(u, 0.5, math.sqrt(1 / 12))
            self.check_distribution(u, lambda t: t)
            counts = np.bincount((u * 256).astype(np.int64), minlength=256)
            chi = ((counts - n / 256) ** 2 / (n / 256)).sum()
            self.assertLess(abs(chi - 255), 4 * math.sqrt(2 * 255))
            bits = (u * 2.0**24).astype(np.int64)[:, None] >> np.arange(24) & 1
            self.assertLess(abs(bits.mean(0) - 0.5).max(), 5 * 0.5 / math.sqrt(n))

    def test_independence(self):
        n = self.MANY
        text = f"g () => (float[{n}] x, float[{n}] y) {{ x = RandomNormal<shape=[{n}]>() y = RandomNormal<shape=[{n}]>() }}"
        (x, y), (x2, y2) = self.runs(text, count=2)
        (z, _), _ = self.runs(text, count=2, seed=SEED + 1)
        pairs = [(x, y), (x, x2), (y, y2), (x, z)] + [(x[:-d], x[d:]) for d in (1, 2, 3, 4, 8, 64, 1024)]
        for a, b in pairs:
            self.check_uncorrelated(a, b)
            self.check_uncorrelated(a**2, b**2)


class Verified(Random):
    """`mcc verify` of these models: kernels against the interpreter, with the same seed."""

    def check_verified(self, text, *options):
        library, _ = self.compile(text)
        done = subprocess.run([MCC, "verify", library.with_suffix(".onnx"), *self.OPTIONS, *options], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


for name in [name for name in dir(Random) if name.startswith("test_")]:
    setattr(Verified, name, None)
MODELS = {
    "normal": "g (float[2,3,N] x) => (float[2,3,N] y) { z = RandomNormalLike(x) e = Exp(x) w = Mul(z, e) y = Add(w, x) }",
    "doubles": "g (double[5,7] x) => (double[5,7] y) { z = RandomNormalLike(x) u = RandomUniformLike<low=-2.0, high=9.0>(x) y = Add(z, u) }",
    "halves": "g (float16[N] x) => (float16[N] y, float16[N] z) { y = RandomNormalLike<seed=1.0>(x) z = Bernoulli(y) }",
    "dropout": "g (float[N,8] x, float[8,8] w) => (float[N,8] z, bool[N,8] m) { t = Constant<value = bool {1}>() "
               "r = Constant<value = float {0.3}>() y, m = Dropout(x, r, t) z = MatMul(y, w) }",
    "multinomial": "g (float[3,N] x) => (int64[3,50] y) { y = Multinomial<sample_size=50, dtype=7>(x) }",
}
for name, model in MODELS.items():
    setattr(Verified, f"test_{name}", lambda self, model=model: self.check_verified(model))
    setattr(Verified, f"test_{name}_threads", lambda self, model=model: self.check_verified(model, "--threads", "2"))


if __name__ == "__main__":
    main(Random, Verified)
