#!/usr/bin/env python3
"""Fits the polynomials of tensor/passes/math/*.cpp: minimax by Remez's exchange, in high precision.

Needs mpmath. Prints each set of coefficients (lowest power first) and the largest relative error.
"""
import sys
from mpmath import mp, mpf, matrix, lu_solve, cos, pi, exp, log, sqrt, sin, atan, asin, erf, erfc, tanh, expm1, log1p

mp.prec = 200


def remez(basis, target, weight, low, high, rounds=25, grid=1500):
    """Coefficients c with sum(c_i basis_i(x)) ~ target(x), the largest of |error| * weight least."""
    n = len(basis)
    low, high = mpf(low), mpf(high)
    points = [(low + high) / 2 + (high - low) / 2 * cos(pi * (2 * i + 1) / (2 * grid)) for i in range(grid)][::-1]
    rows = [[b(x) for b in basis] for x in points]
    wanted = [target(x) for x in points]
    weights = [weight(x) for x in points]
    picks = [round((1 - cos(pi * i / n)) / 2 * (grid - 1)) for i in range(n + 1)]
    best = None
    for _ in range(rounds):
        a, b = matrix(n + 1, n + 1), matrix(n + 1, 1)
        for r, p in enumerate(picks):
            for c in range(n):
                a[r, c] = rows[p][c]
            a[r, n] = (-1) ** r / weights[p]
            b[r] = wanted[p]
        solved = lu_solve(a, b)
        coefficients = [solved[i] for i in range(n)]
        errors = [(sum(x * y for x, y in zip(coefficients, row)) - t) * w
                  for row, t, w in zip(rows, wanted, weights)]
        worst = max(abs(e) for e in errors)
        if best is None or worst < best[0]:
            best = (worst, coefficients)
        # One extremum for each run of equal sign; the largest n + 1 neighbours of them.
        runs = []
        for i, e in enumerate(errors):
            if runs and (errors[runs[-1]] > 0) == (e > 0):
                if abs(e) > abs(errors[runs[-1]]):
                    runs[-1] = i
            else:
                runs.append(i)
        while len(runs) > n + 1:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
        if len(runs) < n + 1 or runs == picks:
            break
        picks = runs
    return best[1], best[0]


def powers(count, first=0):
    return [(lambda x, k=k: x ** k) for k in range(first, first + count)]


def show(name, coefficients, error, single):
    digits = 10 if single else 19
    suffix = ""
    text = ", ".join(mp.nstr(c, digits) + suffix for c in coefficients)
    print(f"// {name}: relative error 2^{float(log(error, 2)):.1f}\n{{{text}}}\n")


def polynomial(name, f, count, low, high, single, weight=None):
    """f(x) ~ sum of count powers, relative error of f unless a weight is given."""
    c, e = remez(powers(count), f, weight or (lambda x: 1 / abs(f(x))), low, high)
    show(name, c, e, single)


def rational(name, f, numerator, denominator, low, high, single):
    """f ~ P / Q with Q(0) = 1, relative error: each round is linear, weighted by the last Q."""
    q = [mpf(0)] * (denominator - 1)
    for _ in range(12):
        basis = powers(numerator) + [(lambda x, k=k: -f(x) * x ** k) for k in range(1, denominator)]
        at = lambda x: 1 + sum(c * x ** (k + 1) for k, c in enumerate(q))
        c, e = remez(basis, f, lambda x: 1 / abs(f(x) * at(x)), low, high, grid=600)
        q = c[numerator:]
    show(name + " P", c[:numerator], e, single)
    show(name + " Q", [mpf(1)] + list(q), e, single)


ln2h = log(mpf(2)) / 2
tiny = mpf(2) ** -40


def series(f, at_zero):
    """f with its limit at zero."""
    return lambda x: at_zero if abs(x) < tiny else f(x)


log_series = series(lambda z: (log((1 + sqrt(z)) / (1 - sqrt(z))) - 2 * sqrt(z)) / (z * sqrt(z)), mpf(2) / 3)


def fit_all(only):
    jobs = {
        # e^r = 1 + r + r^2 q(r)
        "exp_f32": lambda: polynomial("exp_f32", series(lambda r: (exp(r) - 1 - r) / r ** 2, mpf(1) / 2), 5, -ln2h, ln2h,
                                      True, lambda r: r ** 2 + mpf(2) ** -60),
        "exp_f64": lambda: polynomial("exp_f64", series(lambda r: (exp(r) - 1 - r) / r ** 2, mpf(1) / 2), 11, -ln2h, ln2h,
                                      False, lambda r: r ** 2 + mpf(2) ** -90),
        # expm1 needs the relative error of e^r - 1
        "expm1_f32": lambda: polynomial("expm1_f32", series(lambda r: (exp(r) - 1 - r) / r ** 2, mpf(1) / 2), 6, -ln2h, ln2h,
                                        True, lambda r: abs(r) + mpf(2) ** -60),
        "expm1_f64": lambda: polynomial("expm1_f64", series(lambda r: (exp(r) - 1 - r) / r ** 2, mpf(1) / 2), 12, -ln2h,
                                        ln2h, False, lambda r: abs(r) + mpf(2) ** -90),
        # 2^r = 1 + r q(r)
        "exp2_f32": lambda: polynomial("exp2_f32", series(lambda r: (mpf(2) ** r - 1) / r, log(mpf(2))), 7, mpf(-1) / 2,
                                       mpf(1) / 2, True, lambda r: abs(r) + mpf(2) ** -60),
        "exp2_f64": lambda: polynomial("exp2_f64", series(lambda r: (mpf(2) ** r - 1) / r, log(mpf(2))), 13, mpf(-1) / 2,
                                       mpf(1) / 2, False, lambda r: abs(r) + mpf(2) ** -90),
        # log(1 + f) = f - f^2/2 + f^3 p(f)
        "log_f32": lambda: polynomial("log_f32", series(lambda f: (log1p(f) - f + f * f / 2) / f ** 3, mpf(1) / 3), 9,
                                      sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1, True, lambda f: f * f + mpf(2) ** -60),
        # log((1+s)/(1-s)) = 2s + s z r(z), z = s^2
        "log_f64": lambda: polynomial("log_f64", log_series, 8, 0, mpf("0.02944"), False, lambda z: z + mpf(2) ** -60),
        "pow_f32": lambda: polynomial("pow_f32", log_series, 4, 0, mpf("0.02944"), True, lambda z: z + mpf(2) ** -60),
        # sin x = x + x z s(z), cos x = 1 - z/2 + z^2 c(z)
        "sin_f64": lambda: polynomial("sin_f64", series(lambda z: (sin(sqrt(z)) - sqrt(z)) / (z * sqrt(z)), -mpf(1) / 6), 7, 0,
                                      (pi / 4) ** 2, False, lambda z: z + mpf(2) ** -60),
        "cos_f64": lambda: polynomial("cos_f64", series(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z ** 2, mpf(1) / 24), 7, 0,
                                      (pi / 4) ** 2, False, lambda z: z ** 2 + mpf(2) ** -80),
        # the same beyond pi/4, where the quarter turns are counted in f32
        "sin_f32": lambda: polynomial("sin_f32", series(lambda z: (sin(sqrt(z)) - sqrt(z)) / (z * sqrt(z)), -mpf(1) / 6), 4, 0,
                                      mpf("0.95") ** 2, True, lambda z: z + mpf(2) ** -60),
        "cos_f32": lambda: polynomial("cos_f32", series(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z ** 2, mpf(1) / 24), 3, 0,
                                      mpf("0.95") ** 2, True, lambda z: z ** 2 + mpf(2) ** -80),
        # atan x = x + x z p(z) on [0, tan(pi/8)]
        "atan_f64": lambda: polynomial("atan_f64", series(lambda z: (atan(sqrt(z)) - sqrt(z)) / (z * sqrt(z)), -mpf(1) / 3), 12,
                                       0, mpf("0.17158"), False, lambda z: z + mpf(2) ** -60),
        # asin x = x + x z p(z) on [0, 1/2]
        "asin_f64": lambda: polynomial("asin_f64", series(lambda z: (asin(sqrt(z)) - sqrt(z)) / (z * sqrt(z)), mpf(1) / 6), 14, 0,
                                       mpf(1) / 4, False, lambda z: z + mpf(2) ** -60),
        # tanh x = x P(z) / Q(z) on [0, 9.02]; erf x = x P(z) / Q(z) on [0, 3.9]
        "tanh_f32": lambda: rational("tanh_f32", series(lambda z: tanh(sqrt(z)) / sqrt(z), mpf(1)), 7, 5, 0, mpf("9.1") ** 2, True),
        "erf_f32": lambda: rational("erf_f32", series(lambda z: erf(sqrt(z)) / sqrt(z), 2 / sqrt(pi)), 7, 6, 0,
                                    mpf("3.92") ** 2, True),
        # erf x = x p(z) on [0, 1]
        "erf_f64_low": lambda: polynomial("erf_f64_low", series(lambda z: erf(sqrt(z)) / sqrt(z), 2 / sqrt(pi)), 13, 0, 1, False),
        # erfc x = e^(-x^2) p(t) on [1, 6], t = (x - 3) / (x + 2)
        "erf_f64_high": lambda: polynomial("erf_f64_high", lambda t: exp(((3 + 2 * t) / (1 - t)) ** 2) * erfc((3 + 2 * t) / (1 - t)),
                                           20, mpf(-2) / 3, mpf(3) / 8, False),
    }
    for name, job in jobs.items():
        if not only or name in only:
            job()
            sys.stdout.flush()


if __name__ == "__main__":
    fit_all(sys.argv[1:])
