"""What tests of the program share: its arguments, a data set, an experiment, and the loop over cases.

A test is called as   tests/test_X.py TENON PLUGINS BAD [--traced]   and prints the closing line of a Check program, so
that each case counts. PLUGINS: folder of the built plugins. BAD: folder of plugins made to be wrong. --traced: also
under strace, which does not go with LeakSanitizer.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import traceback

TENON, PLUGINS, BAD = map(os.path.abspath, sys.argv[1:4])
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRACED = "--traced" in sys.argv
WORK = tempfile.mkdtemp(prefix="tenon-cli-")
RUNS = os.path.join(WORK, "runs")
EXPERIMENT = os.path.join(WORK, "small experiment żółw.yaml")
CASES = []


def case(function):
    CASES.append(function)
    return function


def tenon(*arguments, code=0, path=None, **more):
    env = {k: v for k, v in os.environ.items() if k != "TENON_PLUGIN_PATH"}
    env.update({"XDG_DATA_HOME": os.path.join(WORK, "share")}, **more.pop("env", {}))
    if path:
        env["TENON_PLUGIN_PATH"] = path
    prefix = more.pop("prefix", [])
    done = subprocess.run([*prefix, TENON, *arguments], env=env, capture_output=True, encoding="utf-8",
                          errors="surrogateescape", cwd=WORK, timeout=300, **more)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}, wanted {code}\n{done.stdout}\n{done.stderr}"
    return done


def run(*overrides, **more):
    """A short run; its result and its records."""
    result = json.loads(tenon("run", EXPERIMENT, *overrides, "--runs", RUNS, "--json", **more).stdout)
    with open(os.path.join(result["folder"], "metrics.jsonl"), encoding="utf-8") as lines:
        return result, [json.loads(line) for line in lines]


def make_data(folder, train=203, test=64):
    def write(name, images, n):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(struct.pack(">IIII", 0x803, n, 8, 8) if images else struct.pack(">II", 0x801, n))
            for i in range(n):
                for p in range(64 if images else 1):
                    quarter = p // 32 * 2 + p % 8 // 4
                    f.write(bytes([(i * 7919 + p * 104729) % 97 + (130 if quarter == i % 4 else 0) if images else i % 4]))

    for prefix, n in (("train", train), ("t10k", test)):
        write(prefix + "-images-idx3-ubyte", True, n)
        write(prefix + "-labels-idx1-ubyte", False, n)


def make_experiment():
    with open(EXPERIMENT, "w", encoding="utf-8") as f:
        f.write(f"""name: small
data: {{use: idx, folder: "{WORK}", batch: 16}}
model: {{use: mlp, widths: [24, 12], normalizer: layernorm, activation: gelu, regularizer: {{use: dropout, p: 0.1}}}}
loss: {{use: cross-entropy, smoothing: 0.1}}
update:
  - {{use: clip-norm, max_norm: 1.0}}
  - {{use: adamw, as: rule, lr: 1e-2}}
schedule:
  rule.lr: [{{use: linear, start: 0, steps: 4, reaches: end}}, {{use: cosine, end: 1e-5}}]
backend: reference
train: {{epochs: 4, seed: 1}}
eval: {{split: test, every: 1 epoch}}
""")


def main():
    make_data(WORK)
    make_experiment()
    failed = 0
    for function in CASES:
        try:
            function()
        except Exception:
            failed += 1
            print(f"{function.__name__}: FAILED")
            traceback.print_exc(file=sys.stdout)
    shutil.rmtree(WORK)
    print(f"{100 * (len(CASES) - failed) // len(CASES)}%: Checks: {len(CASES)}, Failures: {failed}, Errors: 0")
    return failed != 0
