#!/usr/bin/env python3
"""Throughput of an MLP on Fashion-MNIST: tenon against PyTorch, interleaved.

  tests/bench/mlp_pytorch.py build/tenon [--batch 64] [--rounds 5] [--plain]

Both train 784-256-128-10 on the same data with the same techniques: those of docs/experiments/fashion-mlp.yaml, or with
--plain only linear layers, ReLU and SGD with momentum. PyTorch gets its best setting: 1 or 2 threads, passive OpenMP
waiting, the data normalised beforehand in memory, foreach or per-tensor updates, whichever is fastest. Rounds alternate
so that both meet the same machine; the ratio is the median over rounds of (best tenon / best PyTorch).
Needs a Python that can import torch (Debian: python3-torch).
"""
import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

DATA = "/usr/share/datasets/fashion-mnist/"
STEPS, WARM = 400, 100


def torch_worker(batch, threads, foreach, plain):
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    with gzip.open(DATA + "train-images-idx3-ubyte.gz") as f:
        x = torch.tensor(np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 784).astype("float32") / 255)
    with gzip.open(DATA + "train-labels-idx1-ubyte.gz") as f:
        y = torch.tensor(np.frombuffer(f.read(), np.uint8, offset=8).astype("int64"))
    x = (x - x.mean()) / x.std()
    nn = torch.nn
    layers, width = [], 784
    for out in (256, 128):
        layers.append(nn.Linear(width, out))
        layers += [nn.ReLU()] if plain else [nn.LayerNorm(out), nn.GELU(), nn.Dropout(0.1)]
        width = out
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    parameters = list(model.parameters())
    if plain:
        optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9, foreach=foreach)
        loss_function = nn.CrossEntropyLoss()
    else:
        optimizer = torch.optim.AdamW(parameters, 1e-3, weight_decay=0.01, foreach=foreach)
        loss_function = nn.CrossEntropyLoss(label_smoothing=0.1)
        average = [p.detach().clone() for p in parameters]
    order = torch.randperm(len(x))
    times, at = [], 0
    for step in range(STEPS):
        start = time.perf_counter()
        index = order[at : at + batch]
        at = at + batch if at + 2 * batch <= len(x) else 0
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(model(x[index]), y[index])
        loss.backward()
        if not plain:
            nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if not plain:
            with torch.no_grad():
                if foreach:
                    torch._foreach_mul_(average, 0.999)
                    torch._foreach_add_(average, parameters, alpha=0.001)
                else:
                    for a, p in zip(average, parameters):
                        a.lerp_(p, 0.001)
        times.append(time.perf_counter() - start)
    print(statistics.median(times[WARM:]))


def torch_time(batch, threads, foreach, plain):
    env = dict(os.environ, OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", OMP_NUM_THREADS=str(threads))
    env.pop("OPENBLAS_NUM_THREADS", None)
    command = [sys.executable, __file__, "--worker", str(batch), str(threads), str(int(foreach)), str(int(plain))]
    return float(subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE).stdout)


def tenon_time(program, batch, threads, plain):
    experiment = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/experiments/fashion-mlp.yaml")
    overrides = [f"data.batch={batch}", f"train.threads={threads}", "~train.epochs", f"train.steps={STEPS}", "~eval", "~schedule"]
    if plain:
        overrides += ["model.normalizer=none", "model.regularizer=none", "model.activation=relu", "loss=cross-entropy",
                      "update=[{use: sgd, lr: 0.1, momentum: 0.9}]"]
    with tempfile.TemporaryDirectory() as runs:
        command = [program, "run", experiment, *overrides, "--runs", runs, "--json", "--quiet"]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        with open(os.path.join(result["folder"], "metrics.jsonl"), encoding="utf-8") as lines:
            stamps = [r["time"] for r in map(json.loads, lines) if r["event"] == "train"]
    return statistics.median(b - a for a, b in zip(stamps[WARM:], stamps[WARM + 1 :]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tenon")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain", action="store_true")
    args = parser.parse_args()
    ratios = []
    for _ in range(args.rounds):
        ours = {t: tenon_time(args.tenon, args.batch, t, args.plain) for t in (1, 2)}
        theirs = {(t, f): torch_time(args.batch, t, f, args.plain) for t in (1, 2) for f in (False, True)}
        a, b = min(ours, key=ours.get), min(theirs, key=theirs.get)
        ratios.append(theirs[b] / ours[a])
        print(f"tenon {args.batch / ours[a]:9.0f} images/s ({a} threads; 1: {args.batch / ours[1]:.0f})   "
              f"PyTorch {args.batch / theirs[b]:9.0f} images/s ({b[0]} threads, foreach {b[1]})   ratio {ratios[-1]:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--worker":
        torch_worker(int(sys.argv[2]), int(sys.argv[3]), bool(int(sys.argv[4])), bool(int(sys.argv[5])))
    else:
        main()
