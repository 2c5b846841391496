#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the largest differences between schedulers.py and what other libraries give, relative to the largest value.

By hand, where they are installed: python3 peers_schedulers.py [FOLDER], FOLDER holding unpacked wheels of transformers,
timm, pytorch_optimizer, deepspeed and megatron-core; of these only the files with the schedules are loaded.
Needs torch.
"""
import importlib
import sys
import types
import warnings

import torch
from torch.optim import lr_scheduler

from schedulers import segment, values_of

warnings.simplefilter("ignore")


def ours(base, total, count, *segments, per_epoch=1):
    return values_of(segments, total, base, count, per_epoch, 0)


def sgd(base):
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base, momentum=0.9)


def followed(base, make, count, key="lr"):
    """What a torch scheduler gives for updates 0, 1, ..."""
    optimizer = sgd(base)
    scheduler, values = make(optimizer), []
    for _ in range(count):
        values.append(float(optimizer.param_groups[0][key]))
        optimizer.step()
        scheduler.step()
    return values


def report(library, what, theirs, mine):
    scale = max(abs(value) for value in mine)
    print(f"| {library} | {what} | {max(abs(a - b) for a, b in zip(theirs, mine)) / scale:.1e} |")


def against_torch():
    def check(what, base, make, *segments, count=200, total=200, key="lr", per_epoch=1):
        report(f"torch {torch.__version__}", what, followed(base, make, count, key),
               ours(base, total, count, *segments, per_epoch=per_epoch))

    check("StepLR", 0.3, lambda o: lr_scheduler.StepLR(o, 30, 0.1), segment("step", every=30))
    check("MultiStepLR", 0.3, lambda o: lr_scheduler.MultiStepLR(o, [80, 30, 80]),
          segment("multistep", milestones="[80, 30, 80]"))
    check("ExponentialLR", 0.3, lambda o: lr_scheduler.ExponentialLR(o, 0.98),
          segment("exponential", gamma=0.98, every=1))
    check("LinearLR", 0.3, lambda o: lr_scheduler.LinearLR(o, 0.1, 0.7, 50), segment("linear", start=0.03, end=0.21,
                                                                                     steps=50))
    check("CosineAnnealingLR, to T", 0.3, lambda o: lr_scheduler.CosineAnnealingLR(o, 150, 0.01),
          segment("cosine", end=0.01, steps=150), count=151)
    check("CosineAnnealingWarmRestarts", 0.3, lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7, 2, 0.01),
          segment("cosine-restarts", period=7, mult=2, end=0.01))
    if hasattr(lr_scheduler, "PolynomialLR"):
        check("PolynomialLR", 0.3, lambda o: lr_scheduler.PolynomialLR(o, 120, 0.9),
              segment("polynomial", power=0.9, steps=120))
    for anneal, word in (("cos", "cosine"), ("linear", "linear")):
        for three in (False, True):
            words = f"OneCycleLR {anneal}{', three phases' if three else ''}"
            cycle = lambda o: lr_scheduler.OneCycleLR(o, 0.3, 201, pct_start=0.27, anneal_strategy=anneal,
                                                      three_phase=three)
            check(words, 0.3, cycle, segment("one-cycle", rise=0.27, anneal=word, three_phase=three), total=201)
            check(words + ", momentum", 0.3, cycle,
                  segment("one-cycle", rise=0.27, anneal=word, three_phase=three, start=0.95, peak=0.85, end=0.95),
                  total=201, key="momentum")
    for mode, word in (("triangular", "triangular"), ("triangular2", "triangular2"), ("exp_range", "exp-range")):
        cycle = lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.3, 13, 20, mode, gamma=0.99, base_momentum=0.85,
                                                max_momentum=0.95)
        setting = dict(up=13, down=20, mode=word, gamma=0.99)
        check(f"CyclicLR {mode}", 0.3, cycle, segment("cyclic", start=0.01, **setting))
        check(f"CyclicLR {mode}, momentum", 0.3, cycle, segment("cyclic", start=0.95, peak=0.85, **setting),
              key="momentum")
    restarts = sgd(0.3)
    scheduler, values = lr_scheduler.CosineAnnealingWarmRestarts(restarts, 3, 2), []
    for t in range(200):
        scheduler.step(t / 8)
        values.append(restarts.param_groups[0]["lr"])
    report(f"torch {torch.__version__}", "CosineAnnealingWarmRestarts, epochs with fractions", values,
           ours(0.3, 200, 200, segment("cosine-restarts", period=3, mult=2, unit="epochs"), per_epoch=8))
    check("SequentialLR of three", 0.3,
          lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o, 0.1, 1, 10),
                                                  lr_scheduler.ConstantLR(o, 0.5, 99),
                                                  lr_scheduler.CosineAnnealingLR(o, 160)], [10, 40]),
          segment("linear", start=0.03, steps=10), segment("constant", value=0.15, steps=30),
          segment("cosine", steps=160), total=200)


def packages(folder):
    """Packages without their __init__, and with whatever the schedules' files ask of them."""
    class Word(type):
        def __getattr__(cls, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return name

    class Anything(types.ModuleType):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return Word(name, (), {"get_logger": staticmethod(lambda *_: None), "__new__": lambda cls, *_: None})

    for name in ("transformers", "timm", "timm.scheduler", "pytorch_optimizer", "pytorch_optimizer.lr_scheduler",
                 "deepspeed", "deepspeed.runtime", "megatron", "megatron.core"):
        module = types.ModuleType(name)
        module.__path__ = [f"{folder}/{name.replace('.', '/')}"]
        sys.modules[name] = module
    for name in ("transformers.trainer_pt_utils", "transformers.trainer_utils", "transformers.utils",
                 "transformers.utils.versions", "deepspeed.utils", "megatron.core.utils"):
        sys.modules[name] = Anything(name)
    if not hasattr(lr_scheduler, "LRScheduler"):
        lr_scheduler.LRScheduler = lr_scheduler._LRScheduler


def against_transformers():
    hf = importlib.import_module("transformers.optimization")

    def check(what, make, *segments, base=0.3, total=200, count=200):
        report("transformers", what, followed(base, make, count), ours(base, total, count, *segments))

    rise = segment("warmup", steps=20)
    check("constant with warm-up", lambda o: hf.get_constant_schedule_with_warmup(o, 20), rise, segment("constant"))
    check("linear with warm-up", lambda o: hf.get_linear_schedule_with_warmup(o, 20, 200), rise,
          segment("linear", end=0, reaches="start"))
    check("cosine with warm-up", lambda o: hf.get_cosine_schedule_with_warmup(o, 20, 200), rise,
          segment("cosine", reaches="start"))
    check("cosine with min_lr", lambda o: hf.get_cosine_with_min_lr_schedule_with_warmup(o, 20, 200, min_lr=0.02), rise,
          segment("cosine", end=0.02, reaches="start"))
    check("hard restarts", lambda o: hf.get_cosine_with_hard_restarts_schedule_with_warmup(o, 20, 200, 4), rise,
          segment("cosine-restarts", cycles=4))
    check("polynomial", lambda o: hf.get_polynomial_decay_schedule_with_warmup(o, 20, 200, 0.01, 1.7), rise,
          segment("polynomial", power=1.7, end=0.01, reaches="start"))
    check("inverse sqrt", lambda o: hf.get_inverse_sqrt_schedule(o, 20), segment("inverse-sqrt", warmup=20))
    check("inverse sqrt, timescale", lambda o: hf.get_inverse_sqrt_schedule(o, 20, 50),
          segment("inverse-sqrt", warmup=20, timescale=50))
    check("warm-up, stable, decay", lambda o: hf.get_wsd_schedule(o, 20, 120, 60, 0.1),
          segment("wsd", warmup=20, decay=60, shape="cosine", end=0.03, reaches="start"), count=220)


def against_timm():
    for name in ("scheduler", "tanh_lr", "cosine_lr", "poly_lr", "step_lr", "multistep_lr"):
        sys.modules["timm.scheduler." + name] = importlib.import_module("timm.scheduler." + name)
    timm = {name: sys.modules["timm.scheduler." + name] for name in ("tanh_lr", "cosine_lr", "poly_lr", "step_lr")}

    def check(what, scheduler, *segments, base=0.3, total=200, count=200):
        report("timm", what, [scheduler._get_lr(t)[0] for t in range(count)], ours(base, total, count, *segments))

    check("tanh", timm["tanh_lr"].TanhLRScheduler(sgd(0.3), 150, lr_min=0.01), segment("tanh", steps=150, end=0.01))
    check("cosine, cycles, k-decay 1",
          timm["cosine_lr"].CosineLRScheduler(sgd(0.3), 20, lr_min=0.01, cycle_mul=1.5, cycle_decay=0.7, cycle_limit=3),
          segment("cosine-restarts", period=20, mult=1.5, decay=0.7, cycles=3, end=0.01))
    check("cosine, k-decay 1.6", timm["cosine_lr"].CosineLRScheduler(sgd(0.3), 150, k_decay=1.6),
          segment("cosine", steps=150, k=1.6))
    check("poly, k-decay 1.6", timm["poly_lr"].PolyLRScheduler(sgd(0.3), 150, 0.5, lr_min=0.01, k_decay=1.6),
          segment("polynomial", steps=150, power=0.5, end=0.01, k=1.6))
    check("step", timm["step_lr"].StepLRScheduler(sgd(0.3), 30, 0.4), segment("step", every=30, gamma=0.4))


def against_pytorch_optimizer():
    rex = importlib.import_module("pytorch_optimizer.lr_scheduler.rex").REXScheduler(sgd(0.3), 150, 0.3, 0.01)
    rex.step_t = 0
    report("pytorch_optimizer", "REX", [rex.step() for _ in range(200)],
           ours(0.3, 200, 200, segment("rex", steps=150, end=0.01)))
    chebyshev = importlib.import_module("pytorch_optimizer.lr_scheduler.chebyshev").get_chebyshev_perm_steps
    report("pytorch_optimizer", "fractal Chebyshev, order and nodes of 64", [0.3 * x for x in chebyshev(64)],
           ours(0.3, 64, 64, segment("chebyshev", nodes=64)))
    wsd = importlib.import_module("pytorch_optimizer.lr_scheduler.wsd")
    for shape, word in (("1-sqrt", "sqrt"), ("1-square", "square"), ("linear", "linear")):
        report("pytorch_optimizer", f"WSD {shape}",
               followed(0.3, lambda o: wsd.get_wsd_schedule(o, 20, 120, 60, 0.0, cooldown_type=shape), 220),
               ours(0.3, 200, 220, segment("wsd", warmup=20, decay=60, shape=word, reaches="start")))


def against_deepspeed():
    deepspeed = importlib.import_module("deepspeed.runtime.lr_schedules")
    for shape in ("log", "linear"):
        scheduler = deepspeed.WarmupLR(sgd(0.3), 0.01, 0.3, 20, shape)
        values = []
        for t in range(40):
            scheduler.step(t)
            values.append(scheduler.get_last_lr()[0])
        report("deepspeed", f"WarmupLR {shape}", values,
               ours(0.3, 40, 40, segment("warmup", steps=20, start=0.01, shape=shape), segment("constant")))
    optimizer = sgd(0.3)
    scheduler, values = deepspeed.WarmupCosineLR(optimizer, 200, 0.1, 20, 0.02), []
    for t in range(200):
        scheduler.step(t)
        values.append(optimizer.param_groups[0]["lr"])
    report("deepspeed", "WarmupCosineLR", values,
           ours(0.3, 200, 200, segment("warmup", steps=20, start=0.03, shape="log"),
                segment("cosine", end=0.006, reaches="end")))


def against_megatron():
    megatron = importlib.import_module("megatron.core.optimizer_param_scheduler")

    def check(what, style, *segments, decay=None, shape=None, count=230):
        optimizer = types.SimpleNamespace(param_groups=[{}])
        scheduler = megatron.OptimizerParamScheduler(optimizer, 0.01, 0.3, 0.03, 20, 200, style, 0.1, 0.4, 150,
                                                     "cosine", wsd_decay_steps=decay, lr_wsd_decay_style=shape)
        values, decays = [], []
        for _ in range(count):
            values.append(optimizer.param_groups[0]["lr"])
            decays.append(optimizer.param_groups[0]["weight_decay"])
            scheduler.step(1)
        report("megatron-core", what, values, ours(0.3, 200, count, *segments))
        return decays

    rise = segment("linear", start=0.01, steps=20)
    check("linear", "linear", rise, segment("linear", end=0.03, reaches="start"))
    decays = check("cosine", "cosine", rise, segment("cosine", end=0.03, reaches="start"))
    report("megatron-core", "weight decay, cosine", decays, ours(0.2, 200, 230, segment("cosine", start=0.1, end=0.4,
                                                                                      steps=150)))
    check("inverse-square-root", "inverse-square-root",
          segment("inverse-sqrt", start=0.01, warmup=20, minimum=0.03), count=200)
    for shape, word in (("linear", "linear"), ("cosine", "cosine"), ("minus_sqrt", "sqrt"),
                        ("exponential", "exponential")):
        check(f"WSD {shape}", "WSD", segment("wsd", start=0.01, warmup=20, decay=60, end=0.03, shape=word,
                                             reaches="start"), decay=60, shape=shape)


print("| library | schedule | largest difference |\n|---|---|---|")
against_torch()
if len(sys.argv) > 1:
    packages(sys.argv[1])
    for against in (against_transformers, against_timm, against_pytorch_optimizer, against_deepspeed, against_megatron):
        against()
