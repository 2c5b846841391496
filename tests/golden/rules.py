#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rules.json: trajectories of update rules from their papers' formulas in f64, independent of the C code.

An input is p0 and the gradient of each step, to be repeated over a parameter of any size. A vector says which
component with which settings (text, as in an experiment) takes an input through p, one list a step. Before it is
written, each is compared with update-rules.json, where that has the rule, and with torch in f64, where it is installed.
Run: python3 rules.py > rules.json
"""
import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def sgd(p, gradients, lr, momentum=0.0, dampening=0.0, nesterov=False, l2=0.0, weight_decay=0.0):
    """torch.optim.SGD: the buffer starts as the gradient, so dampening is skipped at t = 1."""
    buffer = None
    for g in gradients:
        g = g + l2 * p
        buffer = g if buffer is None else momentum * buffer + (1 - dampening) * g
        d = g + momentum * buffer if nesterov else buffer
        p = p * (1 - lr * weight_decay) - lr * d
        yield p


def adam(p, gradients, lr, beta1=0.9, beta2=0.999, eps=1e-8, l2=0.0, weight_decay=0.0):
    """arXiv:1412.6980 Algorithm 1; decoupled decay as in arXiv:1711.05101 Algorithm 2 with torch's lr * decay."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        g = g + l2 * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        corrected_m, corrected_v = m / (1 - beta1**t), v / (1 - beta2**t)
        p = p * (1 - lr * weight_decay) - lr * corrected_m / (math.sqrt(corrected_v) + eps)
        yield p


def lamb(p, gradients, lr, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.01):
    """arXiv:1904.00962 Algorithm 2 with bias correction, on a whole tensor (a list); ratio 1 where a norm is 0."""
    m, v = [0.0] * len(p), [0.0] * len(p)
    for t, g in enumerate(gradients, 1):
        m = [beta1 * a + (1 - beta1) * b for a, b in zip(m, g)]
        v = [beta2 * a + (1 - beta2) * b * b for a, b in zip(v, g)]
        r = [a / (1 - beta1**t) / (math.sqrt(b / (1 - beta2**t)) + eps) + weight_decay * x for a, b, x in zip(m, v, p)]
        norm_p, norm_r = math.sqrt(math.fsum(x * x for x in p)), math.sqrt(math.fsum(x * x for x in r))
        ratio = norm_p / norm_r if norm_p > 0 and norm_r > 0 else 1.0
        p = [x - lr * ratio * y for x, y in zip(p, r)]
        yield p


# Rules whose step depends on the tensor as a whole.
TENSOR_FORMULAS = {"lamb": lamb}
FORMULAS = {"sgd": sgd, "adam": adam, "adamw": adam}
DEFAULTS = {"adamw": {"weight_decay": 0.01}}

# component, settings, and the rule's name in update-rules.json
VECTORS = [
    ("sgd", {"lr": "0.1"}, "sgd"),
    ("sgd", {"lr": "0.1", "momentum": "0.9"}, "sgd_m.9"),
    ("sgd", {"lr": "0.1", "momentum": "0.9", "nesterov": "true"}, "sgd_nesterov.9"),
    ("sgd", {"lr": "0.1", "momentum": "0.9", "dampening": "0.1"}, "sgd_m.9_damp.1"),
    ("sgd", {"lr": "0.1", "momentum": "0.9", "l2": "0.1"}, "sgd_m.9_l2.1"),
    ("sgd", {"lr": "0.1", "momentum": "0.9", "weight_decay": "0.1"}, "sgdw_m.9_wd.1"),
    ("sgd", {"lr": "0.02", "l2": "0.3", "weight_decay": "0.2"}, None),
    ("sgd", {"lr": "0.02", "momentum": "0.8", "nesterov": "true", "l2": "0.3", "weight_decay": "0.2"}, None),
    ("adam", {"lr": "0.1"}, "adam"),
    ("adam", {"lr": "0.1", "l2": "0.1"}, "adam_l2.1"),
    ("adam", {"lr": "0.02", "beta1": "0", "beta2": "0.5", "eps": "1e-3", "l2": "0.3"}, None),
    ("adamw", {"lr": "0.1", "weight_decay": "0.1"}, "adamw_.1"),
    ("adamw", {"lr": "0.02"}, None),
    ("adamw", {"lr": "0.02", "beta1": "0.8", "beta2": "0.9", "eps": "1e-2", "weight_decay": "0"}, None),
    ("lamb", {"lr": "0.1"}, "lamb"),
    ("lamb", {"lr": "0.02", "beta1": "0.8", "beta2": "0.9", "eps": "1e-2", "weight_decay": "0"}, None),
]

# The scalar probe of techniques.md: theta 1, g = (0.5, -0.25, 1), lr 0.1.
PROBE = [
    ("adam", {"lr": "0.1"}, [0.900000002, 0.8733662987078463, 0.8075551396770898]),
    ("adam", {"lr": "0.1", "l2": "0.1"}, [0.9000000016666666, 0.8544413674617625, 0.7815043998631658]),
    ("adamw", {"lr": "0.1", "weight_decay": "0.1"}, [0.890000002, 0.8544662986878463, 0.7801104766702113]),
    ("sgd", {"lr": "0.1", "momentum": "0.9"}, [0.95, 0.93, 0.812]),
    ("sgd", {"lr": "0.1", "momentum": "0.9", "nesterov": "true"}, [0.905, 0.912, 0.7058]),
]


def base_input(period=31, steps=6):
    """Multiples of 1/64, exact in f32, p away from 0; with gradients that are 0, small and of both signs."""
    p0 = [(1 + (37 * i % 64) / 64) * (-1) ** i for i in range(period)]
    small = [2.0**-12 if i % 7 == 3 else 1 for i in range(period)]
    g = [[((29 * i + 17 * t * t) % 65 - 32) / 64 * small[i] for i in range(period)] for t in range(steps)]
    for row in g:
        row[5] = 0.0
    return {"p0": p0, "g": g}


def numbers(component, settings):
    named = {k: v == "true" if v in ("true", "false") else float(v) for k, v in settings.items()}
    return {**DEFAULTS.get(component, {}), **named}


def trajectory(component, settings, given):
    """p after each step, element by element where the rule is one of elements."""
    if component in TENSOR_FORMULAS:
        return list(TENSOR_FORMULAS[component](given["p0"], given["g"], **numbers(component, settings)))
    columns = [
        list(FORMULAS[component](p0, [row[i] for row in given["g"]], **numbers(component, settings)))
        for i, p0 in enumerate(given["p0"])
    ]
    return [list(row) for row in zip(*columns)]


def torch_trajectory(torch, component, settings, given):
    """None where torch has no such rule."""
    if component in TENSOR_FORMULAS:
        return None
    s = numbers(component, settings)
    p = torch.nn.Parameter(torch.tensor(given["p0"], dtype=torch.float64))
    if component == "sgd":
        if s.get("weight_decay"):
            return None
        optimizer = torch.optim.SGD([p], lr=s["lr"], momentum=s.get("momentum", 0), dampening=s.get("dampening", 0),
                                    nesterov=s.get("nesterov", False), weight_decay=s.get("l2", 0))
    else:
        kind = torch.optim.AdamW if component == "adamw" else torch.optim.Adam
        optimizer = kind([p], lr=s["lr"], betas=(s.get("beta1", 0.9), s.get("beta2", 0.999)), eps=s.get("eps", 1e-8),
                         weight_decay=s.get("weight_decay" if component == "adamw" else "l2", 0))
    rows = []
    for g in given["g"]:
        p.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
        rows.append(p.tolist())
    return rows


def compare(a, b, tolerance, what):
    worst = max(abs(x - y) for row_a, row_b in zip(a, b) for x, y in zip(row_a, row_b))
    if len(a) != len(b) or worst > tolerance:
        sys.exit(f"{what}: differs by {worst}")


def flat(matrix):
    return [x for row in matrix for x in row]


def main():
    with open(os.path.join(HERE, "update-rules.json")) as file:
        other = json.load(file)
    try:
        import torch
    except ImportError:
        torch = None
    inputs = {
        "base": base_input(),
        "matrix": {"p0": flat(other["W0"]), "g": [flat(g) for g in other["G"]]},
        "probe": {"p0": [1.0], "g": [[0.5], [-0.25], [1.0]]},
    }
    planned = [(c, s, "base", None) for c, s, _ in VECTORS]
    planned += [(c, s, "matrix", [flat(p) for p in other["values"][rule]]) for c, s, rule in VECTORS if rule]
    planned += [(c, s, "probe", [[p] for p in values]) for c, s, values in PROBE]
    vectors = []
    for component, settings, name, known in planned:
        p = trajectory(component, settings, inputs[name])
        what = f"{component} {settings} on {name}"
        if known:
            compare(p, known, 1e-12, what + ", other record")
        if torch:
            from_torch = torch_trajectory(torch, component, settings, inputs[name])
            if from_torch:
                compare(p, from_torch, 1e-12, what + ", torch")
        vectors.append({"component": component, "settings": settings, "input": name, "p": p,
                        "whole": component in TENSOR_FORMULAS})
    print(f"compared with torch: {torch.__version__ if torch else 'not installed'}", file=sys.stderr)
    parts = [f' "inputs": {json.dumps(inputs)}']
    parts.append(' "vectors": [\n  ' + ",\n  ".join(json.dumps(v) for v in vectors) + "\n ]")
    print("{\n" + ",\n".join(parts) + "\n}")


main()
