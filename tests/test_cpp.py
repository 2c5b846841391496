#!/usr/bin/env python3
"""C++ plugins: an exception ends a run with words, wherever it is thrown, and only that run.

  tests/test_cpp.py TENON PLUGINS BAD                 builds tests/cpp/throws.cpp with each C++ compiler that is there

See cli.py. Without a C++ compiler the test is skipped.
"""
import json
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
from cli import PLUGINS, SOURCE, WORK, case, main, tenon

COMPILERS = [c for c in ("g++", "clang++") if shutil.which(c)]
EXPERIMENT = os.path.join(WORK, "throws.yaml")
STRICT = "-std=c++17 -Wall -Wextra -Werror -O2 -ffp-contract=off -fno-math-errno -fno-trapping-math -fPIC -shared".split()
CLOSED = ["-fvisibility=hidden", "-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL",
          "-Wl,--version-script=" + os.path.join(SOURCE, "sdk/template/shared/plugin.map")]
HEADERS = ["-I" + os.path.join(SOURCE, "abi"), "-I" + os.path.join(SOURCE, "sdk")]
# Words of each exception, and the code with which the program exits.
SAID = {
    "standard": ("{entry}: threw 'the dice fell off the table, 1000 times'", 1),
    "memory": ("{entry}: out of memory", 1),
    "status": ("throwing: found 7, needed 8", 1),
    "number": ("{entry}: threw what is no std::exception", 1),
}


def build(source, compiler, folder, *flags, ok=True):
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, "plugin.so")
    gcc = ["-fno-gnu-unique"] if compiler == "g++" else []
    done = subprocess.run([compiler, *STRICT, *gcc, *CLOSED, *HEADERS, *flags, source, "-o", target, "-lm"],
                          capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) == ok, done.stderr
    return target if ok else done.stderr


def make_experiment():
    with open(EXPERIMENT, "w", encoding="utf-8") as f:
        f.write("""name: throws
data:   {use: synthetic, task: spirals, train: 4096, test: 512, batch: 256}
model:  {use: mlp, widths: [128, 128], activation: throwing-layer}
loss:   cross-entropy
update: {use: throwing, as: rule}
sinks:  [jsonl, throwing-sink]
train:  {steps: 6, seed: 1, threads: 4}
eval:   {split: test, every: 100 steps}
""")


def run(path, *overrides, code=0):
    return tenon("run", EXPERIMENT, *overrides, "--runs", os.path.join(WORK, "runs"), "--quiet", "--json", code=code,
                 path=path + ":" + PLUGINS)


def throws(path, entry, *overrides, kinds=SAID, prefix=""):
    for what in kinds:
        words, code = SAID[what]
        done = run(path, *[o.replace("WHAT", what) for o in overrides], code=code)
        assert words.format(entry=entry) in done.stderr and done.stdout == "", (entry, what, done.stderr)


def compiler_case(compiler):
    path = os.path.join(WORK, compiler)

    def each():
        plugin = build(os.path.join(SOURCE, "tests/cpp/throws.cpp"), compiler, path)
        shown = subprocess.run(["nm", "-D", "--defined-only", plugin], capture_output=True, text=True).stdout.split()
        assert shown[2::3] == ["tenon_plugin_v1"], shown
        calm = json.loads(run(path).stdout)
        assert 0 < calm["test/loss"] < 2, calm
        # In links: what runs on all threads, and what is told the clock alone.
        throws(path, "throwing_begin", "update.rule={use: throwing, early: true, what: WHAT}")
        throws(path, "a lambda", "update.rule={use: throwing, what: WHAT}")
        # In layers.
        for where in ("forward", "backward"):
            throws(path, f"throwing_layer_{where}", f"model.activation={{use: throwing-layer, where: {where}, what: WHAT}}")
        throws(path, "throwing_layer_forward", "model.activation={use: throwing-layer, where: evaluation, what: WHAT}")
        throws(path, "throwing_layer_infer", "model.activation={use: throwing-layer, where: plan, what: WHAT}")
        # In a sink, which takes an error; and where there is nobody to tell but by NaN.
        throws(path, "throwing_sink_record", "sinks=[{use: throwing-sink, what: WHAT}]")
        done = run(path, "schedule={rule.lr: {use: throwing-schedule, what: standard}}", code=2)
        assert "rule.lr" in done.stderr and "nan" in done.stderr, done.stderr
        # A run that is not reached by it ends as before.
        again = json.loads(run(path, "update.rule={use: throwing, what: standard, at: 100}").stdout)
        assert again["test/loss"] == calm["test/loss"], (calm, again)

    each.__name__ = f"exceptions_by_{compiler.replace('+', 'p')}"
    case(each)


@case
def an_entry_that_can_tell_nobody_must_be_noexcept():
    source = os.path.join(WORK, "silent.cpp")
    text = """#include <tenon/precision.h>
#include <tenon/sdk.h>
#define SCALARS(S) S(scale, "scale")
static void silent_begin(const void *, double *slots) %s { slots[0] = 1; }
static double silent_scale(const void *, const double *slots) { return slots[0]; }
static void silent_observe(const void *, int32_t, double *) noexcept {}
static const tn_loss_scale silent_table = {sizeof(tn_loss_scale), 1, TN_CALL(silent_begin), TN_CALL(silent_scale),
                                           TN_CALL(silent_observe)};
TN_COMPONENT(silent, "loss-scale", TN_LOSS_SCALE, 0u, TN_NO_HYPER, "Silent", TN_SCALARS_FACT(SCALARS), silent_table);
TN_PLUGIN("org.tenon.test-silent", "0.1.0", "Apache-2.0", silent)
"""
    for compiler in COMPILERS:
        with open(source, "w", encoding="utf-8") as f:
            f.write(text % "")
        words = build(source, compiler, os.path.join(WORK, "silent"), ok=False)
        assert "make the function noexcept" in words, words
        with open(source, "w", encoding="utf-8") as f:
            f.write(text % "noexcept")
        build(source, compiler, os.path.join(WORK, "silent"))


if not COMPILERS:
    print("no C++ compiler here", file=sys.stderr)
    sys.exit(77)
make_experiment()
for each_compiler in COMPILERS:
    compiler_case(each_compiler)
sys.exit(main())
