"""Models with sequences and optional values as inputs and outputs, and Scan of opset 8, in ONNX's text, with the inputs that they run on."""

import numpy as np

RANDOM = np.random.default_rng(5)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def words(*values):
    return np.array(values, object)


def truth(value):
    return np.array(value, bool)


# ---- Sequences ----


def tensors_of_several_sizes():
    """g (seq(float[N,3]) x, float[M,3] c) => (seq(float[K,3]) y, float[P,3] all, int64 n, float[Q,3] last) {
       d = Neg (c) y = SequenceInsert (x, d) all = ConcatFromSequence <axis = 0> (y) n = SequenceLength (y)
       at = Constant <value_int = -2> () last = SequenceAt (y, at) }"""
    return [dict(x=[floats(2, 3), floats(7, 3)], c=floats(4, 3)), dict(x=[floats(33, 3), floats(1, 3)], c=floats(1, 3)),
            dict(x=[floats(5, 3)], c=floats(3, 3))]


def no_tensors():
    """g (seq(float[N,3]) x, float[2,3] c) => (seq(float[K,3]) y, seq(float[K,3]) same, int64 n) {
       y = SequenceInsert (x, c) same = Identity (x) n = SequenceLength (same) }"""
    return [dict(x=[], c=floats(2, 3))]


def nothing_but_a_sequence_without_tensors():
    """g (seq(float[2]) x) => (seq(float[2]) y) { y = SequenceErase (x) }"""
    return [dict(x=[floats(2)]), dict(x=[floats(2), floats(2), floats(2)])]


def other_element_types():
    """g (seq(int64[N]) x, seq(bool[2]) b, seq(double) d) => (seq(int64[N]) y, seq(bool[2]) c, double e) {
       v = Constant <value_ints = [7, 8, 9]> () y = SequenceInsert (x, v) c = SequenceErase (b)
       zero = Constant <value_int = 0> () one = Constant <value_int = 1> () p = SequenceAt (d, zero) q = SequenceAt (d, one) e = Sub (p, q) }"""
    return [dict(x=[ints(1, 2), ints(3)], b=[np.array([True, False]), np.array([False, False])], d=[np.array(0.5), np.array(2.0)])]


def sequences_side_by_side():
    """g (seq(float[N]) x, seq(float[N]) y, float[1] c) => (seq(float[N]) sums, seq(float[N]) scaled) {
       sums, scaled = SequenceMap <body = b (float[N] u, float[N] v, float[1] k) => (float[N] s, float[N] t) {
         s = Add (u, v) t = Mul (u, k) }> (x, y, c) }"""
    return [dict(x=[floats(n) for n in sizes], y=[floats(n) for n in sizes], c=floats(1)) for sizes in ((3, 8, 1), (1, 1, 20), (4, 5))]


def parts_as_a_result():
    """g (float[6,N] x) => (seq(float[2,N]) y, seq(float[N]) rows, seq(float[K,N]) some) {
       two = Constant <value_int = 2> () y = SplitToSequence (x, two) rows = SplitToSequence <keepdims = 0> (x)
       sizes = Constant <value_ints = [1, 5]> () some = SplitToSequence (x, sizes) }"""
    return [dict(x=floats(6, 4)), dict(x=floats(6, 9))]


def sum_over_a_sequence():
    """g (seq(float[N,3]) x) => (float[3] y, seq(float[3]) each) {
       n = SequenceLength (x) zero = Constant <value_floats = [0.0, 0.0, 0.0]> () none = SequenceEmpty () axis = Constant <value_ints = [0]> ()
       y, each = Loop (n, "", zero, none) <body = b (int64 i, bool c, float[3] s, seq(float[3]) e) => (bool d, float[3] t, seq(float[3]) f) {
         d = Identity (c) v = SequenceAt (x, i) r = ReduceSum <keepdims = 0> (v, axis) t = Add (s, r) f = SequenceInsert (e, r) }> }"""
    return [dict(x=[floats(2, 3), floats(5, 3), floats(1, 3)]), dict(x=[floats(4, 3), floats(9, 3), floats(3, 3)])]


def sequence_chosen_by_data():
    """g (bool k, seq(float[N]) x, float[M] a) => (seq(float[Q]) y, float[R] joined) {
       y = If (k) <then_branch = t () => (seq(float[S]) p) { p = SequenceInsert (x, a) },
                   else_branch = f () => (seq(float[U]) q) { b = Concat <axis = 0> (a, a) zero = Constant <value_int = 0> () q = SequenceInsert (x, b, zero) }>
       joined = ConcatFromSequence <axis = 0> (y) }"""
    return [dict(k=truth(k), x=[floats(2), floats(n)], a=floats(m)) for k, n, m in ((True, 5, 4), (False, 5, 4), (False, 1, 9), (True, 3, 1))]


def tensors_of_strings():
    """g (seq(string[N]) x, string[2] c) => (seq(string[N]) y, string[M] all, seq(string[2]) none) {
       y = SequenceInsert (x, c) all = ConcatFromSequence <axis = 0> (y) z = SequenceConstruct (c) none = SequenceErase (z) }"""
    return [dict(x=[words("a", "bc"), words("")], c=words("d", "\u00e9"))]


# ---- Optional values ----


def optional_tensor():
    """g (float[N] x, optional(float[N]) o) => (float[N] y, bool has) {
       has = OptionalHasElement (o)
       y = If (has) <then_branch = t () => (float[N] a) { e = OptionalGetElement (o) a = Add (x, e) },
                     else_branch = f () => (float[N] b) { b = Neg (x) }> }"""
    return [dict(x=floats(3), o=floats(3)), dict(x=floats(8), o=floats(8)), dict(x=floats(3), o=None)]


def optional_sequence():
    """g (float[2] x, optional(seq(float[2])) o) => (seq(float[2]) y, bool has) {
       has = OptionalHasElement (o)
       y = If (has) <then_branch = t () => (seq(float[2]) a) { e = OptionalGetElement (o) a = SequenceInsert (e, x) },
                     else_branch = f () => (seq(float[2]) b) { b = SequenceConstruct (x, x, x) }> }"""
    return [dict(x=floats(2), o=[floats(2)]), dict(x=floats(2), o=[floats(2), floats(2)]), dict(x=floats(2), o=[]), dict(x=floats(2), o=None)]


# ---- Scan of opset 8 ----

BATCHED = '<ir_version: 3, opset_import: ["" : 8]>\n'


def scan_of_a_batch():
    """g (float[2,4] s, float[2,3,4] x) => (float[2,4] y, float[2,3,4] z) {
       y, z = Scan <num_scan_inputs = 1, body = b (float[4] u, float[4] v) => (float[4] w, float[4] q) {
         w = Add (u, v) q = Softmax <axis = 0> (w) }> ("", s, x) }"""
    return [dict(s=floats(2, 4), x=floats(2, 3, 4))]


def scan_of_shorter_sequences_backwards():
    """g (int64[3] l, float[3,4] s, float[3,5,4] x, float[3,5] r) => (float[3,4] y, float[3,5,4] z, float[3,5] e) {
       y, z, e = Scan <num_scan_inputs = 2, directions = [1, 0], body = b (float[4] u, float[4] v, float k) => (float[4] w, float[4] q, float o) {
         h = Mul (v, k) w = Add (u, h) q = Tanh (w) o = Identity (k) }> (l, s, x, r) }"""
    return [dict(l=ints(*lengths), s=floats(3, 4), x=floats(3, 5, 4), r=floats(3, 5)) for lengths in ((5, 2, 3), (1, 5, 4))]


def scan_of_known_lengths():
    """g (float[2,3,4] x, bool[2,3] m) => (bool[2,3] z, float[2,3,4] q) <int64[2] l = {1, 3}> {
       z, q = Scan <num_scan_inputs = 2, directions = [0, 1], body = b (float[4] v, bool k) => (bool o, float[4] p) {
         o = Not (k) p = Neg (v) }> (l, x, m) }"""
    return [dict(x=floats(2, 3, 4), m=RANDOM.random((2, 3)) < 0.5)]


def scan_whose_body_is_of_its_opset():
    """g (float[4] c, float[2,1,4] s, float[2,3,1,4] x) => (float[2,1,4] y, float[2,3,1,4] z) {
       d = Neg (c)
       y, z = Scan <num_scan_inputs = 1, body = b (float[1,4] u, float[1,4] v) => (float[1,4] w, float[1,4] q) {
         a = Squeeze <axes = [0]> (v) n = Add (a, d) m = Unsqueeze <axes = [0]> (n) w = Add (u, m) q = Softmax (w) }> ("", s, x) }"""
    return [dict(c=floats(4), s=floats(2, 1, 4), x=floats(2, 3, 1, 4))]


def scan_in_a_scan():
    """g (float[2,4,3] x) => (float[2,4,3] z) {
       z = Scan <num_scan_inputs = 1, body = b (float[3] v) => (float[3] q) {
         f = Unsqueeze <axes = [0, 2]> (v)
         g = Scan <num_scan_inputs = 1, body = bb (float[1] k) => (float[1] kk) { e = Squeeze <axes = [0]> (k) h = Unsqueeze <axes = [0]> (e) kk = Exp (h) }> ("", f)
         q = Squeeze <axes = [0, 2]> (g) }> ("", x) }"""
    return [dict(x=floats(2, 4, 3))]


SEQUENCES = [tensors_of_several_sizes, no_tensors, nothing_but_a_sequence_without_tensors, other_element_types, sequences_side_by_side,
             parts_as_a_result, sum_over_a_sequence, sequence_chosen_by_data, optional_tensor, optional_sequence]
SCANS = [scan_of_a_batch, scan_of_shorter_sequences_backwards, scan_of_known_lengths, scan_whose_body_is_of_its_opset, scan_in_a_scan]
ALL = SEQUENCES + SCANS
STRINGS = [tensors_of_strings]
NOT_INTERPRETED = [sequence_chosen_by_data, tensors_of_strings]  # sizes that data decides, and strings
