# SPDX-License-Identifier: Apache-2.0
"""Writes ramps.json: learning-rate range tests (Smith, arXiv:1506.01186) on given losses, in f64.

    python3 tests/golden/ramps.py > tests/golden/ramps.json

The smoothed loss of update k is the mean of the losses 0..k under weights smooth^(k-i): an exponential mean, corrected
for its beginning. It ends at the first one above `stop` times the least before it, as fastai's does. The minimum is the
least smoothed loss from index steps // 10 on; the steepest the index up to it, from there on, with the least difference
of neighbours, (s[i+1] - s[i-1]) / 2, one-sided at the end."""
import json
import math

import numpy as np


def bowl(k, n):
    """Flat, falling, rising steeply; with noise that is no function of anything simple."""
    x = k / (n - 1)
    return 2.3 - 1.6 / (1 + math.exp(-14 * (x - 0.5))) + math.exp(min(30 * (x - 0.85), 60)) + 0.1 * math.sin(7.3 * k * k)


def case(name, losses, first, last, linear=False, smooth=0.98, stop=4.0, steps=None):
    steps = steps or len(losses)
    rates = np.linspace(first, last, steps) if linear else np.exp(np.linspace(math.log(first), math.log(last), steps))
    smoothed, least, ended = [], math.inf, "goes on"
    for k, loss in enumerate(losses):
        if not math.isfinite(loss):
            ended = "diverged"
            break
        weights = np.array([smooth ** (k - i) for i in range(k + 1)])
        smoothed.append(math.fsum(weights * np.array(losses[:k + 1])) / math.fsum(weights))
        if smoothed[-1] > stop * least:
            ended = "above"
            break
        least = min(least, smoothed[-1])
        ended = "done" if k + 1 == steps else "goes on"
    s, start = np.array(smoothed), steps // 10
    minimum = start + int(np.argmin(s[start:])) if len(s) > start else -1
    minimum = minimum if minimum > start else -1
    steepest = -1
    if minimum >= 0:
        slopes = np.gradient(s)[start:minimum + 1]
        steepest = start + int(np.argmin(slopes)) if min(slopes) < 0 else -1
    return {"name": name, "losses": [x if math.isfinite(x) else str(x) for x in losses], "from": first, "to": last,
            "linear": linear, "smooth": smooth, "stop": stop if math.isfinite(stop) else "inf", "steps": steps, "ended": ended,
            "rates": list(rates[:len(s)]), "smoothed": smoothed, "minimum": minimum, "steepest": steepest}


N = 100
CASES = [
    case("usual", [bowl(k, N) for k in range(N)], 1e-7, 10.0),
    case("less smooth", [bowl(k, N) for k in range(N)], 1e-7, 10.0, smooth=0.8),
    case("not smooth", [bowl(k, 40) for k in range(40)], 1e-4, 1.0, smooth=0.0),
    case("linear", [bowl(k, N) for k in range(N)], 0.0, 3.0, linear=True, smooth=0.9),
    case("never ends", [bowl(k, N) for k in range(N)], 1e-7, 10.0, smooth=0.9, stop=math.inf),
    case("ends at 1.5 times", [bowl(k, N) for k in range(N)], 1e-7, 10.0, smooth=0.9, stop=1.5),
    case("diverges", [bowl(k, N) for k in range(80)] + [math.nan], 1e-7, 10.0, smooth=0.9, steps=N),
    case("diverges at once", [math.inf], 1e-7, 10.0, steps=N),
    case("only rises", [1 + 0.01 * k for k in range(50)], 1e-3, 1.0, smooth=0.5),
    case("only falls", [2 - 0.01 * k for k in range(50)], 1e-3, 1.0, smooth=0.5),
    case("low by chance at first", [0.3] + [bowl(k, N) for k in range(1, N)], 1e-7, 10.0, smooth=0.3, stop=math.inf),
    case("falls behind its least", [2 - 0.01 * k for k in range(40)] + [9.0, 8.0, 3.0, 2.5], 1e-3, 1.0, smooth=0.1, stop=20.0),
    case("two steps", [2.0, 1.0], 1e-3, 1.0),
]

if __name__ == "__main__":
    print(json.dumps(CASES, indent=0))
