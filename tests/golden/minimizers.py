#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes minimizers.json: trajectories of L-BFGS, Newton-CG and saddle-free Newton, independent of the C code.

Written in f64 from Nocedal and Wright 2006 (algorithms 7.4, 7.5, 3.5, 3.6, 7.1, 3.1) and Dauphin et al. 2014, with
vectors where the plugins have dot products and LAPACK's eigenvalues where they have Jacobi's. The functions are
Rosenbrock's, chained: f = sum of 100 (x[i+1] - x[i]^2)^2 + (1 - x[i])^2. Each case says how far its last point moves
when the start is moved by 1e-14: the C test allows 1e-8. Run: python3 minimizers.py > minimizers.json
"""
import json
import sys

import numpy as np


def rosenbrock(x):
    a, b = x[:-1], x[1:]
    return (100 * (b - a * a) ** 2 + (1 - a) ** 2).sum()


def rosenbrock_gradient(x):
    g = np.zeros_like(x)
    g[1:] += 200 * (x[1:] - x[:-1] ** 2)
    g[:-1] += -400 * x[:-1] * (x[1:] - x[:-1] ** 2) - 2 * (1 - x[:-1])
    return g


def rosenbrock_hessian(x):
    n = len(x)
    h = np.zeros((n, n))
    for i in range(n - 1):
        h[i, i] += 1200 * x[i] ** 2 - 400 * x[i + 1] + 2
        h[i + 1, i + 1] += 200
        h[i, i + 1] -= 400 * x[i]
        h[i + 1, i] -= 400 * x[i]
    return h


SEEN = set()  # rare paths that the cases must take

# ---- L-BFGS ----

def cubic_minimum(a, b):
    (ta, fa, da), (tb, fb, db) = a, b
    d1 = da + db - 3 * (fa - fb) / (ta - tb)
    inside = d1 * d1 - da * db
    if not inside >= 0:
        return np.nan
    d2 = np.sign(tb - ta) * np.sqrt(inside)
    return tb - (tb - ta) * (db + d2 - d1) / (db - da + 2 * d2)


def strong_wolfe(x, d, f0, slope0, t, most):
    """The accepted (t, evaluations); t = 0: none."""
    tried = 0

    def phi(step):
        nonlocal tried
        tried += 1
        y = x + step * d
        return step, rosenbrock(y), float(rosenbrock_gradient(y) @ d)

    def low_enough(point):
        return point[1] <= f0 + 1e-4 * point[0] * slope0

    def is_flat(point):
        return abs(point[2]) <= 0.9 * abs(slope0)

    previous = (0.0, f0, slope0)
    low = high = None
    best = previous
    while tried < most:
        now = phi(t)
        if not low_enough(now) or (tried > 1 and now[1] >= previous[1]):
            low, high = previous, now
            break
        if is_flat(now):
            return now[0], tried
        if now[2] >= 0:
            low, high = now, previous
            break
        guess = cubic_minimum(previous, now)
        smallest, largest = now[0] + 0.01 * (now[0] - previous[0]), 10 * now[0]
        t = guess if smallest <= guess <= largest else largest
        best = previous = now
    while low is not None and tried < most:
        a, b = min(low[0], high[0]), max(low[0], high[0])
        guess, margin = cubic_minimum(low, high), 0.1 * (b - a)
        t = guess if a + margin <= guess <= b - margin else (a + b) / 2
        now = phi(t)
        if not low_enough(now) or now[1] >= low[1]:
            high = now
            continue
        if is_flat(now):
            return now[0], tried
        if now[2] * (high[0] - low[0]) >= 0:
            SEEN.add('ends change places')
            high = low
        low = now
    best = low if low is not None else best
    return best[0], tried + (best[0] > 0)


def lbfgs(x, steps, lr=1, history=10, searches=25):
    pairs, path = [], []
    for _ in range(steps):
        f, g = rosenbrock(x), rosenbrock_gradient(x)
        q, alphas = -g, []
        for s, y in reversed(pairs):
            alphas.append((s @ q) / (s @ y))
            q = q - alphas[-1] * y
        if pairs:
            s, y = pairs[-1]
            q = q * ((s @ y) / (y @ y))
        for (s, y), alpha in zip(pairs, reversed(alphas)):
            q = q + (alpha - (y @ q) / (s @ y)) * s
        first = lr * (1.0 if pairs else min(1.0, 1 / np.linalg.norm(g)))
        t, _ = strong_wolfe(x, q, f, float(g @ q), first, searches)
        assert t > 0
        x = x + t * q
        change = rosenbrock_gradient(x) - g
        if change @ q > 1e-8 * np.linalg.norm(change) * np.linalg.norm(q):
            pairs = (pairs + [(t * q, change)])[-history:]
        path.append(x)
    return path


# ---- Newton ----

def armijo(x, d, lr, searches):
    t, f, slope = lr, rosenbrock(x), float(rosenbrock_gradient(x) @ d)
    for _ in range(searches):
        if rosenbrock(x + t * d) <= f + 1e-4 * t * slope:
            return x + t * d
        t /= 2
    raise AssertionError('no step')


def newton_cg(x, steps, lr=1, damping=0, forcing=0.5, iterations=50, searches=20):
    path = []
    for _ in range(steps):
        g = rosenbrock_gradient(x)
        h = rosenbrock_hessian(x) + damping * np.eye(len(x))
        size = np.linalg.norm(g)
        z, r, d = np.zeros_like(x), g.copy(), -g
        for j in range(iterations):
            if np.linalg.norm(r) <= min(forcing, np.sqrt(size)) * size:
                break
            if np.linalg.norm(r) <= forcing * size:
                SEEN.add('the forcing tightens')
            curvature = d @ h @ d
            if curvature <= 0:
                z = -g if j == 0 else z
                break
            a = (r @ r) / curvature
            z = z + a * d
            new = r + a * (h @ d)
            d = -new + (new @ new) / (r @ r) * d
            r = new
        x = armijo(x, z, lr, searches)
        path.append(x)
    return path


def saddle_free(x, steps, lr=1, damping=1e-3, vectors=10, searches=20):
    path = []
    for _ in range(steps):
        g, h = rosenbrock_gradient(x), rosenbrock_hessian(x)
        basis = [g / np.linalg.norm(g)]
        while len(basis) < min(vectors, len(x)):
            w = h @ basis[-1]
            for _ in range(2):
                for v in basis:
                    w = w - (w @ v) * v
            basis.append(w / np.linalg.norm(w))
        v = np.array(basis).T
        values, u = np.linalg.eigh(v.T @ h @ v)
        d = -v @ u @ ((u.T @ (v.T @ g)) / (np.abs(values) + damping))
        x = armijo(x, d, lr, searches)
        path.append(x)
    return path


def far(n):
    return np.where(np.arange(n) % 2 == 0, -1.2, 1.0)


CASES = [
    ('lbfgs', lbfgs, far(2), 30, {}),
    ('lbfgs', lbfgs, far(2), 25, {'history': 2}),
    ('lbfgs', lbfgs, far(10), 30, {'history': 5}),
    ('lbfgs', lbfgs, far(2), 12, {'lr': 3}),
    ('newton-cg', newton_cg, far(2), 20, {'forcing': 1e-6}),
    ('newton-cg', newton_cg, far(10), 30, {'forcing': 1e-3}),
    ('newton-cg', newton_cg, far(10), 12, {'damping': 2.5, 'forcing': 0.125, 'iterations': 7}),
    ('newton-cg', newton_cg, np.linspace(0.98, 1.04, 10), 6, {}),
    ('saddle-free-newton', saddle_free, far(2), 14, {}),
    ('saddle-free-newton', saddle_free, far(10), 20, {'damping': 0.5}),
    ('saddle-free-newton', saddle_free, far(10), 9, {'vectors': 4, 'lr': 0.75}),
]


def main():
    out = []
    for name, rule, start, steps, settings in CASES:
        path = rule(start, steps, **settings)
        moved = rule(start + 1e-14, steps, **settings)
        spread = max(np.abs(a - b).max() for a, b in zip(path, moved))
        print(name, len(start), settings, 'loss', rosenbrock(path[-1]), 'spread', spread, file=sys.stderr)
        assert spread < 1e-9
        out.append({'rule': name, 'settings': {k: str(v) for k, v in settings.items()}, 'start': start.tolist(),
                    'path': [p.tolist() for p in path], 'loss': [rosenbrock(p) for p in path]})
    assert SEEN == {'ends change places', 'the forcing tightens'}
    json.dump(out, sys.stdout, indent=0)
    print()


main()
