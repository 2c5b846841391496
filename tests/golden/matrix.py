#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes matrix.json: rules of whole matrices from their papers' formulas in f64, independent of the C code.

muon: trajectories of single parameters, with the singular values of each step; compared with the arithmetic of
torch.optim.Muon done in torch f64, where torch is installed.
kfac: two linear layers with a tanh between and softmax cross-entropy, all that a step needs given: gradients, inputs
and per-sample output gradients of each window's micro-batches; and one linear least-squares problem.
Run: python3 matrix.py > matrix.json
"""
import json
import sys

import numpy as np

# ---- Muon: Jordan et al. 2024; torch's mean of gradients; a tall matrix is turned ----


def newton_schulz(m, steps):
    x = m.T if m.shape[0] > m.shape[1] else m
    x = x / (np.sqrt((x * x).sum()) + 1e-7)
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.T if m.shape[0] > m.shape[1] else x


def muon(p, gradients, parts, lr=1e-3, momentum=0.95, nesterov=True, weight_decay=0.1, scale="moonshot", steps=5):
    shape, b = p.shape, np.zeros_like(p)
    for g in gradients:
        b = momentum * b + (1 - momentum) * g
        d = momentum * b + (1 - momentum) * g if nesterov else b
        blocks, row = [], 0
        for rows in parts or [shape[0]]:
            block = d.reshape(shape[0], -1)[row:row + rows]
            r, c = block.shape
            s = 0.2 * np.sqrt(max(r, c)) if scale == "moonshot" else np.sqrt(max(1.0, r / c))
            blocks.append(s * newton_schulz(block, steps))
            row += rows
        step = np.concatenate(blocks).reshape(shape)
        p = (1 - lr * weight_decay) * p - lr * step
        yield p, blocks


MUON = [
    ([3, 5], None, {}),
    ([8, 4], None, {"lr": 0.02, "scale": "keller", "weight_decay": 0.0}),
    ([5, 5], None, {"lr": 0.1, "nesterov": False, "momentum": 0.8}),
    ([6, 4], [2, 2, 2], {"lr": 0.05}),
    ([7, 3], [4, 1, 2], {"lr": 0.05, "scale": "keller"}),
    ([7, 3], [4, 1, 2], {"lr": 0.05, "split": False}),
    ([4, 2, 3], None, {"lr": 0.05, "steps": 3}),
    ([1, 6], None, {"lr": 0.05}),
    ([24, 40], None, {"lr": 0.02, "momentum": 0.0, "weight_decay": 0.0}),
]


def muon_vector(shape, parts, settings, seed):
    random = np.random.default_rng(seed)
    big = np.prod(shape) > 100
    steps = 1 if big else 3
    p0 = np.round(random.standard_normal(shape) * 64) / 64
    g = [np.round(random.standard_normal(shape) * 64) / 64 for _ in range(steps)]
    if not big:
        g[1] *= 2.0**-20
    named = {k: v for k, v in settings.items() if k != "split"}
    used = parts if settings.get("split", True) else None
    path = list(muon(p0, g, used, **named))
    check_muon(p0, g, used, path, **named)
    return {
        "shape": shape, "parts": parts or [],
        "settings": {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in settings.items()},
        "p0": p0.ravel().tolist(), "g": [x.ravel().tolist() for x in g],
        "p": [x.ravel().tolist() for x, _ in path],
        "singular": [[s for b in blocks for s in np.linalg.svd(b, compute_uv=False).tolist()] for _, blocks in path],
    }


def check_muon(p, gradients, parts, path, lr=1e-3, momentum=0.95, nesterov=True, weight_decay=0.1, scale="moonshot",
               steps=5):
    """torch._muon's lines (lerp, addmm), in f64 and with its norm clamped instead of added to."""
    try:
        import torch
    except ImportError:
        return
    shape, p, buffer = p.shape, torch.tensor(p), torch.zeros(p.shape, dtype=torch.float64)
    for g, (right, _) in zip(gradients, path):
        g = torch.tensor(g)
        buffer.lerp_(g, 1 - momentum)
        update = g.lerp(buffer, momentum) if nesterov else buffer
        blocks = []
        for m in torch.split(update.reshape(shape[0], -1), parts or shape[0]):
            x = m.T if m.size(0) > m.size(1) else m
            x = x / x.norm().clamp(min=1e-7)
            for _ in range(steps):
                gram = x @ x.T
                x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.775, alpha=2.0315), x, beta=3.4445)
            x = x.T if m.size(0) > m.size(1) else x
            ratio = max(1, m.size(0) / m.size(1))**0.5 if scale == "keller" else 0.2 * max(m.shape)**0.5
            blocks.append(ratio * x)
        p = p * (1 - lr * weight_decay) - lr * torch.cat(blocks).reshape(shape)
        # the norm's 1e-7 is added here and clamped there: that relative change, times Newton-Schulz's 3.4445^5
        slack = 1e-4 if any(np.abs(x).max() < 1e-3 for x in gradients) else 1e-8
        assert np.abs(p.numpy() - right).max() < slack, np.abs(p.numpy() - right).max()


# ---- K-FAC: Martens and Grosse 2015 ----


def inverses(a, g, damping):
    pi, gamma = np.sqrt((np.trace(a) / len(a)) / (np.trace(g) / len(g))), np.sqrt(damping)
    return np.linalg.inv(a + pi * gamma * np.eye(len(a))), np.linalg.inv(g + gamma / pi * np.eye(len(g)))


class Layer:

    def __init__(self, random, outputs, inputs):
        self.w = random.standard_normal((outputs, inputs + 1)) / np.sqrt(inputs)
        self.a, self.g, self.m, self.looks = 0.0, 0.0, 0.0, 0

    def look(self, x, dy):
        """x with 1 appended; dy of each sample's loss."""
        self.looks += 1
        past = min(1 - 1 / self.looks, 0.95)
        self.a = past * self.a + (1 - past) * x.T @ x / len(x)
        self.g = past * self.g + (1 - past) * dy.T @ dy / len(dy)

    def step(self, gradient, lr, momentum, weight_decay):
        self.m = momentum * self.m + gradient
        self.w = (1 - lr * weight_decay) * self.w - lr * self.g_inverse @ self.m @ self.a_inverse


def ones(x):
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def net(layers, x, targets):
    """Inputs of both layers and the gradients of each sample's loss by both outputs."""
    first = ones(x)
    hidden = np.tanh(first @ layers[0].w.T)
    second = ones(hidden)
    logits = second @ layers[1].w.T
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = e / e.sum(axis=1, keepdims=True)
    dy2 = probabilities - np.eye(logits.shape[1])[targets]
    dy1 = dy2 @ layers[1].w[:, :-1] * (1 - hidden * hidden)
    return [(first, dy1), (second, dy2)], probabilities


def kfac(steps=7, lr=0.25, damping=1e-3, momentum=0.9, weight_decay=0.1, factor_every=2, inverse_every=4):
    random = np.random.default_rng(7)
    layers = [Layer(random, 4, 3), Layer(random, 3, 4)]
    p0 = [layer.w.copy() for layer in layers]
    x, targets = random.standard_normal((7, 3)), random.integers(0, 3, 7)
    windows = []
    for t in range(steps):
        real, probabilities = net(layers, x, targets)
        sampled, _ = net(layers, x, [random.choice(3, p=q / q.sum()) for q in probabilities])
        gradients = [dy.T @ a / len(a) for a, dy in real]
        if t % factor_every == 0:
            for layer, tap in zip(layers, sampled):
                layer.look(*tap)
        for layer, gradient in zip(layers, gradients):
            if t % inverse_every == 0:
                layer.a_inverse, layer.g_inverse = inverses(layer.a, layer.g, damping)
            layer.step(gradient, lr, momentum, weight_decay)
        windows.append({
            "layers": [{"x": a[:, :-1].ravel().tolist(), "dy": dy.ravel().tolist(), "w": g[:, :-1].ravel().tolist(),
                        "b": g[:, -1].tolist()} for (a, dy), g in zip(sampled, gradients)],
            "p": [{"w": l.w[:, :-1].ravel().tolist(), "b": l.w[:, -1].tolist()} for l in layers],
        })
    named = {"lr": lr, "damping": damping, "momentum": momentum, "weight_decay": weight_decay,
             "factor_every": factor_every, "inverse_every": inverse_every}
    return {"settings": {k: str(v) for k, v in named.items()}, "samples": len(x),
            "shapes": [[4, 3], [3, 4]],
            "p0": [{"w": w[:, :-1].ravel().tolist(), "b": w[:, -1].tolist()} for w in p0], "windows": windows}


def least_squares():
    """Loss |y - target|^2 / 2, so the Fisher matrix of a unit Gaussian: output gradients of second moment I."""
    random = np.random.default_rng(11)
    x, targets = random.standard_normal((8, 3)) + 1, random.standard_normal((8, 2))
    p0 = random.standard_normal((2, 4))
    right = np.linalg.lstsq(ones(x), targets, rcond=None)[0].T
    gradient = (ones(x) @ p0.T - targets).T @ ones(x) / 8
    dy = [[s, 1 if i % 4 < 2 else -1] for i, s in enumerate([1, -1] * 4)]
    return {"x": x.ravel().tolist(), "dy": np.array(dy, float).ravel().tolist(), "samples": 8,
            "p0": {"w": p0[:, :-1].ravel().tolist(), "b": p0[:, -1].tolist()},
            "g": {"w": gradient[:, :-1].ravel().tolist(), "b": gradient[:, -1].tolist()},
            "right": {"w": right[:, :-1].ravel().tolist(), "b": right[:, -1].tolist()},
            "clipped": clipped(p0, gradient, ones(x), np.array(dy, float))}


def clipped(p0, gradient, x, dy, lr=0.5, damping=0.25, kappa=0.125):
    """One step of K-FAC through KL clipping: kappa over d^T F d, which is lr^2 u g for the step d = -lr u."""
    a_inverse, g_inverse = inverses(x.T @ x / len(x), dy.T @ dy / len(dy), damping)
    u = g_inverse @ gradient @ a_inverse
    size = lr * lr * (u * gradient).sum()
    nu = min(1.0, np.sqrt(kappa / abs(size)))
    assert nu < 0.9
    p = p0 - nu * lr * u
    return {"settings": {"lr": str(lr), "damping": str(damping), "kappa": str(kappa)}, "size": size, "nu": nu,
            "p": {"w": p[:, :-1].ravel().tolist(), "b": p[:, -1].tolist()}}


if __name__ == "__main__":
    vectors = [muon_vector(*row, seed) for seed, row in enumerate(MUON)]
    json.dump({"muon": vectors, "kfac": kfac(), "least_squares": least_squares()}, sys.stdout)
    print()
