# SPDX-License-Identifier: Apache-2.0
"""Links of the catalogue for rules.py that look at tensors, rows or the whole model, or stand behind a rule: the papers'
formulas in f64 over all parameters at once, the chains that are written, and peers that have the rule."""
import contextlib
import importlib
import math
import sys

import numpy as np


def norm(x):
    return math.sqrt(math.fsum(float(a) ** 2 for a in np.ravel(x)))


def norm_of(arrays):
    return math.sqrt(math.fsum(float(a) ** 2 for x in arrays for a in x.flat))


def dot(a, b):
    return math.fsum(float(x) for u, v in zip(a, b) for x in (u * v).flat)


class Link:
    """Settings as attributes."""

    defaults = {}

    def __init__(self, **settings):
        self.__dict__.update({**self.defaults, **settings})


class Lars(Link):
    """arXiv:1708.03888 Algorithm 1."""

    defaults = {"lr": 1.0, "momentum": 0.9, "trust": 1e-3, "weight_decay": 0.0, "eps": 0.0}

    def rule(self, p, g, t):
        self.b = [0 * x for x in p] if t == 1 else self.b
        for i, (x, y) in enumerate(zip(p, g)):
            of_p, of_g = norm(x), norm(y)
            ratio = self.trust * of_p / (of_g + self.weight_decay * of_p + self.eps) if of_p > 0 and of_g > 0 else 1.0
            self.b[i] = self.momentum * self.b[i] + self.lr * ratio * (y + self.weight_decay * x)
        return [-x for x in self.b], 1.0


class Novograd(Link):
    """arXiv:1905.11286 Algorithm 1."""

    defaults = {"lr": 1e-2, "beta1": 0.95, "beta2": 0.98, "eps": 1e-8, "weight_decay": 0.0, "averaging": False}

    def rule(self, p, g, t):
        squares = [norm(x) ** 2 for x in g]
        self.v = squares if t == 1 else [self.beta2 * v + (1 - self.beta2) * s for v, s in zip(self.v, squares)]
        self.m = [0 * x for x in p] if t == 1 else self.m
        part = 1 - self.beta1 if self.averaging else 1.0
        self.m = [self.beta1 * m + part * (y / (math.sqrt(v) + self.eps) + self.weight_decay * x)
                  for m, x, y, v in zip(self.m, p, g, self.v)]
        return [-self.lr * m for m in self.m], 1.0


class AdamMini(Link):
    """arXiv:2406.16793 Algorithm 1, one block a row of a matrix, one for anything else."""

    defaults = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}

    def rule(self, p, g, t):
        if t == 1:
            self.m, self.v = [0 * x for x in p], [0.0 for _ in p]
        d = []
        for i, x in enumerate(g):
            axes = tuple(range(1, x.ndim)) if x.ndim >= 2 else None
            square = np.mean(x * x, axis=axes, keepdims=True) if x.size else 0.0
            self.m[i] = self.beta1 * self.m[i] + (1 - self.beta1) * x
            self.v[i] = self.beta2 * self.v[i] + (1 - self.beta2) * square
            root = np.sqrt(self.v[i] / (1 - self.beta2**t)) + self.eps
            d.append(-self.lr * (self.m[i] / (1 - self.beta1**t) / root).reshape(x.shape))
        return d, 1 - self.lr * self.weight_decay


class Prodigy(Link):
    """arXiv:2306.06101 Algorithm 4, weighted as in the authors' program."""

    defaults = {"lr": 1.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "d0": 1e-6, "coefficient": 1.0,
                "growth": math.inf, "bias_correction": False, "safeguard_warmup": False}

    def rule(self, p, g, t):
        if t == 1:
            self.m, self.v, self.s = ([0 * x for x in p] for _ in range(3))
            self.first, self.d, self.largest, self.numerator = p, self.d0, self.d0, 0.0
        d, beta3 = self.d, math.sqrt(self.beta2)
        correction = math.sqrt(1 - self.beta2**t) / (1 - self.beta1**t) if self.bias_correction else 1.0
        step = d * self.lr * correction
        weight = d / self.d0 * (d if self.safeguard_warmup else step)
        agreement = d / self.d0 * step * dot(g, [a - x for a, x in zip(self.first, p)])
        self.m = [self.beta1 * m + d * (1 - self.beta1) * x for m, x in zip(self.m, g)]
        self.v = [self.beta2 * v + d * d * (1 - self.beta2) * x * x for v, x in zip(self.v, g)]
        self.s = [beta3 * s + weight * x for s, x in zip(self.s, g)]
        size = math.fsum(float(abs(a)) for s in self.s for a in s.flat)
        if size > 0 and self.lr > 0:
            self.numerator = beta3 * self.numerator + agreement
            found = self.coefficient * self.numerator / size
            if self.d == self.d0:
                self.d = max(self.d, found)
            self.largest = max(self.largest, found)
            self.d = min(self.largest, self.d * self.growth)
        return [-step * m / (np.sqrt(v) + self.d * self.eps) for m, v in zip(self.m, self.v)], 1 - step * self.weight_decay


class DAdaptAdam(Link):
    """arXiv:2301.07733 Algorithm 5, weighted as in the authors' program."""

    defaults = {"lr": 1.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "d0": 1e-6, "growth": math.inf}

    def rule(self, p, g, t):
        if t == 1:
            self.m, self.v, self.s = ([0 * x for x in p] for _ in range(3))
            self.d, self.numerator = self.d0, 0.0
        step, root2 = self.d * self.lr, math.sqrt(self.beta2)
        agreement = step * dot(g, [s / (np.sqrt(v) + self.eps) for s, v in zip(self.s, self.v)])
        self.m = [self.beta1 * m + step * (1 - self.beta1) * x for m, x in zip(self.m, g)]
        self.v = [self.beta2 * v + (1 - self.beta2) * x * x for v, x in zip(self.v, g)]
        self.s = [root2 * s + step * (1 - root2) * x for s, x in zip(self.s, g)]
        size = math.fsum(float(abs(a)) for s in self.s for a in s.flat)
        if size > 0 and self.lr > 0:
            self.numerator = root2 * self.numerator + (1 - root2) * agreement
            self.d = max(self.d, min(self.numerator / ((1 - root2) * size), self.d * self.growth))
        return [-m / (np.sqrt(v) + self.eps) for m, v in zip(self.m, self.v)], 1 - step * self.weight_decay


class Mars(Link):
    """arXiv:2411.10438 Algorithm 2, approximate; each tensor's corrected gradient has a norm of at most 1."""

    defaults = {"lr": 3e-3, "beta1": 0.95, "beta2": 0.99, "eps": 1e-8, "gamma": 0.025, "weight_decay": 0.0}

    def rule(self, p, g, t):
        if t == 1:
            self.m, self.v, self.last = [0 * x for x in p], [0 * x for x in p], g
        c = [x + self.gamma * self.beta1 / (1 - self.beta1) * (x - y) for x, y in zip(g, self.last)]
        c = [x / max(1.0, norm(x)) for x in c]
        self.m = [self.beta1 * m + (1 - self.beta1) * x for m, x in zip(self.m, c)]
        self.v = [self.beta2 * v + (1 - self.beta2) * x * x for v, x in zip(self.v, c)]
        self.last = g
        return [-self.lr * (m / (1 - self.beta1**t)) / (np.sqrt(v / (1 - self.beta2**t)) + self.eps)
                for m, v in zip(self.m, self.v)], 1 - self.lr * self.weight_decay


class Dog(Link):
    """arXiv:2302.12022 equation 1."""

    defaults = {"lr": 1.0, "reach": 1e-6, "eps": 1e-8, "weight_decay": 0.0}

    def rule(self, p, g, t):
        if t == 1:
            self.first, self.squares, self.distance = p, 0.0, self.reach * (1 + norm_of(p))
        self.distance = max(self.distance, norm_of([x - a for x, a in zip(p, self.first)]))
        self.squares += norm_of(g) ** 2
        step = self.lr * self.distance / math.sqrt(self.squares + self.eps)
        return [-step * x for x in g], 1 - step * self.weight_decay


class Freeze(Link):
    def rule(self, p, g, t):
        return [0 * x for x in p], 1.0


class Lookahead(Link):
    """arXiv:1907.08610 Algorithm 1."""

    defaults = {"k": 5, "alpha": 0.5}
    t = 0

    def write(self, p, d, keep):
        self.slow = p if self.t == 0 else self.slow
        self.t += 1
        fast = [keep * x + y for x, y in zip(p, d)]
        if self.t % self.k:
            return fast
        self.slow = [s + self.alpha * (x - s) for s, x in zip(self.slow, fast)]
        return self.slow


class ClipValue(Link):
    defaults = {"limit": 1.0}

    def gradient(self, g):
        return [np.clip(x, -self.limit, self.limit) for x in g]


class Agc(Link):
    """arXiv:2102.06171 equation 3; a row of a matrix is a unit, anything else is one."""

    defaults = {"clip": 0.01, "eps": 1e-3}

    def clipped(self, x, p):
        axes = tuple(range(1, x.ndim)) if x.ndim >= 2 else None
        of_g, of_p = (np.sqrt(np.sum(a * a, axis=axes, keepdims=True)) for a in (x, p))
        most = self.clip * np.maximum(of_p, self.eps)
        return (x * np.where(of_g > most, most / np.maximum(of_g, 1e-6), 1.0)).reshape(x.shape)

    def gradient_at(self, g, p):
        return [self.clipped(x, y) for x, y in zip(g, p)]


class WeightDecay(Link):
    defaults = {"rate": 1e-5}

    def keep(self):
        return 1 - self.rate


class GradientNoise(Link):
    """Only without noise: the draws have a test of their own."""

    def gradient(self, g):
        return g


class LayerDecay(Link):
    """No name of these parameters has a number, so all stand above the layers; test_layer_decay.c has the others."""

    def update(self, d, g):
        return d


LINKS = {"layer-decay": LayerDecay, "lars": Lars, "novograd": Novograd, "adam-mini": AdamMini, "prodigy": Prodigy, "d-adapt-adam": DAdaptAdam,
         "mars": Mars, "dog": Dog, "freeze": Freeze, "lookahead": Lookahead, "clip-value": ClipValue, "agc": Agc,
         "weight-decay": WeightDecay, "gradient-noise": GradientNoise}

CHAINS = [
    ([("lars", {})], 0),
    ([("lars", {"lr": "0.5", "momentum": "0.5", "trust": "0.1", "weight_decay": "0.3", "eps": "0.1"})], 0),
    ([("novograd", {})], 0),
    ([("novograd", {"lr": "0.1", "beta1": "0.5", "beta2": "0.6", "eps": "0.1", "weight_decay": "0.3",
                    "averaging": "true"})], 0),
    ([("adam-mini", {"lr": "0.02"})], 0),
    ([("adam-mini", {"lr": "0.02", "beta1": "0.5", "beta2": "0.6", "eps": "0.01", "weight_decay": "0.3"})], 0),
    ([("prodigy", {"d0": "1e-3"})], 0.5),
    ([("prodigy", {"lr": "0.5", "d0": "1e-3", "beta2": "0.9", "coefficient": "2", "growth": "1.5", "weight_decay": "0.3",
                   "bias_correction": "true", "safeguard_warmup": "true"})], 0.5),
    ([("d-adapt-adam", {"d0": "1e-3"})], 0.5),
    ([("d-adapt-adam", {"lr": "0.5", "d0": "1e-3", "beta2": "0.9", "growth": "1.2", "weight_decay": "0.3"})], 0.5),
    ([("dog", {"reach": "1e-3"})], 0.5),
    ([("dog", {"lr": "2", "reach": "0.1", "eps": "0.1", "weight_decay": "0.3"})], 0.5),
    ([("mars", {})], 0),
    ([("mars", {"lr": "0.05", "beta1": "0.5", "beta2": "0.6", "gamma": "0.8", "weight_decay": "0.3"})], 0.5),
    ([("freeze", {})], 0.5),
    ([("sgd", {"lr": "0.1"}), ("lookahead", {"k": "2"})], 0.5),
    ([("adamw", {"lr": "0.1", "weight_decay": "0.5"}), ("lookahead", {"k": "3", "alpha": "0.8"})], 0.5),
    ([("clip-value", {"limit": "0.25"}), ("sgd", {"lr": "0.1"})], 0),
    ([("clip-norm", {"max_norm": "2"}), ("clip-value", {"limit": "0.02"}), ("adamw", {"lr": "0.02"})], 0),
    ([("agc", {}), ("sgd", {"lr": "0.1"})], 0),
    ([("agc", {"clip": "0.3", "eps": "2"}), ("adamw", {"lr": "0.02"})], 0.5),
    ([("adamw", {"lr": "0.02", "weight_decay": "0.5"}), ("weight-decay", {"rate": "0.1"})], 0),
    ([("adamw", {"lr": "0.02"}), ("layer-decay", {"decay": "0.5"})], 0),
    ([("gradient-noise", {"eta": "0"}), ("sgd", {"lr": "0.1"})], 0),
]


# ---- peers: a package, and how one of its optimizers is made from the settings of a chain; None where it differs ----
#
# timm's Lookahead takes its slow copy at the first return, so that one does nothing: no peer.


def in_torch(make, clip=None):
    """Runs a torch optimizer, with a clip before it, as the chain is run."""
    def run(package, links, arrays, gradient, steps):
        import torch

        settings = dict(links)
        parameters = [torch.nn.Parameter(torch.tensor(a, dtype=torch.float64)) for a in arrays]
        optimizer = make(package, parameters, settings)
        for t in range(steps if optimizer else 0):
            with torch.no_grad():
                for p, g in zip(parameters, gradient(t, [p.detach().numpy() for p in parameters])):
                    p.grad = torch.tensor(g, dtype=torch.float64)
            if clip:
                clip(package, parameters, settings)
            optimizer.step()
            yield [p.detach().numpy().copy() for p in parameters]
    return run


def in_optax(make):
    def run(package, links, arrays, gradient, steps):
        import jax

        jax.config.update("jax_enable_x64", True)
        transform, p = make(package, dict(links)), [jax.numpy.array(a, dtype="float64") for a in arrays]
        state = transform.init(p) if transform else None
        for t in range(steps if transform else 0):
            g = [jax.numpy.array(x, dtype="float64") for x in gradient(t, [np.array(x) for x in p])]
            updates, state = transform.update(g, state, p)
            p = package.apply_updates(p, updates)
            yield [np.array(x) for x in p]
    return run


def sgd(torch, p, s):
    return torch.optim.SGD(p, lr=s["sgd"]["lr"])


def agc(timm, p, s):
    s = s["agc"]
    importlib.import_module("timm.utils.agc").adaptive_clip_grad(p, s.get("clip", 0.01), s.get("eps", 1e-3))


def sgd_or_adamw(_, p, s):
    import torch

    return sgd(torch, p, s) if "sgd" in s else torch.optim.AdamW(p, lr=s["adamw"]["lr"])


def prodigy(package, p, s):
    s = s["prodigy"]
    return package.Prodigy(p, lr=s.get("lr", 1.0), betas=(0.9, s.get("beta2", 0.999)), d0=s["d0"],
                           d_coef=s.get("coefficient", 1.0), growth_rate=s.get("growth", math.inf),
                           weight_decay=s.get("weight_decay", 0.0), decouple=True,
                           use_bias_correction=s.get("bias_correction", False),
                           safeguard_warmup=s.get("safeguard_warmup", False))


def d_adapt_adam(package, p, s):
    s = s["d-adapt-adam"]
    return package.DAdaptAdam(p, lr=s.get("lr", 1.0), betas=(0.9, s.get("beta2", 0.999)), d0=s["d0"],
                              growth_rate=s.get("growth", math.inf), weight_decay=s.get("weight_decay", 0.0), decouple=True)


def clip_value(torch, p, s):
    torch.nn.utils.clip_grad_value_(p, s["clip-value"]["limit"])


def mars(timm, p, s):
    s = s["mars"]
    return importlib.import_module("timm.optim").Mars(
        p, lr=s.get("lr", 3e-3), betas=(s.get("beta1", 0.95), s.get("beta2", 0.99)), gamma=s.get("gamma", 0.025),
        weight_decay=s.get("weight_decay", 0.0), optimize_1d=True)


def lars(optax, s):
    s = s["lars"]  # its norm is of the gradient with the decay
    return None if s.get("weight_decay") else optax.lars(s.get("lr", 1.0), trust_coefficient=s.get("trust", 1e-3),
                                                         eps=s.get("eps", 0.0), momentum=s.get("momentum", 0.9))


def novograd(optax, s):
    s = s["novograd"]
    return None if s.get("averaging") else optax.novograd(
        s.get("lr", 1e-2), b1=s.get("beta1", 0.95), b2=s.get("beta2", 0.98), eps=s.get("eps", 1e-8),
        weight_decay=s.get("weight_decay", 0.0))


def dog(optax, s):
    s = s["dog"]
    return None if s.get("weight_decay") else optax.contrib.dog(s.get("lr", 1.0), eps=s.get("eps", 1e-8),
                                                                init_step=("heuristic", s["reach"]))


PEERS = {
    ("prodigy",): ("prodigyopt", in_torch(prodigy)),
    ("d-adapt-adam",): ("dadaptation", in_torch(d_adapt_adam)),
    ("clip-value", "sgd"): ("torch", in_torch(sgd, clip_value)),
    ("agc", "sgd"): ("timm", in_torch(sgd_or_adamw, agc)),
    ("agc", "adamw"): ("timm", in_torch(sgd_or_adamw, agc)),
    ("mars",): ("timm", in_torch(mars)),
    ("lars",): ("optax", in_optax(lars)),
    ("novograd",): ("optax", in_optax(novograd)),
    ("dog",): ("optax", in_optax(dog)),
}


def compare_with_peers(links, rows, arrays, gradient):
    """(package and version, largest difference), or None where there is no peer."""
    name, run = PEERS.get(tuple(name for name, _ in links), (None, None))
    try:
        package = importlib.import_module(name) if name else None
    except ImportError:
        package = None
    with contextlib.redirect_stdout(sys.stderr):
        theirs = list(run(package, links, arrays, gradient, len(rows))) if package else []
    if not theirs:
        return None
    worst = max(np.abs(a - b).max(initial=0) for x, y in zip(rows, theirs) for a, b in zip(x, y))
    return f"{name} {getattr(package, '__version__', '')}", float(worst)
