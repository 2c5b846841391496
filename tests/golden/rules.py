#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rules.json: trajectories of update rules from their papers' formulas in f64, independent of the C code.

An input is p0 and the gradient of each step, to be repeated over a parameter of any size. A vector says which
component with which settings (text, as in an experiment) takes an input through p, one list a step. Before it is
written, each is compared with update-rules.json, where that has the rule, and with torch in f64, where installed, and with timm and optax likewise.

A chain is a list of links over parameters of all of `shapes` at once, each filled with the input's p0; the gradient at
step t and parameters p is the input's g[t] + curvature * p. Its p is one list a step and shape, of the elements `at`.
Run: python3 rules.py > rules.json
"""
import importlib
import json
import math
import os
import sys

import numpy as np

import chain_links
import element_rules
from chain_links import Link, norm_of

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


def adam(p, gradients, lr, beta1=0.9, beta2=0.999, eps=1e-8):
    """arXiv:1412.6980 Algorithm 1."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        corrected_m, corrected_v = m / (1 - beta1**t), v / (1 - beta2**t)
        p = p - lr * corrected_m / (math.sqrt(corrected_v) + eps)
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
FORMULAS = {"sgd": sgd, "adam": adam, **element_rules.FORMULAS}

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
    ("adam", {"lr": "0.02", "beta1": "0", "beta2": "0.5", "eps": "1e-3"}, None),
    ("adamw", {"lr": "0.1", "weight_decay": "0.1"}, "adamw_.1"),
    ("adamw", {"lr": "0.02"}, None),
    ("adamw", {"lr": "0.02", "beta1": "0.8", "beta2": "0.9", "eps": "1e-2", "weight_decay": "0"}, None),
    ("lamb", {"lr": "0.1"}, "lamb"),
    ("lamb", {"lr": "0.02", "beta1": "0.8", "beta2": "0.9", "eps": "1e-2", "weight_decay": "0"}, None),
    *element_rules.VECTORS,
]

# ---- chains: links over parameters of several shapes, numpy arrays in f64 ----
#
# A link is made from its settings. What it is called with is a list with one entry a parameter, and so is what it
# gives back: source(p, g) -> how far from p the gradient is taken again; gradient(g) or gradient_at(g, p) -> g; rule(p, g, t) -> (the step
# d to be added, what the parameter keeps); update(d, g) -> d; write(p, d, keep) -> p.

SHAPES = [[0], [], [1], [7], [3, 5], [64, 128], [2, 3], [31], [2, 3, 4]]
STEPS = 5


class Sgd(Link):
    def rule(self, p, g, t):
        return [-self.lr * x for x in g], 1.0


class Adamw(Link):
    defaults = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}

    def rule(self, p, g, t):
        if t == 1:
            self.m, self.v = [np.zeros_like(x) for x in p], [np.zeros_like(x) for x in p]
        self.m = [self.beta1 * m + (1 - self.beta1) * x for m, x in zip(self.m, g)]
        self.v = [self.beta2 * v + (1 - self.beta2) * x * x for v, x in zip(self.v, g)]
        d = [-self.lr * (m / (1 - self.beta1**t)) / (np.sqrt(v / (1 - self.beta2**t)) + self.eps)
             for m, v in zip(self.m, self.v)]
        return d, 1 - self.lr * self.weight_decay


class Lion(Link):
    """arXiv:2302.06675 Algorithm 2."""

    defaults = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0}

    def rule(self, p, g, t):
        if t == 1:
            self.m = [np.zeros_like(x) for x in p]
        d = [-self.lr * np.sign(self.beta1 * m + (1 - self.beta1) * x) for m, x in zip(self.m, g)]
        self.m = [self.beta2 * m + (1 - self.beta2) * x for m, x in zip(self.m, g)]
        return d, 1 - self.lr * self.weight_decay


class Adafactor(Link):
    """arXiv:1804.04235 Algorithms 4 and 5: R and C are sums over rows and columns, V = R C / (1' R)."""

    defaults = {"decay": 0.8, "clip": 1.0, "beta1": 0.0, "eps1": 1e-30, "eps2": 1e-3, "weight_decay": 0.0,
                "relative_step": False, "scale_parameter": False}

    def rule(self, p, g, t):
        if t == 1:
            self.state = [{} for _ in p]
        rho = min(self.lr, 1 / math.sqrt(t)) if self.relative_step else self.lr
        return [self.one(x, y, s, t, rho) for x, y, s in zip(p, g, self.state)], 1 - rho * self.weight_decay

    def one(self, x, g, state, t, rho):
        if g.size == 0:
            return np.zeros_like(x)
        beta2 = 1 - t**-self.decay
        squares = g * g + self.eps1
        if g.ndim >= 2:
            squares = squares.reshape(g.shape[0], -1)
            state["R"] = beta2 * state.get("R", 0) + (1 - beta2) * squares.sum(axis=1)
            state["C"] = beta2 * state.get("C", 0) + (1 - beta2) * squares.sum(axis=0)
            v = (np.outer(state["R"], state["C"]) / state["R"].sum()).reshape(g.shape)
        else:
            v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * squares
        u = g / np.sqrt(v)
        u = u / max(1.0, math.sqrt(np.mean(u * u)) / self.clip)
        alpha = rho * (max(self.eps2, math.sqrt(np.mean(x * x))) if self.scale_parameter else 1.0)
        if self.beta1 == 0:
            return -alpha * u
        state["m"] = self.beta1 * state.get("m", 0) + (1 - self.beta1) * alpha * u
        return -state["m"]


class Sm3(Link):
    """arXiv:1901.11150 algorithm SM3-II. The cover of a matrix (shape[0] times the rest) is its rows and columns, that
    of anything else its elements; with momentum as the authors' code has it, a mean of the steps."""

    defaults = {"beta": 0.9, "weight_decay": 0.0}

    def rule(self, p, g, t):
        if t == 1:
            self.mu = [[np.zeros(s) for s in self.sets(x)] for x in g]
            self.m = [np.zeros_like(x) for x in g]
        d = [-self.lr * self.one(i, x) for i, x in enumerate(g)]
        return d, 1 - self.lr * self.weight_decay

    @staticmethod
    def sets(x):
        if x.ndim < 2:
            return [x.shape]
        view = x.reshape(x.shape[0], -1)
        return [(view.shape[0], 1), (1, view.shape[1])]

    def one(self, i, g):
        view = g.reshape(g.shape[0], -1) if g.ndim >= 2 else g
        nu = view**2
        nu = nu + (np.minimum(*self.mu[i]) if g.ndim >= 2 else self.mu[i][0])
        self.mu[i] = [nu.max(axis=1, keepdims=True), nu.max(axis=0, keepdims=True)] if g.ndim >= 2 else [nu]
        step = np.divide(view, np.sqrt(nu), out=np.zeros_like(view), where=nu > 0).reshape(g.shape)
        self.m[i] = self.beta * self.m[i] + (1 - self.beta) * step
        return self.m[i]


class ClipNorm(Link):
    def gradient(self, g):
        norm = norm_of(g)
        return [x * (self.max_norm / (norm + 1e-6) if norm > self.max_norm else 1.0) for x in g]


class ClipPercentile(Link):
    """arXiv:2007.14469: this step's norm joins the others before the percentile is taken."""

    defaults = {"percentile": 10.0, "window": 1000, "warmup": 0}
    norms = ()

    def gradient(self, g):
        norm = norm_of(g)
        self.norms = (*self.norms, norm)
        threshold = float(np.percentile(self.norms[-int(self.window):], self.percentile))
        clipped = norm > threshold and len(self.norms) > self.warmup
        return [x * (threshold / (norm + 1e-6) if clipped else 1.0) for x in g]


class Centralize(Link):
    """arXiv:2004.01461 equation 1: the mean over all axes but that of the outputs."""

    def gradient(self, g):
        return [x - x.mean(axis=tuple(range(1, x.ndim)), keepdims=True) if x.ndim >= 2 else x for x in g]


class Cautious(Link):
    """arXiv:2411.16085 Algorithm 1 for a step -d: masked where d and the gradient agree in sign."""

    defaults = {"least": 1e-3}

    def update(self, d, g):
        masks = [(-a * b > 0).astype(float) for a, b in zip(d, g)]
        return [a * m / max(m.mean(), self.least) if m.size else a for a, m in zip(d, masks)]


class KlClip(Link):
    """Ba, Grosse and Martens, ICLR 2017, as its common ports have it: d^T F d = -lr d^T g is kept below kappa."""

    defaults = {"kappa": 1e-3, "lr": 1.0}

    def update(self, d, g):
        size = -self.lr * math.fsum(float(x) for a, b in zip(d, g) for x in (a * b).flat)
        return [a * (math.sqrt(self.kappa / size) if size > self.kappa else 1.0) for a in d]


class Sam(Link):
    """arXiv:2010.01412 equation 2 and, adaptive, arXiv:2102.11600."""

    defaults = {"rho": 0.05, "adaptive": False, "eta": 0.01}

    def source(self, p, g):
        t = [np.abs(x) + self.eta if self.adaptive else np.ones_like(x) for x in p]
        norm = norm_of([a * b for a, b in zip(t, g)])
        return [self.rho * a * a * b / norm for a, b in zip(t, g)]


class ScheduleFree(Link):
    """arXiv:2405.15682 equations 6 to 8 without warm-up: steps weigh the same."""

    defaults = {"beta": 0.9}
    t = 0

    def write(self, p, d, keep):
        if self.t == 0:
            self.z, self.x = p, p
        self.t += 1
        self.z = [z + b - (1 - keep) * a for z, a, b in zip(self.z, p, d)]
        self.x = [x + (z - x) / self.t for x, z in zip(self.x, self.z)]
        return [(1 - self.beta) * z + self.beta * x for z, x in zip(self.z, self.x)]


LINKS = {"sgd": Sgd, "adamw": Adamw, "lion": Lion, "adafactor": Adafactor, "sm3": Sm3, "clip-norm": ClipNorm,
         "clip-percentile": ClipPercentile, "centralize": Centralize, "cautious": Cautious, "kl-clip": KlClip, "sam": Sam,
         "schedule-free": ScheduleFree, **chain_links.LINKS}

# Settings are text, as in an experiment. With a curvature the gradient depends on the parameters.
CHAINS = [
    ([("lion", {"lr": "0.02"})], 0),
    ([("lion", {"lr": "0.02", "beta1": "0.5", "beta2": "0.8", "weight_decay": "0.3"})], 0),
    ([("adafactor", {"lr": "0.02"})], 0),
    ([("adafactor", {"lr": "0.9", "relative_step": "true", "scale_parameter": "true"})], 0),
    ([("adafactor", {"lr": "0.02", "clip": "0.3", "decay": "0.5", "beta1": "0.8", "eps1": "0.01", "eps2": "9",
                     "scale_parameter": "true", "weight_decay": "0.3"})], 0),
    ([("sm3", {"lr": "0.1"})], 0),
    ([("sm3", {"lr": "0.02", "beta": "0", "weight_decay": "0.3"})], 0),
    ([("clip-norm", {"max_norm": "2"}), ("sm3", {"lr": "0.05", "beta": "0.5"})], 0),
    ([("clip-norm", {"max_norm": "2"}), ("sgd", {"lr": "0.1"})], 0),
    ([("clip-percentile", {}), ("sgd", {"lr": "0.1"})], 0),
    ([("clip-percentile", {"percentile": "40", "window": "3", "warmup": "2"}), ("sgd", {"lr": "0.1"})], 0),
    ([("centralize", {}), ("clip-norm", {"max_norm": "2"}), ("adamw", {"lr": "0.02"})], 0),
    ([("centralize", {}), ("adafactor", {"lr": "0.02", "scale_parameter": "true"})], 0),
    ([("adamw", {"lr": "0.02", "beta1": "0.5", "weight_decay": "0.5"}), ("cautious", {})], 0),
    ([("clip-percentile", {"percentile": "50"}), ("lion", {"lr": "0.02", "beta1": "0.2"}),
      ("cautious", {"least": "0.9"})], 0),
    ([("adamw", {"lr": "0.02", "weight_decay": "0.5"}), ("kl-clip", {"kappa": "0.5", "lr": "0.02"})], 0),
    ([("sam", {"rho": "3"}), ("sgd", {"lr": "0.1"})], 0.5),
    ([("sam", {"rho": "5", "adaptive": "true"}), ("clip-norm", {"max_norm": "2"}),
      ("adamw", {"lr": "0.02"})], 0.5),
    ([("adamw", {"lr": "0.02", "beta1": "0", "weight_decay": "0.3"}), ("schedule-free", {"beta": "0.7"})], 0),
    *chain_links.CHAINS,
]


def chain_trajectory(links, curvature, given):
    """p after each step, a list of arrays."""
    made = [LINKS[name](**numbers(settings)) for name, settings in links]
    p = [np.resize(given["p0"], shape) for shape in SHAPES]
    for t in range(1, STEPS + 1):
        inputs = [np.resize(given["g"][t - 1], shape) for shape in SHAPES]
        gradient = lambda at: [a + curvature * x for a, x in zip(inputs, at)]
        g, keep, written = gradient(p), 1.0, False
        for link in made:
            if hasattr(link, "source"):
                g = gradient([a + e for a, e in zip(p, link.source(p, g))])
            elif hasattr(link, "gradient"):
                g = link.gradient(g)
            elif hasattr(link, "gradient_at"):
                g = link.gradient_at(g, p)
            elif hasattr(link, "rule"):
                d, keep = link.rule(p, g, t)
            elif hasattr(link, "update"):
                d = link.update(d, g)
            elif hasattr(link, "keep"):
                keep *= link.keep()
            else:
                p, written = link.write(p, d, keep), True
        p = p if written else [keep * x + y for x, y in zip(p, d)]
        yield p


def torch_chain(torch, links, given):
    """What torch has of it: clip_grad_norm_ and its own rules; None for anything else."""
    names, settings = [name for name, _ in links], dict(links)
    if not set(names) <= {"clip-norm", "sgd", "adamw"}:
        return None
    parameters = [torch.nn.Parameter(torch.tensor(np.resize(given["p0"], s), dtype=torch.float64)) for s in SHAPES]
    kind = torch.optim.SGD if "sgd" in names else torch.optim.AdamW
    optimizer, rows = kind(parameters, lr=float(settings[names[-1]]["lr"])), []
    for t in range(STEPS):
        for p in parameters:
            p.grad = torch.tensor(np.resize(given["g"][t], tuple(p.shape)), dtype=torch.float64)
        if "clip-norm" in names:
            torch.nn.utils.clip_grad_norm_(parameters, float(settings["clip-norm"]["max_norm"]))
        optimizer.step()
        rows.append([p.detach().numpy().copy() for p in parameters])
    return rows


def sampled(shape):
    """Which elements of a shape are written: all, or some of a large one, the last among them."""
    n = int(np.prod(shape))
    return list(range(n)) if n < 100 else sorted({*range(0, n, 331), n - 1})


def compare_chain(links, curvature, rows, what, given):
    arrays = [np.resize(given["p0"], shape) for shape in SHAPES]
    found = chain_links.compare_with_peers(
        [(name, numbers(settings)) for name, settings in links], rows, arrays,
        lambda t, p: [np.resize(given["g"][t], shape) + curvature * x for shape, x in zip(SHAPES, p)])
    if found:
        print(f"{what}: {found[0]} differs by at most {found[1]:.1e}", file=sys.stderr)
    if found and not found[1] <= 1e-7:
        sys.exit(f"{what}, {found[0]}: differs by {found[1]}")


def chain_vectors(torch, given):
    vectors = []
    for links, curvature in CHAINS:
        rows, what = list(chain_trajectory(links, curvature, given)), " ".join(name for name, _ in links)
        if torch and (known := torch_chain(torch, links, given)):
            worst = max(np.abs(a - b).max(initial=0) for x, y in zip(rows, known) for a, b in zip(x, y))
            if worst > 1e-12:
                sys.exit(f"{what}, torch: differs by {worst}")
        compare_chain(links, curvature, rows, what, given)
        vectors.append({"links": [{"use": name, "settings": settings} for name, settings in links], "input": "base",
                        "curvature": curvature,
                        "p": [[[float(a.flat[i]) for i in sampled(s)] for a, s in zip(p, SHAPES)] for p in rows]})
    return vectors


# The scalar probe of techniques.md: theta 1, g = (0.5, -0.25, 1), lr 0.1.
PROBE = [
    ("adam", {"lr": "0.1"}, [0.900000002, 0.8733662987078463, 0.8075551396770898]),
    ("adam-l2", {"lr": "0.1", "l2": "0.1"}, [0.9000000016666666, 0.8544413674617625, 0.7815043998631658]),
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


def number(text):
    """A setting's value; a word stays one."""
    try:
        return text == "true" if text in ("true", "false") else float(text)
    except ValueError:
        return text


def numbers(settings):
    return {k: number(v) for k, v in settings.items()}


def trajectory(component, settings, given):
    """p after each step, element by element where the rule is one of elements."""
    if component in TENSOR_FORMULAS:
        return list(TENSOR_FORMULAS[component](given["p0"], given["g"], **numbers(settings)))
    columns = [
        list(FORMULAS[component](p0, [row[i] for row in given["g"]], **numbers(settings)))
        for i, p0 in enumerate(given["p0"])
    ]
    return [list(row) for row in zip(*columns)]


def run_torch(optimizer, p, torch, given):
    rows = []
    for g in given["g"]:
        p.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
        rows.append(p.tolist())
    return rows


def torch_optimizer(torch, component, p, s):
    """None where torch has no such rule, or not with these settings."""
    if component == "sgd" and not s.get("weight_decay"):
        return torch.optim.SGD([p], lr=s["lr"], momentum=s.get("momentum", 0), dampening=s.get("dampening", 0),
                               nesterov=s.get("nesterov", False), weight_decay=s.get("l2", 0))
    if component == "adam" or (component == "adamw" and s.get("decay", "torch") == "torch"):
        kind = torch.optim.AdamW if component == "adamw" else torch.optim.Adam
        return kind([p], lr=s["lr"], betas=(s.get("beta1", 0.9), s.get("beta2", 0.999)), eps=s.get("eps", 1e-8),
                    weight_decay=s.get("weight_decay", 0.01) if component == "adamw" else 0)
    return element_rules.torch_optimizer(torch, component, p, s)


def torch_trajectory(torch, component, settings, given):
    """None where torch has no such rule."""
    p = torch.nn.Parameter(torch.tensor(given["p0"], dtype=torch.float64))
    optimizer = torch_optimizer(torch, component, p, numbers(settings))
    return run_torch(optimizer, p, torch, given) if optimizer else None


def timm_trajectory(timm, component, settings, given):
    """Likewise."""
    import timm.optim
    import torch

    p = torch.nn.Parameter(torch.tensor(given["p0"], dtype=torch.float64))
    optimizer = element_rules.timm_optimizer(timm, component, p, numbers(settings))
    return run_torch(optimizer, p, torch, given) if optimizer else None


def optax_trajectory(optax, component, settings, given):
    """Likewise."""
    import jax

    jax.config.update("jax_enable_x64", True)
    transform = element_rules.optax_transform(optax, component, numbers(settings))
    if not transform:
        return None
    p = jax.numpy.array(given["p0"], dtype="float64")
    state, rows = transform.init(p), []
    for g in given["g"]:
        updates, state = transform.update(jax.numpy.array(g, dtype="float64"), state, p)
        p = optax.apply_updates(p, updates)
        rows.append([float(x) for x in p])
    return rows


# The package, who runs a rule in it, and how far it may be off: optax rounds some constants to f32 on their way.
PEERS = [("torch", torch_trajectory, 1e-12), ("timm", timm_trajectory, 1e-12), ("optax", optax_trajectory, 1e-7)]


LOOSE = {"asgd": 1e-7, "nadam": 1e-7}  # torch keeps their scalars in f32


def installed(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def compare(a, b, tolerance, what):
    worst = max(abs(x - y) for row_a, row_b in zip(a, b) for x, y in zip(row_a, row_b))
    if len(a) != len(b) or not worst <= tolerance:
        sys.exit(f"{what}: differs by {worst}")
    return worst


def compare_with_peers(peers, worst, component, settings, given, p, what):
    for name, run, tolerance in PEERS:
        theirs = run(peers[name], component, settings, given) if peers[name] else None
        if theirs:
            key = component, f"{name} {peers[name].__version__}"
            tolerance = max(tolerance, LOOSE.get(component, 0))
            worst[key] = max(worst.get(key, 0), compare(p, theirs, tolerance, f"{what}, {name}"))


def flat(matrix):
    return [x for row in matrix for x in row]


def main():
    with open(os.path.join(HERE, "update-rules.json")) as file:
        other = json.load(file)
    peers, worst = {name: installed(name) for name, _, _ in PEERS}, {}
    inputs = {
        "base": base_input(),
        "matrix": {"p0": flat(other["W0"]), "g": [flat(g) for g in other["G"]]},
        "cycle": {"p0": flat(other["W0"]), "g": [flat(other["G"][t % len(other["G"])]) for t in range(8)]},
        "probe": {"p0": [1.0], "g": [[0.5], [-0.25], [1.0]]},
    }
    planned = [(c, s, "base", None) for c, s, _ in VECTORS]
    planned += [(c, s, "cycle" if rule.endswith("8steps") else "matrix", [flat(p) for p in other["values"][rule]])
                for c, s, rule in VECTORS if rule]
    planned += [(c, s, "probe", [[p] for p in values]) for c, s, values in PROBE]
    vectors = []
    for component, settings, name, known in planned:
        given = inputs[name]
        p = trajectory(component, settings, given)
        what = f"{component} {settings} on {name}"
        if known:
            compare(p, known, 1e-12, what + ", other record")
        compare_with_peers(peers, worst, component, settings, given, p, what)
        vectors.append({"component": component, "settings": settings, "input": name, "p": p,
                        "whole": component in TENSOR_FORMULAS})
    for (component, peer), difference in sorted(worst.items()):
        print(f"{component}: {peer} differs by at most {difference:.1e}", file=sys.stderr)
    parts = [f' "inputs": {json.dumps(inputs)}']
    parts.append(f' "shapes": {json.dumps(SHAPES)}, "at": {json.dumps([sampled(s) for s in SHAPES])}')
    parts.append(' "chains": [\n  ' + ",\n  ".join(json.dumps(v) for v in chain_vectors(peers["torch"], inputs["base"])) + "\n ]")
    parts.append(' "vectors": [\n  ' + ",\n  ".join(json.dumps(v) for v in vectors) + "\n ]")
    print("{\n" + ",\n".join(parts) + "\n}")


main()
