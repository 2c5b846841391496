#!/usr/bin/env python3
"""A run that is killed at random instants, again and again, ends with the bits of one that nothing befell; and what
signals do.

  tests/test_survive.py TENON PLUGINS BAD

TENON_TEST_KILLS: how many kills, 20 by default; TENON_TEST_SEED: of the instants. Prints the closing line of a Check
program, so that each case counts.
"""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from cli import RUNS, TENON, WORK, case, main, tenon

KILLS = int(os.environ.get("TENON_TEST_KILLS", "20"))
SEED = int(os.environ.get("TENON_TEST_SEED", str(time.time_ns() % 1000000)))
EXPERIMENT = os.path.join(WORK, "survive.yaml")

# Everything that has state: masks, a norm's statistics, an average, a schedule that looks at the clock and one that
# looks at evaluations, percentiles of norms, windows of more than one batch.
TEXT = f"""name: survive
data: {{use: idx, folder: "{WORK}", batch: 16}}
model: {{use: mlp, widths: [12, 8], normalizer: batchnorm, activation: gelu, regularizer: {{use: dropout, p: 0.2}}}}
loss: {{use: cross-entropy, smoothing: 0.1}}
update:
  - {{use: clip-percentile, percentile: 70, window: 6}}
  - {{use: adamw, as: rule, lr: 0.02}}
  - {{use: ema, decay: 0.9, warmup: true}}
schedule:
  rule.lr: {{use: plateau, patience: 1, factor: 0.7}}
  model.regularizer.p: {{use: linear, end: 0.05}}
backend: reference
train: {{steps: 150, accumulate: 2, seed: 3, threads: 2}}
eval: {{split: test, every: 5 steps, refresh: 2}}
checkpoint: {{every: 4 steps}}
"""


def start(*arguments):
    env = dict(os.environ)
    env.pop("TENON_PLUGIN_PATH", None)
    return subprocess.Popen([TENON, *arguments, "--quiet"], env=env, cwd=WORK, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def only_folder(runs):
    names = os.listdir(runs) if os.path.isdir(runs) else []
    assert len(names) <= 1, names
    return os.path.join(runs, names[0]) if names else None


def checkpoints(folder):
    path = os.path.join(folder, "checkpoints") if folder else ""
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def is_named(folder):
    return {name for name in checkpoints(folder) if name.startswith("attempt-")}


def last_checkpoint(folder):
    """Its header, without where sinks' files end, which differs by the digits of times, and its data."""
    name = max(name for name in checkpoints(folder) if name.startswith("attempt-"))
    with open(os.path.join(folder, "checkpoints", name), "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        data = f.read()
    notes = header["__metadata__"]
    header["__metadata__"] = {k: v for k, v in notes.items() if not k.startswith("sink/") and k != "xxh3"}
    return name, header, data


def records(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as lines:
        jsonl = [{k: v for k, v in json.loads(line).items() if k != "time"} for line in lines]
    with open(os.path.join(folder, "metrics.csv"), encoding="utf-8") as lines:
        csv = [line.split(",")[:4] + line.split(",")[5:] for line in lines]
    return jsonl, csv


def kill_somewhere(child, longest):
    """True if it was killed before it came to its end."""
    try:
        child.wait(random.random() * longest)
    except subprocess.TimeoutExpired:
        child.kill()
    out, err = child.communicate()
    assert child.returncode in (0, -9), (child.returncode, out, err)
    return child.returncode == -9


@case
def killed_runs_end_with_the_same_bits():
    random.seed(SEED)
    whole_runs, runs = os.path.join(WORK, "whole"), os.path.join(WORK, "killed")
    before = time.time()
    tenon("run", EXPERIMENT, "--runs", whole_runs, "--quiet")
    longest = 1.1 * (time.time() - before)
    whole = only_folder(whole_runs)
    kills, rounds, in_writing = 0, 0, 0
    while kills < KILLS:
        shutil.rmtree(runs, ignore_errors=True)
        killed = kill_somewhere(start("run", EXPERIMENT, "--runs", runs), longest)
        while killed:
            folder = only_folder(runs)
            if not is_named(folder):
                break  # it had not begun
            kills += 1
            in_writing += any(name.endswith(".new") for name in checkpoints(folder))
            killed = kill_somewhere(start("resume", folder), longest if kills < KILLS else 600)
        if killed:
            continue
        rounds += 1
        folder = only_folder(runs)
        found, wanted = last_checkpoint(folder), last_checkpoint(whole)
        assert found[0] == wanted[0] == "attempt-000000150.safetensors", (SEED, kills, found[0])
        assert found[1] == wanted[1], f"seed {SEED}, {kills} kills: another header"
        assert found[2] == wanted[2], f"seed {SEED}, {kills} kills: other bytes"
        assert records(folder) == records(whole), f"seed {SEED}, {kills} kills: other records"
        assert checkpoints(folder) == checkpoints(whole), (SEED, kills, checkpoints(folder), checkpoints(whole))
    print(f"{kills} kills, {in_writing} of them while a checkpoint was written, {rounds} runs, seed {SEED}")


def wait_for(what, child):
    deadline = time.time() + 60
    while not what():
        assert time.time() < deadline and child.poll() is None, child.communicate()
        time.sleep(0.002)


LONG = ["train.steps=100000", "eval=none", "schedule=none", "checkpoint={every: 1000000 steps, keep: 0}", "sinks=[jsonl]"]


def begin(name, *overrides):
    runs = os.path.join(WORK, name)
    child = start("run", EXPERIMENT, *LONG, *overrides, "--runs", runs)
    wait_for(lambda: is_named(only_folder(runs)), child)
    return child, only_folder(runs)


@case
def the_first_signal_ends_the_run_and_says_how_to_go_on():
    for number, runs in ((signal.SIGINT, "an odd 'folder'"), (signal.SIGTERM, "plain"), (signal.SIGHUP, "hung-up")):
        child, folder = begin(runs)
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 128 + number, (child.returncode, err)
        last = max(is_named(folder))
        assert last != "attempt-000000000.safetensors", checkpoints(folder)
        at = int(last[8:17])
        assert f"stopped on request after {at} of 100000 updates; go on with: tenon resume " in err, err
        command = err.split("go on with: ")[1].split("\n")[0]
        child = subprocess.Popen(["sh", "-c", f"exec {command.replace('tenon', TENON, 1)} --quiet"], cwd=WORK,
                                 stderr=subprocess.PIPE, text=True)
        log = os.path.join(folder, "log.txt")
        wait_for(lambda: f"goes on from {folder}/checkpoints/{last}" in open(log, encoding="utf-8").read(), child)
        wait_for(lambda: os.path.exists(os.path.join(folder, f"environment-{at}.json")), child)
        child.terminate()
        child.communicate(timeout=60)
        assert child.returncode == 143
        assert int(max(is_named(folder))[8:17]) > at


@case
def the_second_signal_ends_it_at_once():
    child, folder = begin("at-once", "model={use: mlp, widths: [1500, 1500]}", "update=[{use: sgd}]", "data.batch=200")
    child.send_signal(signal.SIGINT)
    time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130, child.returncode
    assert is_named(folder) == {"attempt-000000000.safetensors"}, checkpoints(folder)


@case
def usr1_writes_a_checkpoint_and_the_run_goes_on():
    child, folder = begin("asked")
    for count in (2, 3):
        child.send_signal(signal.SIGUSR1)
        wait_for(lambda: len(is_named(folder)) == count, child)
    assert child.poll() is None
    child.terminate()
    child.communicate(timeout=60)
    assert child.returncode == 143
    assert len(is_named(folder)) == 4, checkpoints(folder)


@case
def one_asked_for_is_named_where_there_are_no_others():
    runs = os.path.join(WORK, "asked-alone")
    child = start("run", EXPERIMENT, *LONG, "checkpoint=none", "--runs", runs)
    wait_for(lambda: only_folder(runs) and os.path.exists(os.path.join(only_folder(runs), "environment.json")), child)
    folder = only_folder(runs)
    child.send_signal(signal.SIGUSR1)
    wait_for(lambda: is_named(folder), child)
    time.sleep(0.05)
    child.terminate()
    _, err = child.communicate(timeout=60)
    at = int(max(is_named(folder))[8:17])
    assert f"the last checkpoint is of update {at}, as the experiment says checkpoint: none" in err, err


@case
def data_that_has_changed_is_noticed():
    table, runs = os.path.join(WORK, "table.csv"), os.path.join(WORK, "table runs")

    def write(rows, by=0):
        with open(table, "w", encoding="utf-8") as f:
            f.writelines(f"{i % 7},{i * i % 11 + by * (i == 30)},{i % 3}\n" for i in range(rows))

    write(60)
    tenon("run", EXPERIMENT, f"data={{use: csv, train: {table}, header: false, batch: 8}}", "train.steps=20", "eval=none",
          "schedule=none", "--runs", runs)
    folder = only_folder(runs)
    os.remove(os.path.join(folder, "checkpoints", max(is_named(folder))))
    assert "what it was" not in tenon("resume", folder, "--quiet").stderr
    write(61)
    err = tenon("resume", folder, "--quiet", code=2).stderr
    assert "is of a run on 60 training samples, the data has 61 now; put back what it was" in err, err
    write(60, by=1)
    assert "the training data is not what it was" in tenon("resume", folder, "--quiet").stderr


@case
def a_run_has_one_writer():
    child, folder = begin("one-writer")
    before = sorted(os.listdir(folder))
    done = tenon("resume", folder, code=1)
    assert "another process writes this run; wait until it has ended, or stop it" in done.stderr, done.stderr
    assert sorted(os.listdir(folder)) == before
    tenon("eval", folder)
    child.kill()
    child.communicate(timeout=60)
    child = start("resume", folder)
    wait_for(lambda: any(name.startswith("environment-") for name in os.listdir(folder)), child)
    assert "another process" in tenon("resume", folder, code=1).stderr
    child.terminate()
    child.communicate(timeout=60)
    assert child.returncode == 143
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as lines:
        assert [json.loads(line)["update"] for line in lines][-1] > 0


@case
def closed_standard_files_are_no_files_of_the_run():
    for closed, code in (("2>&-", 0), (">&- 2>&-", 1), ("<&- >&- 2>&-", 1), ("<&-", 0)):
        runs = os.path.join(WORK, "closed " + closed)
        shell = ["sh", "-c", f'exec "$0" "$@" {closed}']
        tenon("run", EXPERIMENT, "train.steps=12", "--runs", runs, prefix=shell, code=code)
        folder = only_folder(runs)
        assert [r["event"] for r in records(folder)[0]].count("eval") == 3, records(folder)[0]
        for name in ("metrics.csv", "log.txt", "experiment.yaml", "overrides.txt"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                assert "test/accuracy " not in f.read(), (closed, name)
        tenon("eval", folder)


@case
def who_watches_may_leave():
    runs = os.path.join(WORK, "watched")
    child = subprocess.Popen([TENON, "run", EXPERIMENT, "train.steps=60", "--runs", runs], cwd=WORK, stderr=subprocess.PIPE,
                             stdout=subprocess.PIPE, env={k: v for k, v in os.environ.items() if k != "TENON_PLUGIN_PATH"})
    child.stderr.read(1)
    child.stderr.close()
    assert b"test/loss" in child.stdout.read()
    assert child.wait(60) == 0
    assert records(only_folder(runs))[0][-1]["event"] == "end"


@case
def nohup_is_heeded():
    child = subprocess.Popen(["nohup", TENON, "run", EXPERIMENT, *LONG, "--runs", os.path.join(WORK, "nohup"), "--quiet"],
                             cwd=WORK, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env={k: v for k, v in os.environ.items() if k != "TENON_PLUGIN_PATH"})
    wait_for(lambda: is_named(only_folder(os.path.join(WORK, "nohup"))), child)
    child.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert child.poll() is None, "it ended"
    child.terminate()
    assert child.wait(60) == 143


@case
def a_run_folder_is_complete():
    result = json.loads(tenon("run", EXPERIMENT, "train.steps=8", "--runs", RUNS, "--json", "--quiet").stdout)
    folder = result["folder"]
    wanted = {"experiment.yaml", "experiment.resolved.yaml", "overrides.txt", "environment.json", "metrics.jsonl",
              "metrics.csv", "log.txt", "checkpoints"}
    assert set(os.listdir(folder)) == wanted, os.listdir(folder)
    with open(os.path.join(folder, "environment.json"), encoding="utf-8") as f:
        environment = json.load(f)
    assert environment["machine"]["processor"] and environment["backend"] and environment["tenon"]
    used = {name.split(" ")[0] for plugin in environment["plugins"] for name in plugin["components"]}
    assert {"optimizer/adamw", "average/ema", "layer/linear", "sink/csv", "data/idx", "scheduler/plateau"} <= used, used
    assert "optimizer/lion" not in used
    for plugin in environment["plugins"]:
        assert os.path.isabs(plugin["path"]) and plugin["version"] and len(plugin["xxh128"]) == 32, plugin
    if shutil.which("xxh128sum"):
        plugin = environment["plugins"][0]
        printed = subprocess.run(["xxh128sum", plugin["path"]], capture_output=True, text=True, check=True).stdout
        assert printed.startswith(plugin["xxh128"] + " "), printed
    with open(os.path.join(folder, "log.txt"), encoding="utf-8") as f:
        lines = f.read().splitlines()
    assert any(line.endswith("begins " + EXPERIMENT) for line in lines), lines
    assert lines[-1].endswith("the run has ended"), lines
    with open(os.path.join(folder, "environment.json"), "w", encoding="utf-8") as f:
        environment["plugins"] = [dict(plugin, xxh128="0" * 32) if plugin["plugin"] == "org.tenon.adamw" else plugin
                                  for plugin in environment["plugins"]]
        environment["machine"]["processor"] = "an abacus"
        json.dump(environment, f)
    err = tenon("resume", folder, "--quiet").stderr
    assert "another build of the plugin org.tenon.adamw" in err and "an abacus" in err, err
    assert err.count("another build") == 1, err


@case
def a_damaged_checkpoint_is_named():
    result = json.loads(tenon("run", EXPERIMENT, "train.steps=12", "--runs", RUNS, "--json", "--quiet").stdout)
    path = os.path.join(result["folder"], "checkpoints", "attempt-000000012.safetensors")
    wanted = last_checkpoint(result["folder"])
    os.truncate(path, 4096)
    err = tenon("resume", result["folder"], "--quiet").stderr
    assert err.count(path) == 1 and "can not be used" in err, err
    assert last_checkpoint(result["folder"]) == wanted


@case
def parameters_come_from_a_file_made_by_hand():
    """A safetensors file by another writer, read as the parameters to start with."""
    shapes = {"hidden.0.linear.weight": [5, 64], "hidden.0.linear.bias": [5], "head.weight": [4, 5], "head.bias": [4]}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = struct.pack(f"<{count}d", *[(i % 7 - 3) / 16 for i in range(count)])
        header[name] = {"dtype": "F64", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = os.path.join(WORK, "by hand.safetensors")
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    plain = ["model={use: mlp, widths: [5]}", "update=[sgd]", "schedule=none", "eval=none", "train.steps=1"]
    result = json.loads(tenon("run", EXPERIMENT, *plain, f"train.from={json.dumps(path)}", "checkpoint.keep=0", "--runs",
                              RUNS, "--json", "--quiet").stdout)
    with open(os.path.join(result["folder"], "checkpoints", "attempt-000000000.safetensors"), "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        saved = json.loads(f.read(size))
        body = f.read()
    for name, shape in shapes.items():
        entry = saved["parameters/" + name]
        assert entry["dtype"] == "F32" and entry["shape"] == shape, entry
        lo, hi = entry["data_offsets"]
        values = struct.unpack(f"<{(hi - lo) // 4}f", body[lo:hi])
        assert values == tuple((i % 7 - 3) / 16 for i in range(len(values))), name
    err = tenon("run", EXPERIMENT, *plain[1:], f"train.from={json.dumps(path)}", "--runs", RUNS, code=1).stderr
    assert "train.from" in err and "shape [5, 64], needed [12, 64]" in err, err


def write_experiment():
    with open(EXPERIMENT, "w", encoding="utf-8") as f:
        f.write(TEXT)


if __name__ == "__main__":
    write_experiment()
    sys.exit(main())
