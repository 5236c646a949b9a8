"""Models whose sizes and whose course data decides, in ONNX's text, with the inputs that they run on."""

import numpy as np

RANDOM = np.random.default_rng(11)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def number(value):
    return np.array(value, np.int64)


def truth(value):
    return np.array(value, bool)


def sparse(*shape):
    return floats(*shape) * (RANDOM.random(shape) < 0.4).astype(np.float32)


# ---- Sizes ----


def slice_of_a_part():
    """g (float[7,5] x, int64[1] s, int64[1] e) => (float[N,3] y) <float[5,3] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}> {
       p = Slice (x, s, e) r = Relu (p) y = MatMul (r, w) }"""
    x = floats(7, 5)
    return [dict(x=x, s=ints(s), e=ints(e)) for s, e in ((0, 3), (2, 7), (-2, 100), (1, 2**62), (3, 3), (5, 2), (0, 7))]


def slice_along_both_axes():
    """g (float[9,40] x, int64[2] s, int64[2] e) => (float[N,M] y, float[N] m) {
       y = Slice (x, s, e) a = Constant <value_ints = [1]> () m = ReduceSum <keepdims = 0> (y, a) }"""
    x = floats(9, 40)
    return [dict(x=x, s=ints(*s), e=ints(*e)) for s, e in (((0, 0), (9, 40)), ((1, 3), (4, 37)), ((-3, -8), (9, 40)), ((0, 0), (1, 1)))]


def numbers_in_a_row():
    """g (int64 a, int64 b) => (float[N] y) <int64 one = {1}> {
       r = Range (a, b, one) f = Cast <to = 1> (r) y = Mul (f, f) }"""
    return [dict(a=number(a), b=number(b)) for a, b in ((0, 5), (-3, 40), (4, 2), (0, 1000))]


def floats_in_a_row():
    """g (int64 a, float[7] x) => (float[N] y, float[M] z) <float zero = {0}, float two = {2}, int64 low = {1}> {
       f = Cast <to = 1> (a) y = Range (zero, f, two)
       s = ReduceMax <keepdims = 0> (x) i = Cast <to = 6> (s) j = Cast <to = 1> (i) l = Cast <to = 1> (low) z = Range (l, j, l) }"""
    return [dict(a=number(a), x=floats(7) * 4) for a in (5, 40, 0, -2, 1000)]


def fractions_in_a_row():
    """g (float[H,3] x, int64 a) => (float[N] y, float[M] z) <float half = {0.5}, float one = {1}, float from = {7.25}, float back = {-3}, int64 two = {2}> {
       s = Shape <end = 1> (x) h = Squeeze (s) p = Div (h, two) f = Cast <to = 1> (p) r = Range (half, f, one) y = Div (r, f)
       l = Cast <to = 1> (a) z = Range (from, l, back) }"""
    return [dict(x=floats(h, 3), a=number(a)) for h, a in ((2, 7), (9, 8), (40, -50), (1, 1), (3, 4), (5, -2))]


def expanded_to_a_shape():
    """g (float[1,5] x, int64[2] s) => (float[N,5] y, float[5] z) {
       y = Expand (x, s) a = Constant <value_ints = [0]> () z = ReduceSum <keepdims = 0> (y, a) }"""
    x = floats(1, 5)
    return [dict(x=x, s=ints(n, 5)) for n in (1, 3, 64, 2)]


def shape_of_which_a_part_is_known():
    """g (float[1,4] x, int64[1] n, float[3,4,2] w) => (float[N,4] y, float[1,3,M] z) {
       four = Constant <value_ints = [4]> () s = Concat <axis = 0> (n, four) y = Expand (x, s) a = Constant <value_ints = [0]> ()
       t = Transpose <perm = [1, 0]> (y) u = Unsqueeze (t, a) z = Conv <pads = [1, 1]> (u, w) }"""
    return [dict(x=floats(1, 4), n=ints(n), w=floats(3, 4, 2)) for n in (1, 5, 2)]


def filled():
    """g (int64[3] s) => (float[A,B,C] y) { c = ConstantOfShape <value = float[1] {2.5}> (s) y = Sqrt (c) }"""
    return [dict(s=ints(*s)) for s in ((1, 2, 3), (4, 0, 2), (3, 3, 3))]


def reshaped():
    """g (float[6,4] x, int64[2] s) => (float[A,B] y) { r = Reshape (x, s) y = Transpose <perm = [1, 0]> (r) }"""
    x = floats(6, 4)
    return [dict(x=x, s=ints(*s)) for s in ((3, 8), (2, -1), (24, 1), (-1, 6), (0, 4))]


def repeated():
    """g (float[2,3] x, int64[2] n) => (float[A,B] y) { y = Tile (x, n) }"""
    return [dict(x=floats(2, 3), n=ints(*n)) for n in ((1, 1), (2, 3), (1, 0))]


def padded():
    """g (float[2,3] x, int64[4] p) => (float[A,B] y, float[A,B] z) { y = Pad (x, p) z = Pad <mode = "edge"> (x, p) }"""
    return [dict(x=floats(2, 3), p=ints(*p)) for p in ((1, 1, 0, 0), (0, 0, 2, 3), (0, 0, 0, 0))]


def picked():
    """g (float[7,50] x, int64[1] k) => (float[7,K] v, int64[7,K] i) { v, i = TopK (x, k) }"""
    return [dict(x=floats(7, 50), k=ints(k)) for k in (1, 5, 50)]


def two_of_equal_length():
    """g (float[7,5] x, float[7,5] y, int64[1] m, int64[1] n) => (float[N,5] z) {
       s = Constant <value_ints = [0]> () p = Slice (x, s, m) q = Slice (y, s, n) r = Add (p, q) z = Softmax (r) }"""
    return [dict(x=floats(7, 5), y=floats(7, 5), m=ints(n), n=ints(n)) for n in (1, 4, 7)]


def shape_of_a_part():
    """g (float[7,5] x, int64[1] n) => (float[N,5] y, int64[2] s, int64[N] i) <int64 z = {0}, int64 one = {1}> {
       b = Constant <value_ints = [0]> () p = Slice (x, b, n) s = Shape (p) r = Gather (s, z) i = Range (z, r, one) y = Gather (p, i) }"""
    return [dict(x=floats(7, 5), n=ints(n)) for n in (1, 4, 7, 0)]


def places_that_are_set():
    """g (float[4,6] x) => (int64[2,N] i, float[N] v, float s) {
       i = NonZero (x) t = Transpose <perm = [1, 0]> (i) v = GatherND (x, t)
       a = Constant <value_ints = [0]> () s = ReduceSum <keepdims = 0> (v, a) }"""
    return [dict(x=sparse(4, 6)), dict(x=np.zeros((4, 6), np.float32)), dict(x=np.ones((4, 6), np.float32))]


def places_in_long_rows():
    """g (float[3,5000] x) => (int64[2,N] i) { i = NonZero (x) }"""
    return [dict(x=sparse(3, 5000)), dict(x=np.zeros((3, 5000), np.float32))]


def parts_of_nothing():
    """g (float[4,0] x, int64[1] n) => (float[N,0] y, float[M,0] z) {
       s = Constant <value_ints = [0]> () y = Slice (x, s, n) e = Exp (y) z = Concat <axis = 0> (e, x) }"""
    return [dict(x=floats(4, 0), n=ints(n)) for n in (2, 0, 4)]


def columns_that_are_chosen():
    """g (float[4,6] x, bool[6] c) => (float[4,N] y, float[4,N] z) { y = Compress <axis = 1> (x, c) z = Exp (y) }"""
    return [dict(x=floats(4, 6), c=truth(c)) for c in ([1, 0, 1, 1, 0, 0], [0] * 6, [1] * 6)]


def without_repetitions():
    """g (float[20] x) => (float[N] y, int64[N] i, int64[20] inverse, int64[N] n) { y, i, inverse, n = Unique (x) }"""
    return [dict(x=RANDOM.integers(0, n, 20).astype(np.float32)) for n in (2, 5, 100)]


def without_repetitions_as_they_come():
    """g (int64[700] x) => (int64[N] y, int64[N] i, int64[700] inverse, int64[N] n) { y, i, inverse, n = Unique <sorted = 0> (x) }"""
    return [dict(x=RANDOM.integers(-n, n, 700)) for n in (1, 40, 10**6)]


def slices_without_repetitions():
    """g (float[150,3] x) => (float[N,3] y, int64[N] i, int64[150] inverse, int64[N] n, float[2,M] z) {
       y, i, inverse, n = Unique <axis = 0> (x) a, b, c, d = Unique <axis = 1, sorted = 0> (x)
       r = Constant <value_ints = [0]> () two = Constant <value_ints = [2]> () z = Slice (a, r, two) }"""
    return [dict(x=RANDOM.integers(0, n, (150, 3)).astype(np.float32)) for n in (1, 3, 100)]


def what_is_found_without_repetitions():
    """g (int64[90] x, int64 least) => (int64[N] y, int64[N] n) <int64[1] zero = {0}> {
       g = Greater (x, least) z = NonZero (g) i = Squeeze (z, zero) t = Gather (x, i) y, f, inverse, n = Unique (t) }"""
    x = RANDOM.integers(0, 50, 90)
    return [dict(x=x, least=number(v)) for v in (10, 60, 40, -1)]


def boxes_that_are_kept():
    """g (float[1,50,4] b, float[1,3,50] s) => (int64[N,3] k, float[N,4] r)
       <int64 most = {10}, float iou = {0.5}, float least = {0.3}, int64[1] two = {2}, int64[1] one = {1}, int64[1] zero = {0}> {
       k = NonMaxSuppression (b, s, most, iou, least) i = Gather <axis = 1> (k, two) j = Squeeze (i, one)
       all = Squeeze (b, zero) r = Gather (all, j) }"""
    corner = RANDOM.random((1, 50, 2)).astype(np.float32)
    boxes = np.concatenate([corner, corner + np.float32(0.2)], axis=-1)
    return [dict(b=boxes, s=RANDOM.random((1, 3, 50)).astype(np.float32) * np.float32(f)) for f in (1, 0.4, 0.1)]


def boxes_of_two_pictures():
    """g (float[2,200,4] b, float[2,3,200] s, int64[1] most, float[1] iou) => (int64[N,3] k) {
       k = NonMaxSuppression <center_point_box = 1> (b, s, most, iou) }"""
    def boxes(size):
        return np.concatenate([RANDOM.random((2, 200, 2)), RANDOM.random((2, 200, 2)) * size], axis=-1).astype(np.float32)

    scores = RANDOM.integers(0, 40, (2, 3, 200)).astype(np.float32)  # some are equal
    return [dict(b=boxes(size), s=scores, most=ints(most), iou=np.array([iou], np.float32))
            for size, most, iou in ((0.3, 1000, 0.4), (0.05, 1000, 0.5), (0.3, 7, 0.2), (1, 50, 0), (0.3, 0, 0.5))]


def boxes_of_those_that_are_found():
    """g (float[150,4] b, float[150] s, float least) => (float[N,4] r, float[N] p)
       <int64 most = {100}, float iou = {0.45}, int64[1] two = {2}, int64[1] zero = {0}, int64[1] one = {1}> {
       g = Greater (s, least) z = NonZero (g) i = Squeeze (z, zero) c = Gather (b, i) t = Gather (s, i)
       cc = Unsqueeze (c, zero) u = Unsqueeze (t, zero) tt = Unsqueeze (u, zero)
       k = NonMaxSuppression (cc, tt, most, iou) j = Gather <axis = 1> (k, two) m = Squeeze (j, one) r = Gather (c, m) p = Gather (t, m) }"""
    corner = RANDOM.random((150, 2)).astype(np.float32)
    boxes = np.concatenate([corner, corner + np.float32(0.15)], axis=-1)
    scores = RANDOM.random(150).astype(np.float32)
    return [dict(b=boxes, s=scores, least=np.array(v, np.float32)) for v in (0.5, 2, 0.9, -1)]


def places_in_a_picture():
    """g (float[3,70,90] x, float least) => (int64[3,N] i, float[M,90] rows) {
       c = Greater (x, least) i = NonZero (c)
       f = Cast <to = 1> (c) s = ReduceMax <axes = [0, 2], keepdims = 0> (f) any = Cast <to = 9> (s)
       m = ReduceMean <axes = [0], keepdims = 0> (x) rows = Compress <axis = 0> (m, any) }"""
    x = floats(3, 70, 90)
    return [dict(x=x, least=np.array(v, np.float32)) for v in (2.5, 9, -9, 1)]


def scaled_picture_in_a_padded_one():
    """g (float[3,20,30] x, float scale, float[4,3,3,3] w) => (float[1,4,N,M] y)
       <int64[3] size = {3,20,30}, int64 one = {1}, int64 two = {2}, int64[1] zero = {0}, int64[1] channels = {3}, int64[1] most = {64}> {
       f = Cast <to = 1> (size) m = Mul (f, scale) fl = Floor (m) s = Cast <to = 7> (fl)
       h0 = Gather (s, one) w0 = Gather (s, two) h1 = Unsqueeze (h0, zero) w1 = Unsqueeze (w0, zero)
       u = Unsqueeze (x, zero) first = Shape <end = 2> (u) sizes = Concat <axis = 0> (first, h1, w1) r = Resize <mode = "linear"> (u, "", "", sizes)
       c = Shape <start = 1, end = 2> (r) ce = Sub (channels, c) he = Sub (most, h1) we = Sub (most, w1)
       ends = Concat <axis = 0> (zero, we, zero, he, zero, ce, zero, zero) pairs = Constant <value_ints = [4, 2]> () of_axes = Reshape (ends, pairs)
       last = Constant <value_ints = [-1]> () far = Constant <value_ints = [-9223372036854775807]> ()
       turned = Slice (of_axes, last, far, zero, last) t = Transpose <perm = [1, 0]> (turned) pads = Reshape (t, last)
       p = Pad (r, pads) y = Conv (p, w) }"""
    return [dict(x=floats(3, 20, 30), w=floats(4, 3, 3, 3), scale=np.array(s, np.float32)) for s in (1, 0.5, 2)]


# ---- If ----


def squeezed_in_the_branch_of_a_rate():
    """g (float[N,H] x, int64 rate, float[1,1,4] w, float[1,1,8] v) => (float[A,B] y) <int64 high = {16}, int64 one = {1}, int64[1] mid = {1}, int64[1] last = {2}> {
       u = Unsqueeze (x, mid) c = Equal (rate, high)
       y = If (c) <then_branch = t () => (float[A,B] p) {
                     a = Conv <strides = [4]> (u, w) as = Shape <start = 2> (a) al = Squeeze (as) ac = Equal (al, one)
                     p = If (ac) <then_branch = tt () => (float[A,B] pp) { pp = Squeeze (a, last) }, else_branch = te () => (float[A,B] pq) { pq = ReduceSum <keepdims = 0> (a, last) }> },
                   else_branch = e () => (float[A,B] q) {
                     b = Conv <strides = [8]> (u, v) bs = Shape <start = 2> (b) bl = Squeeze (bs) bc = Equal (bl, one)
                     q = If (bc) <then_branch = et () => (float[A,B] qp) { qp = Squeeze (b, last) }, else_branch = ee () => (float[A,B] qq) { qq = ReduceSum <keepdims = 0> (b, last) }> }> }"""
    w, v = floats(1, 1, 4), floats(1, 1, 8)
    return [dict(x=floats(n, h), rate=number(r), w=w, v=v) for n, h, r in ((2, 4, 16), (3, 8, 8), (1, 12, 16), (1, 40, 8))]


def one_of_two_computations():
    """g (float[7,5] x, bool c) => (float[7,5] z) <float[5] w = {1,2,3,4,5}> {
       y = If (c) <then_branch = t () => (float[7,5] p) { a = Mul (x, w) p = Relu (a) },
                   else_branch = e () => (float[7,5] q) { b = Neg (x) q = Exp (b) }>
       z = Add (y, y) }"""
    return [dict(x=floats(7, 5), c=truth(c)) for c in (True, False, True)]


def one_of_two_shapes():
    """g (float[7,5] x, bool[1] c) => (float[5] s, float[N,5] q, float[7,5] k) {
       z = Constant <value_ints = [0]> ()
       y, k = If (c) <then_branch = t () => (float[A,5] p, float[7,5] pk) { two = Constant <value_ints = [2]> () p = Slice (x, z, two) pk = Abs (x) },
                      else_branch = e () => (float[B,5] r, float[7,5] rk) { r = Concat <axis = 0> (x, x) rk = Neg (x) }>
       s = ReduceSum <keepdims = 0> (y, z) q = Softmax (y) }"""
    return [dict(x=floats(7, 5), c=truth([c])) for c in (True, False, True)]


def step_with_or_without_a_past():
    """g (float[1,S,4] x, float16[1,P,4] past, bool use_past) => (float[A,B,4] present, float[A,B,4] y) {
       present, y = If (use_past) <then_branch = t () => (float[1,A,4] present, float[1,B,4] y) {
                                     wide = Cast <to = 1> (past) present = Concat <axis = 1> (wide, x) m = ReduceMean <keepdims = 1, axes = [1]> (present) y = Sub (x, m) },
                                   else_branch = e () => (float[1,A,4] present, float[1,B,4] y) {
                                     present = Identity (x) m = ReduceMean <keepdims = 1, axes = [1]> (present) y = Sub (x, m) }> }"""
    # Branches call their values as the If calls its results; a past of no rows is appended to as any other.
    runs = ((5, 0, False), (1, 5, True), (3, 20, True), (3, 0, True), (3, 7, False))
    return [dict(x=floats(1, s, 4), past=floats(1, p, 4).astype(np.float16), use_past=truth(u)) for s, p, u in runs]


def branch_inside_of_a_branch():
    """g (float[7,5] x, float s) => (float[7,5] y) <float zero = {0}, float low = {-5}> {
       c = Greater (s, zero)
       y = If (c) <then_branch = t () => (float[7,5] p) { p = Identity (x) },
                   else_branch = e () => (float[7,5] q) {
                     d = Less (s, low)
                     q = If (d) <then_branch = tt () => (float[7,5] a) { a = Mul (x, x) },
                                 else_branch = ee () => (float[7,5] b) { k = Sub (x, x) b = Cos (k) }> }> }"""
    return [dict(x=floats(7, 5), s=np.array(s, np.float32)) for s in (1, -10, -1)]


def what_must_not_run():
    """g (int64 n, int64 d) => (int64 y) <int64 zero = {0}> {
       c = Equal (d, zero)
       y = If (c) <then_branch = t () => (int64 p) { p = Identity (n) }, else_branch = e () => (int64 q) { q = Div (n, d) }> }"""
    return [dict(n=number(12), d=number(d)) for d in (3, 0, 5)]


def what_both_branches_use():
    """g (float[7,5] x, bool c) => (float[7,5] y) {
       h = Tanh (x)
       y = If (c) <then_branch = t () => (float[7,5] p) { p = Mul (h, x) }, else_branch = e () => (float[7,5] q) { q = Sub (h, x) }> }"""
    return [dict(x=floats(7, 5), c=truth(c)) for c in (True, False)]


def number_in_one_branch_and_vector_in_the_other():
    """g (float[3] x, bool c) => (float[3] z) {
       y = If (c) <then_branch = t () => (float[1] p) { p = Constant <value_floats = [2.0]> () },
                   else_branch = e () => (float q) { a = Constant <value_ints = [0]> () q = ReduceSum <keepdims = 0> (x, a) }>
       z = Mul (x, y) }"""
    return [dict(x=floats(3), c=truth(c)) for c in (True, False)]


def results_that_are_inputs():
    """g (float[3] x, float[3] y, bool c) => (float[3] p, float[3] q, float[3] r) {
       p = If (c) <then_branch = t () => (float[3] a) { a = Identity (x) }, else_branch = e () => (float[3] b) { b = Identity (x) }>
       q = Identity (p) r = Identity (y) }"""
    return [dict(x=floats(3), y=floats(3), c=truth(c)) for c in (True, False)]


def sizes_that_one_branch_compares():
    """g (float[7,5] x, int64[1] m, int64[1] n, bool c, bool d) => (float[N,5] z) {
       s = Constant <value_ints = [0]> () p = Slice (x, s, m) q = Slice (x, s, n)
       z = If (c) <then_branch = t () => (float[A,5] a) {
                     a = If (d) <then_branch = tt () => (float[C,5] u) { u = Add (p, q) }, else_branch = te () => (float[D,5] v) { v = Abs (q) }> },
                   else_branch = e () => (float[B,5] b) { b = Neg (p) }> }"""
    x = floats(7, 5)
    cases = ((2, 3, False, True), (2, 2, True, True), (3, 2, True, False), (2, 2, False, True))
    return [dict(x=x, m=ints(m), n=ints(n), c=truth(c), d=truth(d)) for m, n, c, d in cases]


def squeezed_if_there_is_one():
    """g (float[N,K] x) => (float[N] y) <int64 one = {1}> {
       s = Shape (x) k = Gather (s, one) c = Equal (k, one)
       z = If (c) <then_branch = t () => (float[A] p) { a = Constant <value_ints = [1]> () p = Squeeze (x, a) },
                   else_branch = e () => (float[B,C] q) { q = Identity (x) }>
       y = Abs (z) }"""
    return [dict(x=floats(n, 1)) for n in (3, 5, 1)]


# ---- Loop ----


def loop_of_a_number_that_is_an_input():
    """g (float[7,5] x, int64 m, float[7,5] start) => (float[7,5] f, float[N,5] each) {
       f, each = Loop (m, "", start) <body = b (int64 i, bool c, float[7,5] v) => (bool d, float[7,5] w, float[5] s) {
         d = Identity (c) w = Add (v, x) a = Constant <value_ints = [0]> () s = ReduceSum <keepdims = 0> (w, a) }> }"""
    return [dict(x=floats(7, 5), start=floats(7, 5), m=number(m)) for m in (3, 0, 1, 100)]


def loop_until_a_sum():
    """g (float limit, float[1] one) => (float[1] p, float[1] q) <bool yes = {1}> {
       p, q = Loop ("", yes, one, one) <body = b (int64 i, bool c, float[1] a, float[1] b) => (bool d, float[1] aa, float[1] bb) {
         bb = Add (a, b) aa = Identity (b) n = Squeeze (bb) d = Less (n, limit) }> }"""
    return [dict(limit=np.array(v, np.float32), one=np.ones(1, np.float32)) for v in (10, 1000, 1)]


def states_that_trade_places():
    """g (int64[1] m, float[3] p, float[3] q) => (float[3] f, float[3] g) {
       f, g = Loop (m, "", p, q) <body = b (int64 i, bool c, float[3] a, float[3] b) => (bool d, float[3] aa, float[3] bb) {
         aa = Identity (b) bb = Identity (a) d = Identity (c) }> }"""
    return [dict(m=ints(m), p=floats(3), q=floats(3)) for m in (0, 1, 2, 5)]


def position_of_an_iteration():
    """g (float[7,5] x, int64 m, float[1,5] start) => (float[1,5] f, float[N,1,5] each) <float[5] w = {1,2,3,4,5}> {
       z = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
       f, each = Loop (m, "", start) <body = b (int64 i, bool c, float[1,5] v) => (bool d, float[1,5] o, float[1,5] s) {
         from = Unsqueeze (i, z) to = Add (from, one) row = Slice (x, from, to) scaled = Mul (x, w) r = Mul (row, w)
         o = Add (r, v) d = Identity (c) s = Slice (scaled, from, to) }> }"""
    return [dict(x=floats(7, 5), start=floats(1, 5), m=number(m)) for m in (3, 0, 7)]


def loop_and_choice_in_a_loop():
    """g (int64 m, float[5] start) => (float[5] f) <float half = {0.5}, float zero = {0}, float one = {1}, float two = {2}> {
       f = Loop (m, "", start) <body = b (int64 i, bool c, float[5] v) => (bool d, float[5] w) {
         u = Loop (i, "", v) <body = bb (int64 j, bool cc, float[5] a) => (bool dd, float[5] b) { b = Mul (a, half) dd = Identity (cc) }>
         s = ReduceSum <keepdims = 0> (u) g = Greater (s, zero)
         w = If (g) <then_branch = t () => (float[5] p) { p = Sub (u, one) }, else_branch = e () => (float[5] q) { q = Add (u, two) }>
         d = Identity (c) }> }"""
    return [dict(start=floats(5), m=number(m)) for m in (3, 0, 7)]


def rows_that_are_written_one_by_one():
    """g (float[6,4] x, int64 m) => (float[6,4] y, int64 k) <int64 zero = {0}, float[6,4] empty = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}> {
       k, y = Loop (m, "", zero, empty) <body = b (int64 i, bool c, int64 n, float[6,4] v) => (bool d, int64 kk, float[6,4] w) {
         one = Constant <value_int = 1> () kk = Add (n, one) d = Identity (c) a = Constant <value_ints = [0]> ()
         from = Unsqueeze (n, a) to = Unsqueeze (kk, a) row = Slice (x, from, to) e = Exp (row)
         places = Range (n, kk, one) b = Constant <value_ints = [1]> () at = Unsqueeze (places, b) w = ScatterND (v, at, e) }> }"""
    return [dict(x=floats(6, 4), m=number(m)) for m in (0, 2, 6)]


def choice_of_a_part_in_a_loop():
    """g (float[8,4] x, int64 m) => (float[4] y) <float[4] zero = {0,0,0,0}> {
       y = Loop (m, "", zero) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] w) {
         a = Constant <value_ints = [0]> () one = Constant <value_int = 1> () n = Add (i, one) to = Unsqueeze (n, a)
         part = Slice (x, a, to) s = ReduceMax <axes = [0], keepdims = 0> (part) w = Add (v, s) d = Identity (c) }> }"""
    return [dict(x=floats(8, 4), m=number(m)) for m in (1, 8, 3)]


def state_that_grows():
    """g (float[1,3] x, int64 m) => (float[N,3] y, float[M,3] each) {
       y, each = Loop (m, "", x) <body = b (int64 i, bool c, float[K,3] v) => (bool d, float[L,3] w, float[3] s) {
         d = Identity (c) a = Constant <value_ints = [0]> () s = ReduceSum <keepdims = 0> (v, a) r = Unsqueeze (s, a) w = Concat <axis = 0> (v, r) }> }"""
    return [dict(x=floats(1, 3), m=number(m)) for m in (0, 3, 1, 12)]


def state_of_halves():
    """g (float16[2,1] x, int64 m) => (float16[K,1] y, float16[2,1] z) <float16[1,1] w = {14341}> {
       p = MatMul (x, w) z = Tanh (p)
       y = Loop (m, "", x) <body = b (int64 i, bool c, float16[K,1] v) => (bool d, float16[L,1] u) { u = Concat <axis = 0> (v, w) d = Identity (c) }> }"""
    return [dict(x=floats(2, 1).astype(np.float16), m=number(m)) for m in (2, 0, 1)]


def states_that_grow_and_trade_places():
    """g (float[2,3] x, float[1,3] y, int64 m) => (float[N,3] p, float[M,3] q) {
       p, q = Loop (m, "", x, y) <body = b (int64 i, bool c, float[K,3] v, float[L,3] w) => (bool d, float[KK,3] vv, float[LL,3] ww) {
         d = Identity (c) vv = Concat <axis = 0> (w, v) ww = Identity (v) }> }"""
    return [dict(x=floats(2, 3), y=floats(1, 3), m=number(m)) for m in (0, 1, 4)]


def text_that_is_made_word_by_word():
    """g (int64[1,1] words, float[9,9] table, int64 most) => (int64[1,N] made) <int64 end = {0}, bool yes = {1}> {
       made = Loop (most, yes, words) <body = b (int64 i, bool c, int64[1,K] w) => (bool d, int64[1,L] ww) {
         row = Gather (table, w) a = Constant <value_ints = [1]> () s = ReduceSum <keepdims = 0> (row, a)
         next = ArgMax <axis = 1, keepdims = 1> (s) ww = Concat <axis = 1> (w, next)
         n = Squeeze (next) is_end = Equal (n, end) d = Not (is_end) }> }"""
    return [dict(words=np.array([[w]], np.int64), table=floats(9, 9), most=number(m)) for w, m in ((3, 20), (1, 5), (2, 0))]


def iterations_that_are_all_the_same():
    """g (float[5] x, int64 m) => (float[5] y, float[N,5] each) <float[5] start = {0,0,0,0,0}> {
       y, each = Loop (m, "", start) <body = b (int64 i, bool c, float[5] v) => (bool d, float[5] w, float[5] s) {
         w = Neg (x) s = Exp (x) d = Identity (c) }> }"""
    return [dict(x=floats(5), m=number(m)) for m in (2, 0, 1)]


def loop_that_may_not_begin():
    """g (float[5] x, int64 m, bool first) => (float[5] y) <bool yes = {1}> {
       y = Loop (m, first, x) <body = b (int64 i, bool c, float[5] v) => (bool d, float[5] w) { w = Neg (v) d = Identity (yes) }> }"""
    return [dict(x=floats(5), m=number(m), first=truth(f)) for m, f in ((3, True), (3, False), (0, True))]


def loop_without_an_iteration():
    """g (float[3] x, bool first) => (float[3] y, float[N,3] each) <int64 none = {0}> {
       y, each = Loop (none, first, x) <body = b (int64 i, bool c, float[3] v) => (bool d, float[3] w, float[3] s) { w = Neg (v) s = Exp (v) d = Not (c) }> }"""
    return [dict(x=floats(3), first=truth(f)) for f in (True, False)]


def state_that_nobody_reads():
    """g (float[2,5] x, float[3,5] y, int64 m, bool first) => (float[N,5] z) {
       z = Loop (m, first, y) <body = b (int64 i, bool c, float[3,5] v) => (bool d, float[2,5] w) { w = Neg (x) d = Identity (c) }> }"""
    return [dict(x=floats(2, 5), y=floats(3, 5), m=number(m), first=truth(f)) for m, f in ((2, True), (0, True), (1, False))]


def open_state_that_becomes_another():
    """g (float[M,5] x, float[3,5] y, int64 m) => (float[N,5] z) {
       z = Loop (m, "", x) <body = b (int64 i, bool c, float[K,5] v) => (bool d, float[3,5] w) { w = Neg (y) d = Identity (c) }> }"""
    return [dict(x=floats(k, 5), y=floats(3, 5), m=number(m)) for k, m in ((2, 1), (4, 0), (3, 2))]


def state_of_a_size_that_data_decides():
    """g (float[9,4] x, int64 m) => (float[N,4] y) <float zero = {0}> {
       y = Loop (m, "", x) <body = b (int64 i, bool c, float[K,4] v) => (bool d, float[L,4] w) {
         a = Constant <value_ints = [1]> () s = ReduceSum <keepdims = 0> (v, a) p = Greater (s, zero)
         k = Compress <axis = 0> (v, p) two = Constant <value_float = 2.0> () u = Sub (k, two) w = Tanh (u) d = Identity (c) }> }"""
    return [dict(x=floats(9, 4) + np.float32(1), m=number(m)) for m in (0, 1, 2, 4)]


# onnxruntime refuses a Scan of no iteration: the results are given.
def nothing(*shape):
    return np.zeros(shape, np.float32)


def scan_of_a_recurrence():
    """g (float[T,B,3] x, float[B,4] h, float[3,4] w, float[4,4] r) => (float[B,4] last, float[T,B,4] each, float[T,B,4] twice) {
       last, each = Scan <num_scan_inputs = 1, body = b (float[B,4] s, float[B,3] v) => (float[B,4] t, float[B,4] u) {
         a = MatMul (v, w) b = MatMul (s, r) c = Add (a, b) t = Tanh (c) u = Identity (t) }> (h, x)
       y = MatMul (x, w) twice = Add (each, y) }"""
    return [dict(x=floats(t, b, 3), h=floats(b, 4), w=floats(3, 4), r=floats(4, 4)) for t, b in ((5, 2), (1, 1), (12, 2), (2, 7))]


def scan_along_other_axes_and_backwards():
    """g (float[2,T,3] a, float[T,2] b) => (float[3] last, float[3,T] sums, float[T,2] there, float[2,T] across) <float[3] zero = {0, 0, 0}> {
       last, sums, there, across = Scan <num_scan_inputs = 2, scan_input_axes = [-2, 0], scan_input_directions = [1, 0],
                                         scan_output_axes = [-1, 0, 1], scan_output_directions = [0, 1, 1],
         body = q (float[3] s, float[2,3] v, float[2] u) => (float[3] t, float[3] o, float[2] k, float[2] l) {
           p = MatMul (u, v) t = Add (s, p) o = Identity (t) k = Neg (u) l = Exp (u) }> (zero, a, b) }"""
    return [dict(a=floats(2, t, 3), b=floats(t, 2)) for t in (4, 1, 9)]


def scan_without_a_state():
    """g (float[T,4] x) => (float[T,4] y, float[T] z) {
       y = Scan <num_scan_inputs = 1, body = b (float[4] v) => (float[4] w) { w = Softmax (v) }> (x)
       z = Scan <num_scan_inputs = 1, scan_output_directions = [1], body = bb (float[4] v) => (float w) {
         a = Constant <value_ints = [0]> () w = ReduceSum <keepdims = 0> (v, a) }> (y) }"""
    return [dict(x=floats(t, 4)) for t in (3, 1, 17)]


def scan_of_states_that_trade_places():
    """g (int64[T] x, int64 p, int64[2] q) => (int64 a, int64[2] b, int64[T] c) {
       a, b, c, unused = Scan <num_scan_inputs = 1, body = f (int64 s, int64[2] r, int64 v) => (int64 ss, int64[2] rr, int64 o, int64 oo) {
         ss = Add (s, v) m = Mul (r, v) rr = Add (m, s) o = Sub (v, s) oo = Neg (o) }> (p, q, x) }"""
    return [dict(x=np.arange(t, dtype=np.int64) + 2, p=number(3), q=ints(4, 5)) for t in (1, 4, 7)]


def scan_of_names_that_trade_places():
    """g (float[T,2] x, float[T,2] y) => (float[T,2] z) {
       z = Scan <num_scan_inputs = 2, scan_input_directions = [0, 1], body = b (float[2] y, float[2] x) => (float[2] w) { w = Sub (x, y) }> (x, y) }"""
    return [dict(x=floats(t, 2), y=floats(t, 2)) for t in (3, 8)]


def scan_along_a_known_and_an_open_axis():
    """g (float[T,2] x, float[4,2] y) => (float[K,2] z) {
       z = Scan <num_scan_inputs = 2, body = b (float[2] u, float[2] v) => (float[2] w) { w = Sub (u, v) }> (x, y) }"""
    return [dict(x=floats(4, 2), y=floats(4, 2)) for _ in range(2)]


def scan_in_a_scan_in_a_branch():
    """g (float[T,S] x, bool p) => (float s, float[T,S] y) <float zero = {0}> {
       s, y = If (p) <
         then_branch = t () => (float s1, float[T,S] y1) {
           s1, y1 = Scan <num_scan_inputs = 1, body = b (float a, float[S] row) => (float aa, float[S] z) {
             aa, z = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1],
               body = bb (float c, float v) => (float cc, float o) { cc = Add (c, v) o = Identity (cc) }> (a, row) }> (zero, x) },
         else_branch = e () => (float s2, float[T,S] y2) { y2 = Neg (x) s2 = Identity (zero) }> }"""
    return [dict(x=floats(*shape), p=truth(p)) for shape, p in (((3, 4), True), ((2, 1), False), ((5, 2), True), ((1, 7), False))]


def scan_of_what_data_choose():
    """g (float[9,3] x) => (float[3] s, float[K,3] y) <float zero = {0}, float[3] start = {0, 0, 0}> {
       a = Constant <value_ints = [1]> () r = ReduceSum <keepdims = 0> (x, a) p = Greater (r, zero) k = Compress <axis = 0> (x, p)
       s, y = Scan <num_scan_inputs = 1, body = b (float[3] u, float[3] v) => (float[3] w, float[3] o) {
         w = Add (u, v) o = Mul (u, v) }> (start, k) }"""
    return [dict(x=floats(9, 3)) for _ in range(3)] + [(dict(x=-np.ones((9, 3), np.float32)), [nothing(3), nothing(0, 3)])]


def scan_of_a_part_that_may_be_empty():
    """g (float[B,T] x, float[T,2] y, int64[1] m, float[B] start) => (float[B] s, float[B,K] back, float[B,K] forth, float[K,2] z) {
       zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> () p = Slice (x, zero, m, one) q = Slice (y, zero, m)
       s, back, forth, z = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
                                 scan_output_axes = [1, -1, 0], scan_output_directions = [1, 0, 1],
         body = b (float[B] u, float[B] v, float[2] w) => (float[B] uu, float[B] o, float[B] i, float[2] n) {
           uu = Add (u, v) o = Mul (u, v) i = Identity (v) n = Neg (w) }> (start, p, q) }"""
    runs = [dict(x=floats(b, t), y=floats(t, 2), m=ints(m), start=floats(b)) for b, t, m in ((2, 5, 3), (3, 4, 0), (1, 7, 1))]
    runs[1] = (runs[1], [runs[1]["start"], nothing(3, 0), nothing(3, 0), nothing(0, 2)])
    return runs


def scan_of_more_iterations_than_a_graph_has_nodes():
    """g (float[30000,2] x, float[2] start) => (float[2] last, float[30000,2] each) {
       last, each = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] v) => (float[2] t, float[2] u) {
         m = Max (s, v) half = Constant <value_float = 0.5> () t = Mul (m, half) u = Sub (t, v) }> (start, x) }"""
    return [dict(x=floats(30000, 2), start=floats(2))]


def frames_of_a_signal():
    """g (float[B,N] x) => (float[B,T,10] frames, float[B,T] loud) {
       shape = Shape (x) one = Constant <value_ints = [1]> () zero = Constant <value_ints = [0]> () hop = Constant <value_ints = [4]> ()
       six = Constant <value_ints = [6]> () far = Constant <value_ints = [9223372036854775807]> () back = Constant <value_ints = [0, -1, 4]> ()
       n = Slice (shape, one, far) rest = Sub (n, six) t = Div (rest, hop) used = Mul (t, hop) end = Add (used, six)
       first = Slice (x, zero, six, one) rest_of_x = Slice (x, six, end, one) X = Reshape (rest_of_x, back)
       u, frames = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
         body = s (float[B,6] prev, float[B,4] curr) => (float[B,6] next, float[B,10] frame) {
           frame = Concat <axis = -1> (prev, curr) from = Constant <value_ints = [4]> () last = Constant <value_ints = [-1]> ()
           next = Slice (frame, from, far, last) }> (first, X)
       m = Mul (frames, frames) two = Constant <value_ints = [2]> () loud = ReduceSum <keepdims = 0> (m, two) }"""
    return [dict(x=floats(b, n)) for b, n in ((1, 30), (3, 47), (2, 10))]


ALL = [value for name, value in list(globals().items()) if callable(value) and value.__doc__ and value.__module__ == __name__ and value.__doc__.startswith("g (")]


# ---- What a run refuses: the message, and inputs ----


def sums_of_unequal_length():
    """g (float[7,5] x, int64[1] m, int64[1] n) => (float[N,5] z) { s = Constant <value_ints = [0]> () p = Slice (x, s, m) q = Slice (x, s, n) z = Add (p, q) }"""
    return "to be equal", dict(x=floats(7, 5), m=ints(2), n=ints(3))


def scan_of_unequal_lengths():
    """g (float[T,2] x, float[S,2] y) => (float[K,2] z) {
       z = Scan <num_scan_inputs = 2, body = b (float[2] u, float[2] v) => (float[2] w) { w = Sub (u, v) }> (x, y) }"""
    return "expected operands of equal length along their axes", dict(x=floats(4, 2), y=floats(5, 2))


def shape_of_another_number():
    """g (float[6,4] x, int64[2] s) => (float[A,B] y) { r = Reshape (x, s) y = Neg (r) }"""
    return "to be equal", dict(x=floats(6, 4), s=ints(5, 5))


def more_picks_than_elements():
    """g (float[7,50] x, int64[1] k) => (float[7,K] v, int64[7,K] i) { v, i = TopK (x, k) }"""
    return "k", dict(x=floats(7, 50), k=ints(51))


def branch_that_cannot_run():
    """g (float[2,3] x, bool c) => (float[2,3] z) <float[4] w = {1,2,3,4}> {
       z = If (c) <then_branch = t () => (float[2,3] a) { a = Add (x, w) }, else_branch = e () => (float[2,3] b) { b = Neg (x) }> }"""
    return "its then branch cannot run", dict(x=floats(2, 3), c=truth(True))


def sizes_that_the_branch_compares():
    """g (float[7,5] x, int64[1] m, int64[1] n, bool c) => (float[N,5] z) {
       s = Constant <value_ints = [0]> () p = Slice (x, s, m) q = Slice (x, s, n)
       z = If (c) <then_branch = t () => (float[A,5] a) { a = Add (p, q) }, else_branch = e () => (float[B,5] b) { b = Neg (p) }> }"""
    return "to be equal", dict(x=floats(7, 5), m=ints(2), n=ints(3), c=truth(True))


def window_of_the_branch_does_not_fit():
    """g (float[1,1,T] x, bool c) => (float[1,1,U] z) <float[1,1,5] w = {1,2,3,4,5}> {
       z = If (c) <then_branch = t () => (float[1,1,A] a) { r = Conv <strides = [2]> (x, w) a = Conv (r, w) }, else_branch = e () => (float[1,1,B] b) { b = Neg (x) }> }"""
    return "a dimension of a tensor would be negative: an input is too small", dict(x=floats(1, 1, 6), c=truth(True))


def more_than_one_to_squeeze():
    return "more dimensions than in the other branch", dict(x=floats(3, 2))


more_than_one_to_squeeze.__doc__ = squeezed_if_there_is_one.__doc__


def operands_of_open_sizes():
    """g (float[N,3] x, float[M,3] y) => (float[N,3] z) { z = Add (x, y) }"""
    return "expected N and M to be equal", dict(x=floats(2, 3), y=floats(4, 3))


REFUSED = [more_than_one_to_squeeze, operands_of_open_sizes, branch_that_cannot_run, sizes_that_the_branch_compares, window_of_the_branch_does_not_fit, sums_of_unequal_length, shape_of_another_number, more_picks_than_elements, scan_of_unequal_lengths]
ALL = [case for case in ALL if case not in REFUSED]
