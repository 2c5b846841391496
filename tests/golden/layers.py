#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes layers.json: what layers and losses must give, from the formulas in f64, independent of the C code.

A layer case: settings (text, as in an experiment), shape of x, x, dy, parameters, and what must come out: y, dx, the
gradients, the buffers after a training call. A loss case: x, targets, seed, and the sums (loss, count, correct) and dx;
a real loss case has another third sum, the mean absolute error.
With --torch, every case is also held against PyTorch in f64. Run: python3 layers.py > layers.json
"""
import json
import math
import sys

import numpy as np

random = np.random.default_rng(20240501)
erf = np.vectorize(math.erf)


def normal(*shape):
    return random.standard_normal(shape)


def layernorm(x, dy, weight, bias, eps):
    mean = x.mean(-1, keepdims=True)
    r = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)
    n = (x - mean) * r
    g = dy * weight
    dx = r * (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True))
    rows = tuple(range(x.ndim - 1))
    return n * weight + bias, dx, (dy * n).sum(rows), dy.sum(rows)


def batchnorm_train(x, dy, weight, bias, eps):
    count = len(x)
    mean, variance = x.mean(0), x.var(0)
    r = 1 / np.sqrt(variance + eps)
    n = (x - mean) * r
    dx = weight * r * (dy - dy.mean(0) - n * (dy * n).mean(0))
    return n * weight + bias, dx, (dy * n).sum(0), dy.sum(0), mean, variance * count / (count - 1)


def batchnorm_eval(x, dy, weight, bias, mean, variance, eps):
    r = 1 / np.sqrt(variance + eps)
    n = (x - mean) * r
    return n * weight + bias, weight * r * dy, (dy * n).sum(0), dy.sum(0)


def gelu(x):
    distribution = 0.5 * (1 + erf(x / math.sqrt(2)))
    return x * distribution, distribution + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def cross_entropy(x, target, smoothing, seed):
    e = np.exp(x - x.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    counted = target >= 0
    q = np.full_like(x, smoothing / x.shape[1])
    q[np.arange(len(x)), np.maximum(target, 0)] += 1 - smoothing
    log_p = x - x.max(1, keepdims=True) - np.log(e.sum(1, keepdims=True))
    loss = -(q * log_p).sum(1)
    correct = (x.argmax(1) == target) & counted
    return [loss[counted].sum(), int(counted.sum()), int(correct.sum())], seed * (p - q) * counted[:, None]


def mse(x, target, over, seed):
    d, numbers = x - target, x.shape[1]
    c = 1 / numbers if over == "mean" else 1
    return [c * (d ** 2).sum(), len(x), np.abs(d).sum() / numbers], 2 * seed * c * d


# ---- cases ----

def values(**arrays):
    return {key: np.asarray(value).ravel().tolist() for key, value in arrays.items()}


def layer_case(name, kind, use, settings, x, train, data):
    return {"name": name, "kind": kind, "use": use, "settings": settings, "shape": list(x.shape), "train": train,
            **values(x=x, **data)}


def layernorm_cases():
    for name, shape in (("wide", (5, 33)), ("three extents", (2, 3, 8)), ("pair", (4, 2))):
        x, dy = 3 + 2 * normal(*shape), normal(*shape)
        weight, bias = normal(shape[-1]), normal(shape[-1])
        y, dx, dweight, dbias = layernorm(x, dy, weight, bias, 1e-5)
        yield layer_case("layernorm " + name, "normalizer", "layernorm", {}, x, True,
                         {"dy": dy, "parameter0": weight, "parameter1": bias, "y": y, "dx": dx, "gradient0": dweight,
                          "gradient1": dbias})
    x, dy = normal(3, 7), normal(3, 7)
    y, dx, _, _ = layernorm(x, dy, 1, 0, 0.5)
    yield layer_case("layernorm plain", "normalizer", "layernorm", {"affine": "false", "eps": "0.5"}, x, True,
                     {"dy": dy, "y": y, "dx": dx})


def batchnorm_cases():
    shape = (6, 70)
    x, dy = 2 + 3 * normal(*shape), normal(*shape)
    weight, bias, mean0, variance0 = normal(70), normal(70), normal(70), np.abs(normal(70)) + 0.1
    y, dx, dweight, dbias, mean, variance = batchnorm_train(x, dy, weight, bias, 1e-5)
    given = {"dy": dy, "parameter0": weight, "parameter1": bias, "buffer0": mean0, "buffer1": variance0}
    yield layer_case("batchnorm train", "normalizer", "batchnorm", {"momentum": "0.3"}, x, True,
                     {**given, "y": y, "dx": dx, "gradient0": dweight, "gradient1": dbias,
                      "after0": 0.7 * mean0 + 0.3 * mean, "after1": 0.7 * variance0 + 0.3 * variance})
    y, dx, dweight, dbias = batchnorm_eval(x, dy, weight, bias, mean0, variance0, 1e-5)
    yield layer_case("batchnorm evaluation", "normalizer", "batchnorm", {}, x, False,
                     {**given, "y": y, "dx": dx, "gradient0": dweight, "gradient1": dbias, "after0": mean0,
                      "after1": variance0})


def activation_cases():
    x, dy = 3 * normal(9, 11), normal(9, 11)
    x[0, :5] = 1, -1, 2.5, -3, 0
    y, slope = gelu(x)
    yield layer_case("gelu", "activation", "gelu", {}, x, True, {"dy": dy, "y": y, "dx": dy * slope})
    yield layer_case("relu", "activation", "relu", {}, x, True,
                     {"dy": dy, "y": np.maximum(x, 0), "dx": dy * (x > 0)})


def linear_cases():
    for name, shape in (("matrix", (5, 7)), ("three extents", (2, 3, 4))):
        x, dy = normal(*shape), normal(*shape[:-1], 6)
        weight, bias = normal(6, shape[-1]), normal(6)
        rows = dy.reshape(-1, 6)
        yield layer_case("linear " + name, "layer", "linear", {"out": "6"}, x, True,
                         {"dy": dy, "parameter0": weight, "parameter1": bias, "y": x @ weight.T + bias,
                          "dx": dy @ weight, "gradient0": rows.T @ x.reshape(-1, shape[-1]), "gradient1": rows.sum(0)})


def loss_cases():
    for name, rows, classes, smoothing, seed in (("plain", 7, 10, 0.0, 1.0), ("smooth", 7, 10, 0.1, 0.125),
                                                 ("many classes", 3, 517, 0.2, 2.0), ("two classes", 4, 2, 1.0, 1.0)):
        x, target = 4 * normal(rows, classes), random.integers(0, classes, rows)
        target[1] = -1
        target[2] = x[2].argmax()
        sums, dx = cross_entropy(x, target, smoothing, seed)
        yield {"name": name, "smoothing": smoothing, "seed": seed, "classes": classes,
               **values(x=x, target=target, sums=sums, dx=dx)}


def real_loss_cases():
    for name, rows, numbers, over, seed in (("one number", 9, 1, "sum", 1.0), ("sum", 5, 7, "sum", 0.125),
                                            ("mean", 3, 70, "mean", 2.0)):
        x, target = 3 * normal(rows, numbers), normal(rows, numbers)
        target[1] = x[1]
        sums, dx = mse(x, target, over, seed)
        yield {"name": name, "over": over, "seed": seed, "numbers": numbers,
               **values(x=x, target=target, sums=sums, dx=dx)}


# ---- against PyTorch ----

def close(name, mine, theirs):
    mine, theirs = np.asarray(mine).ravel(), theirs.detach().numpy().ravel()
    worst = np.abs(mine - theirs).max()
    assert worst < 1e-12 * max(1, np.abs(theirs).max()), (name, worst)


def torch_layer(torch, case, x, parameters, buffers):
    functional, use = torch.nn.functional, case["use"]
    weight, bias = (parameters + [None, None])[:2]
    eps = float(case["settings"].get("eps", 1e-5))
    if use == "layernorm":
        return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    if use == "batchnorm":
        momentum = float(case["settings"].get("momentum", 0.1))
        return functional.batch_norm(x, *buffers, weight, bias, case["train"], momentum, eps)
    return functional.linear(x, weight, bias) if use == "linear" else getattr(functional, use)(x)


def check_layer(torch, case):
    def tensor(key, shape=None):
        value = torch.tensor(case[key], dtype=torch.float64)
        return value if shape is None else value.reshape(shape)

    x = tensor("x", case["shape"]).requires_grad_()
    parameters = [tensor(f"parameter{i}") for i in range(2) if f"parameter{i}" in case]
    if case["use"] == "linear":
        parameters[0] = parameters[0].reshape(-1, case["shape"][-1])
    for parameter in parameters:
        parameter.requires_grad_()
    buffers = [tensor(f"buffer{i}") for i in range(2) if f"buffer{i}" in case]
    y = torch_layer(torch, case, x, parameters, buffers)
    y.backward(tensor("dy", y.shape))
    close(case["name"], case["y"], y)
    close(case["name"], case["dx"], x.grad)
    for i, parameter in enumerate(parameters):
        close(case["name"], case[f"gradient{i}"], parameter.grad)
    for i, buffer in enumerate(buffers):
        close(case["name"], case[f"after{i}"], buffer)


def check_loss(torch, case):
    x = torch.tensor(case["x"], dtype=torch.float64).reshape(-1, case["classes"]).requires_grad_()
    target = torch.tensor(case["target"], dtype=torch.int64)
    loss = torch.nn.functional.cross_entropy(x, target, ignore_index=-1, reduction="sum",
                                             label_smoothing=case["smoothing"])
    (loss * case["seed"]).backward()
    close(case["name"], case["sums"][0], loss)
    close(case["name"], case["dx"], x.grad)


def check_real_loss(torch, case):
    x = torch.tensor(case["x"], dtype=torch.float64).reshape(-1, case["numbers"]).requires_grad_()
    target = torch.tensor(case["target"], dtype=torch.float64).reshape(x.shape)
    loss = torch.nn.functional.mse_loss(x, target, reduction="sum")
    loss = loss / case["numbers"] if case["over"] == "mean" else loss
    (loss * case["seed"]).backward()
    close(case["name"], case["sums"][0], loss)
    close(case["name"], case["sums"][2] * case["numbers"], torch.nn.functional.l1_loss(x, target, reduction="sum"))
    close(case["name"], case["dx"], x.grad)


def check(cases):
    import torch
    for case in cases["layers"]:
        check_layer(torch, case)
    for case in cases["losses"]:
        check_loss(torch, case)
    for case in cases["real_losses"]:
        check_real_loss(torch, case)
    print(f"{len(cases['layers'])} layers and {len(cases['losses']) + len(cases['real_losses'])} losses agree with PyTorch {torch.__version__}",
          file=sys.stderr)


def main():
    makers = (layernorm_cases, batchnorm_cases, activation_cases, linear_cases)
    cases = {"layers": [case for maker in makers for case in maker()], "losses": list(loss_cases()),
             "real_losses": list(real_loss_cases())}
    if "--torch" in sys.argv[1:]:
        check(cases)
    print("{")
    for key in cases:
        print(json.dumps(key) + ": [")
        print(",\n".join(json.dumps(case) for case in cases[key]))
        print("]" + ("," if key != "real_losses" else ""))
    print("}")


if __name__ == "__main__":
    main()
