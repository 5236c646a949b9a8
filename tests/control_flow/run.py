#!/usr/bin/env python3
"""Loop, Scan and If whose course is known at compile time, and sequences, through `mcc verify`; numpy says what must come out."""

import argparse
import inspect
import pathlib
import re
import shutil
import sys

import numpy as np
import onnx
import onnx.parser

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import verify_folders

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def loop_of_a_known_number(x):
    """g (float[2,3] x) => (float[2,3] y) <int64 n = {4}> {
       y = Loop (n, "", x) <body = b (int64 i, bool c, float[2,3] v) => (bool d, float[2,3] w) {
         d = Identity (c) f = Cast <to = 1> (i) w = Add (v, f) }> }"""
    return x + 0 + 1 + 2 + 3


def loop_until_its_condition(x):
    """g (float[3] x) => (float[3] y, int64 n) <int64 zero = {0}, bool yes = {1}, int64 five = {5}, int64 one = {1}> {
       y, n = Loop ("", yes, x, zero) <body = b (int64 i, bool c, float[3] v, int64 k) => (bool d, float[3] w, int64 m) {
         m = Add (k, one) d = Less (m, five) w = Mul (v, v) }> }"""
    for _ in range(5):
        x = x * x
    return x, np.array(5, np.int64)


def loop_that_ends_before_its_number(x):
    """g (float[3] x) => (float[3] y, float[M,3] each) <int64 n = {100}, bool yes = {1}, int64 two = {2}> {
       y, each = Loop (n, yes, x) <body = b (int64 i, bool c, float[3] v) => (bool d, float[3] w, float[3] s) {
         d = Less (i, two) w = Neg (v) s = Mul (v, v) }> }"""
    return -x, np.stack([x * x] * 3)


def loop_that_never_runs(x):
    """g (float[3] x) => (float[3] y, float[M,3] each) <int64 n = {0}> {
       z, each = Loop (n, "", x) <body = b (int64 i, bool c, float[3] v) => (bool d, float[3] w, float[3] s) {
         d = Identity (c) w = Neg (v) s = Mul (v, v) }>
       y = Abs (z) }"""
    return np.abs(x), np.zeros((0, 3), np.float32)


def loop_whose_state_grows(x):
    """g (float[1,3] x) => (float[N,3] y) <int64 n = {3}> {
       y = Loop (n, "", x) <body = b (int64 i, bool c, float[K,3] v) => (bool d, float[L,3] w) {
         d = Identity (c) s = Neg (v) w = Concat <axis = 0> (v, s) }> }"""
    for _ in range(3):
        x = np.concatenate([x, -x])
    return x


def loop_that_reads_from_around(x, w):
    """g (float[2,4] x, float[4,4] w) => (float[2,4] y, float[M,2,2] inner) <int64 n = {2}, int64 m = {3}> {
       t = Transpose (w)
       y, inner = Loop (n, "", x) <body = b (int64 i, bool c, float[2,4] v) => (bool d, float[2,4] o, float[2,2] s) {
         d = Identity (c)
         p = MatMul (v, t)
         o = Loop (m, "", p) <body = bb (int64 j, bool cc, float[2,4] u) => (bool dd, float[2,4] q) {
           dd = Identity (cc) e = Add (u, v) q = Tanh (e) }>
         starts = Constant <value_ints = [0]> ()
         ends = Constant <value_ints = [2]> ()
         axes = Constant <value_ints = [1]> ()
         s = Slice (o, starts, ends, axes) }> }"""
    inner = []
    for _ in range(2):
        p = x @ w.T
        for _ in range(3):
            p = np.tanh(p + x)
        x = p
        inner.append(x[:, :2])
    return x, np.stack(inner)


def loop_with_a_branch_for_the_first(x):
    """g (float[3] x) => (float[3] y) <int64 n = {3}, int64 zero = {0}> {
       y = Loop (n, "", x) <body = b (int64 i, bool c, float[3] v) => (bool d, float[3] w) {
         d = Identity (c)
         is_first = Equal (i, zero)
         w = If (is_first) <then_branch = t () => (float[3] p) { p = Exp (v) }, else_branch = e () => (float[3] q) { q = Neg (v) }> }> }"""
    return np.exp(x)


def scan_of_a_recurrence(x, h, w, r):
    """g (float[5,2,3] x, float[2,4] h, float[3,4] w, float[4,4] r) => (float[2,4] last, float[5,2,4] all) {
       last, all = Scan <num_scan_inputs = 1, body = b (float[2,4] s, float[2,3] v) => (float[2,4] t, float[2,4] u) {
         a = MatMul (v, w) b = MatMul (s, r) c = Add (a, b) t = Tanh (c) u = Identity (t) }> (h, x) }"""
    out = []
    for v in x:
        h = np.tanh(v @ w + h @ r)
        out.append(h)
    return h, np.stack(out)


def scan_along_other_axes_and_backwards(a, b):
    """g (float[2,4,3] a, float[4,2] b) => (float[3] last, float[3,4] sums, float[4,2] there) <float[3] zero = {0, 0, 0}> {
       last, sums, there = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
                                 scan_output_axes = [-1, 0], scan_output_directions = [0, 1],
         body = q (float[3] s, float[2,3] v, float[2] u) => (float[3] t, float[3] o, float[2] k) {
           p = MatMul (u, v) t = Add (s, p) o = Identity (t) k = Neg (u) }> (zero, a, b) }"""
    state, sums, there = np.zeros(3, np.float32), [], []
    for i in range(4):
        state = state + b[i] @ a[:, 3 - i]
        sums.append(state)
        there.append(-b[i])
    return state, np.stack(sums, -1), np.stack(there[::-1])


def scan_without_a_state(x):
    """g (float[3,4] x) => (float[3,4] y) {
       y = Scan <num_scan_inputs = 1, body = b (float[4] v) => (float[4] w) { w = Softmax (v) }> (x) }"""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sequence_made_in_a_loop(x):
    """g (float[2,3] x) => (float[2,4,3] y, float[8,3] z) <int64 n = {4}> {
       e = SequenceEmpty ()
       v, s = Loop (n, "", x, e) <body = b (int64 i, bool c, float[2,3] v, seq(float[2,3]) s) => (bool d, float[2,3] w, seq(float[2,3]) t) {
         d = Identity (c) w = Sin (v) t = SequenceInsert (s, w) }>
       y = ConcatFromSequence <axis = 1, new_axis = 1> (s)
       z = ConcatFromSequence <axis = 0> (s) }"""
    rows = []
    for _ in range(4):
        x = np.sin(x)
        rows.append(x)
    return np.stack(rows, 1), np.concatenate(rows)


def sequence_of_parts(x):
    """g (float[2,7] x) => (float[2] one, float[2,1] kept, float[2,1] last, float[2,4] four, int64 n, int64 m)
       <int64 at = {2}, int64 minus = {-1}, int64 three = {3}, int64[3] sizes = {1, 4, 2}, int64 first = {1}> {
       a = SplitToSequence <axis = 1, keepdims = 0> (x)
       one = SequenceAt (a, at)
       b = SplitToSequence <axis = -1> (x)
       kept = SequenceAt (b, minus)
       n = SequenceLength (b)
       c = SplitToSequence <axis = 1> (x, three)
       last = SequenceAt (c, minus)
       m = SequenceLength (c)
       d = SplitToSequence <axis = 1> (x, sizes)
       e = Identity (d)
       four = SequenceAt (e, first) }"""
    return x[:, 2], x[:, 6:], x[:, 6:], x[:, 1:5], np.array(7, np.int64), np.array(3, np.int64)


def sequence_with_insertions(x, y):
    """g (float[2] x, float[2] y) => (float[6] z, float[4] w) <int64 zero = {0}, int64 back = {-1}> {
       p = Neg (x)
       a = SequenceConstruct (x, y)
       b = SequenceInsert (a, p, back)
       z = ConcatFromSequence <axis = 0> (b)
       c = SequenceErase (b, zero)
       d = SequenceErase (c)
       e = SequenceInsert (d, y, zero)
       w = ConcatFromSequence <axis = 0> (e) }"""
    return np.concatenate([x, -x, y]), np.concatenate([y, -x])


CASES = [loop_of_a_known_number, loop_until_its_condition, loop_that_ends_before_its_number, loop_that_never_runs, loop_whose_state_grows,
         loop_that_reads_from_around, loop_with_a_branch_for_the_first, scan_of_a_recurrence, scan_along_other_axes_and_backwards,
         scan_without_a_state, sequence_made_in_a_loop, sequence_of_parts, sequence_with_insertions]


def write(case, folder):
    model = onnx.parser.parse_model(HEAD + inspect.getdoc(case))
    rng = np.random.default_rng(len(case.__name__))
    inputs = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        inputs[value.name] = rng.uniform(-1, 1, shape).astype(np.float32)
    expected = case(**inputs)
    outputs = dict(zip((o.name for o in model.graph.output), expected if isinstance(expected, tuple) else (expected,)))
    verify_folders.write(folder, model, inputs, outputs)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="", metavar="RE")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR")
    arguments = parser.parse_args()
    folder = arguments.keep or verify_folders.BUILD / "control_flow"
    shutil.rmtree(folder, ignore_errors=True)
    chosen = [case for case in CASES if re.search(arguments.filter, case.__name__)]
    for case in chosen:
        write(case, folder / case.__name__)
    return verify_folders.verify([folder / case.__name__ for case in chosen])


if __name__ == "__main__":
    sys.exit(main())
