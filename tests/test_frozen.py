#!/usr/bin/env python3
"""Plugins that were built with an earlier contract: the same draft gives the same bits, another draft is refused.

  tests/test_frozen.py TENON PLUGINS BAD

tests/frozen/draft-1 holds plugins with their sources (make.sh there). Each source is built anew with the headers of
today; a run with the frozen files and one with the new ones must leave the same numbers. See cli.py.
"""
import glob
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys

sys.dont_write_bytecode = True
from cli import EXPERIMENT, PLUGINS, SOURCE, WORK, case, main, tenon

FROZEN = os.path.join(SOURCE, "tests/frozen/draft-1")
REFUSED = ["sink-jsonl"]  # of another draft than today's
FLAGS = ("-std=c11 -D_GNU_SOURCE -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fvisibility=hidden -fPIC "
         "-shared").split()
OVERRIDES = ["precision.state=bf16", "+update={use: ema, decay: 0.9}", "train.epochs=3", "checkpoint={every: 1 epoch}"]


def names():
    found = sorted(os.path.basename(f)[:-3] for f in glob.glob(FROZEN + "/*.so"))
    assert len(found) >= 9 and all(os.path.exists(f"{FROZEN}/{n}.c") for n in found), found
    return found


def copy_frozen():
    """Where nobody else could write."""
    folder = os.path.join(WORK, "frozen")
    os.makedirs(folder, exist_ok=True)
    for name in names():
        shutil.copy(f"{FROZEN}/{name}.so", folder)
        os.chmod(f"{folder}/{name}.so", 0o644)
    return folder


def build_now():
    folder = os.path.join(WORK, "now")
    os.makedirs(folder, exist_ok=True)
    include = ["-I" + os.path.join(SOURCE, "abi"), "-I" + os.path.join(SOURCE, "sdk")]
    for name in [n for n in names() if n not in REFUSED]:
        done = subprocess.run(["cc", *FLAGS, *include, f"{FROZEN}/{name}.c", "-o", f"{folder}/{name}.so", "-lm"],
                              capture_output=True, text=True)
        assert done.returncode == 0, f"{name}: {done.stderr}"
    return folder


def tensors(folder):
    """The bytes of all tensors in the last checkpoint, by name."""
    path = sorted(glob.glob(folder + "/checkpoints/*.safetensors"))[-1]
    with open(path, "rb") as f:
        content = f.read()
    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8:8 + size]), content[8 + size:]
    return {k: data[slice(*e["data_offsets"])] for k, e in header.items() if k != "__metadata__"}


def run(folder, *more):
    path = folder + ":" + PLUGINS
    result = json.loads(tenon("run", EXPERIMENT, *OVERRIDES, *more, "--runs", os.path.join(WORK, "runs"), "--json",
                              path=path).stdout)
    with open(result["folder"] + "/environment.json", encoding="utf-8") as f:
        used = f.read()
    for name in [n for n in names() if n not in REFUSED]:
        assert f"{folder}/{name}.so" in used, f"{name} of {folder} was not used"
    with open(result["folder"] + "/metrics.jsonl", encoding="utf-8") as f:
        lines = [re.sub(r'"time":[^,}]*', "", line) for line in f]
    return lines, tensors(result["folder"])


@case
def the_same_draft_gives_the_same_bits():
    frozen, now = run(copy_frozen()), run(build_now())
    assert len(frozen[0]) > 20 and len(frozen[1]) > 20, "too little was compared"
    assert frozen[0] == now[0], next(p for p in zip(frozen[0], now[0]) if p[0] != p[1])
    assert frozen[1].keys() == now[1].keys()
    assert frozen[1] == now[1], [k for k in now[1] if frozen[1][k] != now[1][k]]


@case
def another_draft_is_refused_with_what_to_do():
    folder = copy_frozen()
    for name in REFUSED:
        kind = name.split("-")[0]
        listed = tenon("list", kind, path=folder).stdout
        assert re.search(rf"INTERFACE: {re.escape(folder)}/{name}\.so: built for tenon\.{kind}/0\.1, this host speaks "
                         rf"tenon\.{kind}/0\.\d+; rebuild the plugin", listed), listed
        found = tenon("check", f"{folder}/{name}.so", "--only", "file-note", code=1, path=folder).stdout
        assert "rebuild" in found, found
        assert "rebuild" in tenon("install", f"{folder}/{name}.so", code=3, path=folder).stderr
        done = tenon("run", EXPERIMENT, f"sinks={name.split('-')[1]}", "train.steps=1", code=0, path=f"{folder}:{PLUGINS}")
        assert "INTERFACE" not in done.stdout, "today's own is used instead"


if platform.machine() != "x86_64" or not shutil.which("cc"):
    print("frozen plugins are for x86-64, and a compiler is needed", file=sys.stderr)
    sys.exit(77)
os.umask(0o022)
sys.exit(main())
