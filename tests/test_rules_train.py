#!/usr/bin/env python3
"""Every update rule trains the network of docs/experiments/fashion-mlp.yaml: for a few updates, or, with --table, for two
epochs, and prints the lines of the table in docs/rules.md. See cli.py."""
import json
import os
import sys

sys.dont_write_bytecode = True
from cli import PLUGINS, SOURCE, WORK, case, main, tenon

EXPERIMENT = os.path.join(SOURCE, "docs", "experiments", "fashion-mlp.yaml")
TABLE = "--table" in sys.argv
NEEDED = 0.85 if TABLE else 0.3
CLIP = "{use: clip-norm, max_norm: 1.0}, "
COSINE = "schedule={rule.lr: {use: cosine}}"
LARGE = ["data.batch=3000", "model.activation=tanh"]
UPDATES = 60  # of batches of 64, without --table

# What follows `use: NAME, as: rule` behind clip-norm.
ALONE = {
    "sgd": "lr: 0.1, momentum: 0.9", "sgdw": "lr: 0.05, momentum: 0.9, weight_decay: 1e-3", "asgd": "lr: 0.3",
    "signsgd": "lr: 5e-4", "lion": "lr: 3e-4", "adagrad": "lr: 0.02", "adadelta": "lr: 1.0",
    "rmsprop": "lr: 1e-3, alpha: 0.9", "adam": "lr: 1e-3", "adam-l2": "lr: 1e-3, l2: 1e-4", "adamw": "lr: 1e-3",
    "amsgrad": "lr: 1e-3", "adamax": "lr: 2e-3", "nadam": "lr: 1e-3", "nadamw": "lr: 1e-3", "radam": "lr: 1e-3",
    "adan": "lr: 2e-3", "adabelief": "lr: 1e-3", "adopt": "lr: 1e-3",
    "ademamix": "lr: 5e-4, beta3: 0.999, warmup: 1800", "adam-mini": "lr: 1e-3", "novograd": "lr: 0.02",
    "mars": "lr: 3e-3", "lamb": "lr: 5e-3", "adafactor": "lr: 1e-3", "sm3": "lr: 0.1", "prodigy": "",
    "d-adapt-adam": "", "dog": ""}

# The links as a whole, and further overrides. Rules for full batches get large ones, and so few updates.
CHAINS = {
    "lars": ("{use: lars, as: rule, lr: 1.0, trust: 0.01, on: {axes: [2, 8]}}, {use: sgd, lr: 0.05, momentum: 0.9}",
             [COSINE]),
    "muon": ("{use: muon, as: rule, lr: 2e-3, on: {axes: [2, 8]}}, {use: adamw, lr: 1e-3}", []),
    "kfac": ("{use: kfac, as: rule, on: {name: '*.linear.*'}}, {use: sgd, lr: 0.05, momentum: 0.9}", []),
    "lbfgs": ("{use: lbfgs, as: rule}", ["data.batch=2000"]),
    "newton-cg": ("{use: newton-cg, as: rule}, {use: ema, decay: 0.6}", LARGE),
    "saddle-free-newton": ("{use: saddle-free-newton, as: rule}, {use: ema, decay: 0.6}", LARGE),
    "rprop": ("{use: rprop, as: rule, lr: 5e-4, shrink: 0.8, grow: 1.1, most: 2e-3}", ["data.batch=500"]),
}
LESS = {"rprop": 0.84} if TABLE else {}  # signs of small batches turn by chance, which it takes for a turn of the gradient
NO_STEPS = {"freeze"}


def chain_of(name):
    if name in CHAINS:
        return CHAINS[name]
    settings = ALONE[name]
    return CLIP + "{use: %s, as: rule%s}" % (name, ", " + settings if settings else ""), []


def length(more):
    if TABLE:
        return "train.epochs=2"
    batch = next((int(x.split("=")[1]) for x in more if x.startswith("data.batch=")), 64)
    return f"train.steps={max(6, UPDATES * 64 // batch)}"


def accuracy(links, more):
    done = tenon("run", EXPERIMENT, length(more), "schedule={}", "checkpoint=none", f"update=[{links}]", *more,
                 "--runs", os.path.join(WORK, "runs"), "--json", path=PLUGINS)
    return json.loads(done.stdout)["test/accuracy"]


def rules():
    listed = json.loads(tenon("list", "optimizer", "--json", path=PLUGINS).stdout)
    return sorted({c["name"] for c in listed if c["device"] == "cpu"} - NO_STEPS)


@case
def every_rule_trains():
    failed = []
    for name in rules():
        links, more = chain_of(name)
        found = accuracy(links, more)
        if TABLE:
            print(f"| {name} | `{links.replace(CLIP, '')}`{'; ' + ', '.join(f'`{x}`' for x in more) if more else ''} "
                  f"| {found:.4f} |", flush=True)
        if found <= LESS.get(name, NEEDED):
            failed.append(f"{name}: {found}, needed {LESS.get(name, NEEDED)}: {links} {more}")
    assert not failed, failed


main()
