#!/usr/bin/env python3
"""The program as a user meets it: listings, runs, swaps from the command line, refusals and exit codes. See cli.py."""
import json
import math
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from cli import BAD, EXPERIMENT, PLUGINS, RUNS, TENON, TRACED, WORK, case, main, run, tenon


def plugin_files():
    return sorted(f for f in os.listdir(PLUGINS) if f.endswith(".so"))


# ---- listings ----


@case
def list_names_every_plugin():
    listed = json.loads(tenon("list", "--json").stdout)
    paths = {os.path.basename(c["path"]) for c in listed if c["state"] == "found"}
    own = {p for p in paths if p.startswith("libtenon")} # the host's own components
    assert len(own) == 1 and paths - own == set(plugin_files()), paths ^ set(plugin_files())
    text = tenon("list").stdout
    for component in listed:
        assert component["name"] in text


@case
def list_filters_by_kind():
    assert "did you mean 'optimizer'" in tenon("list", "optimzer", code=2).stderr
    kinds = {c["kind"] for c in json.loads(tenon("list", "optimizer", "--json").stdout)}
    assert kinds == {"optimizer"}, kinds


@case
def list_survives_a_plugin_that_aborts_when_mapped():
    listed = json.loads(tenon("list", "--json", path=BAD).stdout)
    names = {c["path"].rsplit("/", 1)[-1] for c in listed}
    assert "abort-at-load.so" in names and "exit-at-load.so" in names
    assert set(plugin_files()) <= names
    tenon("info", "adamw", path=BAD)


@case
def info_explains_every_component():
    for component in json.loads(tenon("list", "--json").stdout):
        info = json.loads(tenon("info", component["kind"] + "/" + component["name"], "--json").stdout)
        assert info["summary"] and isinstance(info["hyper"], list), info


@case
def info_suggests():
    assert "did you mean" in tenon("info", "lyernorm", code=2).stderr


@case
def listing_maps_no_plugin():
    if not TRACED:
        return
    log = os.path.join(WORK, "trace")
    prefix = ["strace", "-f", "-y", "-e", "trace=mmap,openat", "-o", log]
    tenon("list", "--json", path=BAD, prefix=prefix)
    tenon("info", "adamw", path=BAD, prefix=prefix + ["-A"])
    with open(log, encoding="utf-8", errors="replace") as f:
        lines = f.readlines()
    assert any("optimizer-adamw.so" in line for line in lines), "the trace shows no plugin being read"
    mapped = [line for line in lines if "mmap(" in line and (PLUGINS in line or BAD in line)]
    assert not mapped, mapped[0]


@case
def a_run_maps_only_what_it_uses():
    if not TRACED:
        return
    log = os.path.join(WORK, "trace-run")
    tenon("run", EXPERIMENT, "train.epochs=1", "--runs", RUNS, prefix=["strace", "-f", "-y", "-e", "trace=mmap", "-o", log])
    with open(log, encoding="utf-8", errors="replace") as f:
        mapped = {line.split(PLUGINS + "/", 1)[1].split(">")[0] for line in f if PLUGINS + "/" in line}
    wanted = {"data-idx.so", "model-mlp.so", "layer-linear.so", "normalizer-layernorm.so", "activation-gelu.so",
              "regularizer-dropout.so", "loss-cross-entropy.so", "transform-clip-norm.so", "optimizer-adamw.so",
              "scheduler-linear.so", "scheduler-cosine.so", "backend-reference.so", "collective-self.so", "sink-jsonl.so",
              "sink-csv.so"}
    assert mapped == wanted, mapped ^ wanted


# ---- runs ----


@case
def a_run_learns_and_leaves_its_folder():
    result, records = run()
    assert result["test/accuracy"] > 0.9, result
    folder = set(os.listdir(result["folder"]))
    assert {"experiment.yaml", "experiment.resolved.yaml", "overrides.txt", "metrics.jsonl"} <= folder, folder
    updates = [r for r in records if r["event"] == "train"]
    assert len(updates) == result["updates"] == 4 * 13
    assert [r["update"] for r in updates] == list(range(1, 53))
    assert records[0]["event"] == "start" and records[-1]["event"] == "end"
    rates = [r["rule.lr"] for r in updates]
    assert rates[:4] == [0.0025, 0.005, 0.0075, 0.01] and rates[-1] == 1e-5, rates
    assert all("clip-norm.norm" in r and math.isfinite(r["loss"]) for r in updates)


@case
def the_resolved_experiment_runs_the_same():
    result, records = run("model.activation=relu")
    resolved = os.path.join(result["folder"], "experiment.resolved.yaml")
    again = json.loads(tenon("run", resolved, "--runs", RUNS, "--json").stdout)
    assert again["test/loss"] == result["test/loss"]
    text = tenon("run", EXPERIMENT, "model.activation=relu", "--cfg").stdout
    with open(resolved, encoding="utf-8") as f:
        assert f.read() == text


@case
def components_swap_from_the_command_line():
    base, _ = run()
    for overrides in (["model.normalizer=batchnorm"], ["model.normalizer=none"], ["model.activation=relu"],
                      ["update.rule={use: sgd, lr: 0.1, momentum: 0.9}"], ["update.rule=adam"], ["model.regularizer=none"],
                      ["+update={use: ema, decay: 0.9}"], ["loss.smoothing=0"], ["precision=f64"], ["~update.clip-norm"]):
        result, _ = run(*overrides)
        assert math.isfinite(result["test/loss"]) and result["test/loss"] != base["test/loss"], overrides
        assert result["test/accuracy"] > 0.5, (overrides, result)


@case
def backends_train_to_the_same_loss():
    losses = {}
    for backend in ("reference", "openblas"):
        result, _ = run(f"backend={backend}")
        losses[backend] = result["test/loss"]
    assert abs(losses["reference"] - losses["openblas"]) < 1e-3 * losses["reference"], losses


@case
def threads_change_nothing():
    results = [run(f"train.threads={n}")[1] for n in (1, 2, 3)]
    for records in results[1:]:
        for a, b in zip(results[0], records):
            assert {k: v for k, v in a.items() if k != "time"} == {k: v for k, v in b.items() if k != "time"}


@case
def an_interrupted_run_says_so():
    env = {k: v for k, v in os.environ.items() if k != "TENON_PLUGIN_PATH"}
    process = subprocess.Popen([TENON, "run", EXPERIMENT, "train.epochs=100000", "--runs", RUNS], cwd=WORK, env=env,
                               stderr=subprocess.PIPE, text=True)
    process.stderr.readline()
    while "epoch" not in process.stderr.readline():
        pass
    process.send_signal(2)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, process.returncode
    assert "stopped on request" in err, err


# ---- refusals ----


@case
def usage_errors_exit_2():
    for arguments in ([], ["frobnicate"], ["run"], ["info"], ["list", "a", "b"], ["run", EXPERIMENT, "--bogus"], ["list", "--runs", "x"]):
        assert tenon(*arguments, code=2).stderr
    assert "usage" in tenon("--help").stdout and "usage" in tenon("run", "--help").stdout


@case
def wrong_experiments_exit_2_and_suggest():
    for override, words in {
        "update.rule.lr=-1": ["lr", "[0, inf)"],
        "update.rule.lr=nan": ["lr"],
        "update.rule.beta2=1.0": ["beta2", "[0, 1)"],
        "update.rule.eps=-1": ["eps"],
        "update.clip-norm.max_norm=-1": ["max_norm"],
        "update.rule.lr='0.1'": ["lr", "real"],
        "update.rule.lr=.5": [".5"],
        "update.rule.learning_rte=0.5": ["learning_rte"],
        "model.normalizer=layernrom": ["layernorm"],
        "data.batch=0": ["batch"],
        "train.epoch=3": ["epochs"],
        "model.normalizer=gelu": ["gelu", "normalizer"],
        "schedule={rule.lrr: cosine}": ["lr"],
    }.items():
        err = tenon("run", EXPERIMENT, override, "--runs", RUNS, code=2).stderr
        for word in words:
            assert word in err, (override, err)
    assert tenon("run", "missing.yaml", code=2).stderr


@case
def a_schedule_is_checked_to_its_end_before_the_run():
    long = ["~train.epochs", "train.steps=3000", "--runs", RUNS]
    err = tenon("run", EXPERIMENT, "schedule={rule.lr: {use: linear, end: -1e-3}}", *long, code=2).stderr
    assert "update 2" in err and "[0, inf)" in err and "100%" not in err, err
    err = tenon("run", EXPERIMENT, "update.rule={use: sgd, lr: 0.1}", "schedule={rule.momentum: {use: linear, start: 0.5, end: 0.9}}",
                *long, code=2).stderr
    assert "momentum_buffer" in err and "rule.momentum" in err, err
    result, _ = run("update.rule={use: sgd, lr: 0.1, momentum: 0.9}", "schedule={rule.momentum: {use: linear, start: 0.9, end: 0}}")
    assert math.isfinite(result["test/loss"])


@case
def a_number_that_would_be_lost_is_refused():
    for override, word in (("update.rule.eps=1e-46", "would be 0 in f32"), ("update.rule.eps=1e300", "would be inf in f32"),
                           ("schedule={rule.eps: {use: linear, end: 1e-60}}", "0 or inf in f32")):
        err = tenon("run", EXPERIMENT, override, "--runs", RUNS, code=2).stderr
        assert word in err, err
    run("update.rule.eps=1e-46", "precision=f64", "train.epochs=1")


@case
def a_batch_beyond_the_data_is_the_data():
    done = tenon("run", EXPERIMENT, "data.batch=2147483647", "--runs", RUNS)
    assert "more than the 203 samples" in done.stderr, done.stderr


@case
def a_run_can_do_without_sinks():
    for override in ("~sinks", "sinks=[]", "sinks=none"):
        result = json.loads(tenon("run", EXPERIMENT, override, "train.epochs=1", "--runs", RUNS, "--json").stdout)
        assert "metrics.jsonl" not in os.listdir(result["folder"])


@case
def a_misspelt_key_is_shown_in_its_line():
    wrong = os.path.join(WORK, "wrong.yaml")
    with open(EXPERIMENT, encoding="utf-8") as f, open(wrong, "w", encoding="utf-8") as g:
        g.write(f.read().replace("max_norm", "max_nrom"))
    err = tenon("run", wrong, code=2).stderr
    for word in ("wrong.yaml:6:", "max_nrom", "max_norm", "^"):
        assert word in err, err


@case
def a_refused_experiment_leaves_no_folder():
    runs = os.path.join(WORK, "no-runs")
    tenon("run", EXPERIMENT, "update.rule={use: sgd, nesterov: true}", "--runs", runs, code=2)
    assert not os.path.exists(runs)


@case
def a_broken_plugin_exits_3():
    err = tenon("run", EXPERIMENT, "update.rule=no-entry", "~schedule", "--runs", RUNS, code=3, path=BAD).stderr
    assert "NO_ENTRY" in err and "tenon_plugin_v1" in err, err


@case
def divergence_exits_4():
    err = tenon("run", EXPERIMENT, "~update.clip-norm", "~schedule", "update.rule={use: sgd, lr: 1e30}", "train.epochs=50",
                "model.normalizer=none", "--runs", RUNS, code=4).stderr
    assert "diverged" in err, err


@case
def a_short_run_that_ends_in_nan_exits_4():
    err = tenon("run", EXPERIMENT, "~update.clip-norm", "~schedule", "update.rule={use: sgd, lr: 1e30}", "~train.epochs",
                "train.steps=5", "model.normalizer=none", "--runs", RUNS, code=4).stderr
    assert "diverged: the run ended with a loss of" in err, err


@case
def a_run_without_an_update_exits_4():
    err = tenon("run", EXPERIMENT, "precision={storage: fp16, loss_scale: {use: constant, value: 0x1p60}}", "~train.epochs",
                "train.steps=5", "~schedule", "--runs", RUNS, code=4).stderr
    assert "no update was made: all 5 attempts" in err, err


@case
def a_rank_that_waits_in_vain_exits_1():
    err = tenon("run", EXPERIMENT, "parallel.collective={use: shm, patience: 0.5}", "--runs", RUNS, code=1,
                env={"TENON_SHM": f"in-vain-{os.getpid()}", "TENON_RANKS": "2", "TENON_RANK": "0"}).stderr
    assert "did not come within 0.5 s" in err, err


@case
def a_missing_plugin_folder_is_said():
    assert "/no/such/folder" in tenon("list", path="/no/such/folder").stderr


@case
def missing_data_names_the_package():
    err = tenon("run", EXPERIMENT, "data={use: idx, set: nothing-here, batch: 4}", "--runs", RUNS, code=1).stderr
    assert "nothing-here" in err, err


@case
def a_folder_of_any_bytes_is_still_json():
    odd = os.path.join(os.fsencode(WORK), b'r\x01"\\\n\xff\xc3\xa9')
    result = json.loads(tenon("run", EXPERIMENT, "train.epochs=1", "--runs", odd, "--json").stdout)
    assert result["folder"].startswith(os.path.join(WORK, 'r\x01"\\\n\ufffd\u00e9/')), result


@case
def an_empty_folder_name_is_refused():
    assert "empty name" in tenon("run", EXPERIMENT, "--runs", "", code=2).stderr


@case
def a_full_disk_is_an_error():
    err = tenon("run", EXPERIMENT, "train.epochs=1", "--runs", RUNS, code=1, prefix=["sh", "-c", 'exec "$@" > /dev/full', "sh"]).stderr
    assert "can not write" in err, err
    err = tenon("list", code=1, prefix=["sh", "-c", 'exec "$@" > /dev/full', "sh"]).stderr
    assert "can not write" in err, err


@case
def the_locale_changes_nothing():
    first, _ = run("train.epochs=1")
    for locale in ("de_DE.UTF-8", "C.UTF-8"):
        other, records = run("train.epochs=1", env={"LC_ALL": locale})
        assert other["test/loss"] == first["test/loss"]
        assert isinstance(records[1]["loss"], float)


def without_time(path):
    with open(os.path.join(path, "metrics.jsonl"), encoding="utf-8") as lines:
        return [{k: v for k, v in json.loads(line).items() if k != "time"} for line in lines]


@case
def a_killed_run_resumes_to_the_same_numbers():
    every = ["train.epochs=40", "eval.every=10 steps", "checkpoint={every: 7 steps}", "schedule=none"]
    whole, _ = run(*every)
    runs = os.path.join(WORK, "killed")
    env = dict(os.environ)
    env.pop("TENON_PLUGIN_PATH", None)
    child = subprocess.Popen([TENON, "run", EXPERIMENT, *every, "--runs", runs, "--quiet"], env=env, cwd=WORK,
                             stdout=subprocess.DEVNULL)
    folder, deadline = None, time.time() + 60
    while time.time() < deadline and child.poll() is None:
        folder = folder or next((os.path.join(runs, name) for name in (os.listdir(runs) if os.path.isdir(runs) else [])), None)
        written = folder and os.path.isdir(folder + "/checkpoints") and os.listdir(folder + "/checkpoints")
        if written and "attempt-000000070.safetensors" in written:
            break
    child.kill()
    assert child.wait() == -9, "it ended before it could be killed"
    err = tenon("resume", folder, "train.seed=2", code=2).stderr
    assert "another experiment" in err and "seed: 1" in err, err
    resumed = json.loads(tenon("resume", folder, "train.threads=2", "--json", "--quiet").stdout)
    assert {**resumed, "folder": ""} == {**whole, "folder": ""}, (resumed, whole)
    assert without_time(folder) == without_time(whole["folder"])
    assert resumed["folder"] == folder


@case
def resume_says_what_is_missing():
    assert "resume takes RUN" in tenon("resume", code=2).stderr
    assert "experiment.resolved.yaml" in tenon("resume", WORK, code=2).stderr
    result, _ = run("train.epochs=1", "checkpoint=none")
    err = tenon("resume", result["folder"], code=2).stderr
    assert "no checkpoint is there" in err, err


# ---- bench ----


@case
def bench_measures_what_is_named():
    sizes = ["--elements", "4096", "--rounds", "2", "--threads", "1"]
    for what in ("memory", "update", "gemm", "layer"):
        report = json.loads(tenon("bench", what, *sizes, "--json").stdout)
        assert report["bench"] == what and report["results"], report
        assert report["threads"] == 1 and report["rounds"] == 2, report
    names = [row["name"] for row in json.loads(tenon("bench", "update", "lion", *sizes, "--json").stdout)["results"]]
    assert set(names) == {"lion"}, names
    costs = json.loads(tenon("bench", "update", "--costs", *sizes, "--json").stdout)["results"]
    assert all("cost" in row for row in costs), costs
    assert "GB/s" in tenon("bench", "memory", *sizes).stdout


@case
def bench_refuses_what_is_none():
    assert "memory|update|gemm|layer" in tenon("bench", code=2).stderr
    assert 'did you mean "layer"' in tenon("bench", "layers", code=2).stderr
    assert "no whole number" in tenon("bench", "memory", "--elements", "1e6", code=2).stderr
    assert "no whole number" in tenon("bench", "memory", "--threads", "0", code=2).stderr
    assert "takes no such option" in tenon("list", "--rounds", "3", code=2).stderr


if __name__ == "__main__":
    sys.exit(main())
