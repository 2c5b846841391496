#!/usr/bin/env python3
"""`tenon new`: what it refuses, and that each template builds, keeps to the contract, trains and is what was asked for.

  tests/test_new.py TENON PLUGINS BAD                 names, folders, meson, words
  tests/test_new.py TENON PLUGINS BAD c|c++ KIND ...  each of these kinds: new, build, check, info, run

See cli.py. Without a compiler of the language the test is skipped.
"""
import glob
import json
import os
import re
import shutil
import stat
import subprocess
import sys

sys.dont_write_bytecode = True
LANGUAGE, KINDS = (sys.argv[4], sys.argv[5:]) if len(sys.argv) > 4 else ("c", [])
from cli import SOURCE, TENON, WORK, case, main, tenon

TEMPLATES = os.path.join(SOURCE, "sdk/template")
ALL = sorted(k for k in os.listdir(TEMPLATES) if os.path.exists(os.path.join(TEMPLATES, k, "my-thing.c")))
PKGCONFIG = os.path.join(os.path.dirname(TENON), "pkgconfig")
FOLDERS = os.path.join(WORK, "new")
os.umask(0o022)


def shell(*command, folder, code=0, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TENON_", "CK_"))}
    env.update({"PKG_CONFIG_PATH": PKGCONFIG, "TENON": TENON, "XDG_DATA_HOME": os.path.join(WORK, "share")}, **more)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def new(kind, name, *more, language=LANGUAGE, **how):
    folder = os.path.join(FOLDERS, name)
    return json.loads(tenon("new", kind, name, "--lang", language, "--to", folder, "--json", *more, **how).stdout)


def refused(*arguments, code=2):
    words = tenon("new", *arguments, code=code).stderr
    assert words.startswith("tenon: ") and words.count("\n") == 1, words
    return words


def everything():
    return sorted(os.path.relpath(os.path.join(d, f), WORK) for d, ds, fs in os.walk(WORK) for f in ds + fs)


def build(made, *flags):
    shell("./build.sh", "-Werror", *flags, folder=made["folder"])
    return os.path.join(made["folder"], made["plugin"])


# ---- each kind ----


def shown_symbols(file):
    out = subprocess.run(["nm", "-D", "--defined-only", file], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1].split("@")[0] for line in out.splitlines()]


def metrics(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def used_plugins(folder):
    with open(os.path.join(folder, "environment.json"), encoding="utf-8") as f:
        return f.read()


def trains(kind, made, plugins, *overrides, file=None):
    """try.yaml uses the component and the loss falls."""
    experiment = os.path.join(made["folder"], "try.yaml")
    if not os.path.exists(experiment):
        assert kind in ("layer", "strategy"), f"{kind}: no try.yaml"
        return None
    result = json.loads(tenon("run", experiment, *overrides, "--runs", os.path.join(WORK, "runs"), "--json",
                              path=plugins).stdout)
    assert (file or made["plugin"]) in used_plugins(result["folder"]), f"{kind}: the run did not use the plugin"
    losses = [r["loss"] for r in metrics(result["folder"]) if r["event"] == "train"]
    assert result["test/loss"] < 0.75 * losses[0], (kind, losses[0], result)
    return result


def kind_case(kind):
    def each():
        name = f"try-{kind}"
        made = new(kind, name)
        source = f"{name}.{'cpp' if LANGUAGE == 'c++' else 'c'}"
        assert made["plugin"] == f"{kind}-{name}.so" and made["pkgconfig"] == PKGCONFIG, made
        assert sorted(made["files"]) == sorted(os.listdir(made["folder"])) and source in made["files"], made
        for file in made["files"]:
            with open(os.path.join(made["folder"], file), encoding="utf-8") as f:
                text = f.read()
            left = re.findall(r"my[-_](?:thing|kind|source)\b", text)
            assert not left, f"{kind}/{file}: {left} was left"
            assert LANGUAGE == "c++" or "TN_CALL" not in text, f"{kind}/{file}: TN_CALL in C"
        plugin = build(made)
        assert shown_symbols(plugin) == ["tenon_plugin_v1"], (kind, shown_symbols(plugin))
        checked = json.loads(tenon("check", plugin, "--json").stdout)
        assert checked[0]["failed"] == 0 and len(checked[0]["findings"]) >= 10, checked
        plugins = os.path.join(WORK, "plugins-" + kind)
        os.mkdir(plugins)
        shutil.copy(plugin, plugins)
        info = tenon("info", f"{kind}/{name}", path=plugins).stdout
        assert info.startswith(f"{kind}/{name} (cpu ") and f"org.example.{name} 0.1.0" in info, info
        trains(kind, made, plugins)
        if "(cpu f32)" in info:
            double = f"{kind}-{name}-f64.so"
            build(made, "-DTN_REAL=64", "-o", os.path.join(plugins, double))
            trains(kind, made, plugins, "precision.use=f64" if kind == "codec" else "precision=f64", file=double)
        more = globals().get("more_of_" + kind.replace("-", "_"))
        if more:
            more(made, plugins)

    each.__name__ = f"{kind}_in_{LANGUAGE}"
    case(each)


def more_of_sink(made, plugins):
    result = trains("sink", made, plugins)
    with open(os.path.join(result["folder"], "try-sink.tsv"), encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    wanted = [[r["event"], str(r["update"]), "loss", r["loss"]] for r in metrics(result["folder"]) if "loss" in r]
    found = [r[:3] + [float(r[3])] for r in rows[1:] if r[2] == "loss"]
    assert rows[0] == ["event", "update", "name", "value"] and len(wanted) > 100 and found == wanted, rows[:4]


def more_of_scheduler(made, plugins):
    """lr from 0.01 to 0 along (1 - part)^2, the last update at the end."""
    result = trains("scheduler", made, plugins)
    found = [r["adamw.lr"] for r in metrics(result["folder"]) if r["event"] == "train"]
    wanted = [0.01 * (1 - t / (len(found) - 1)) ** 2 for t in range(len(found))]
    assert len(found) > 100 and all(abs(f - w) < 1e-15 for f, w in zip(found, wanted)), found[:3]


def more_of_collective(made, plugins):
    """Two and three processes leave what one does, but for rounding."""
    alone = trains("collective", made, plugins)
    for ranks in (2, 3):
        env = dict(os.environ, TENON_PLUGIN_PATH=plugins, XDG_DATA_HOME=os.path.join(WORK, "share"))
        processes = []
        for rank in range(ranks):
            choice = f"parallel.collective={{use: try-collective, rank: {rank}, ranks: {ranks}, folder: {WORK}}}"
            processes.append(subprocess.Popen(
                [TENON, "run", os.path.join(made["folder"], "try.yaml"), choice, "train.threads=1", "--json", "--runs",
                 os.path.join(WORK, f"runs-{ranks}")], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [p.communicate(timeout=60) for p in processes]
        assert [p.returncode for p in processes] == [0] * ranks, outputs
        result = json.loads(outputs[0][0])
        assert abs(result["test/loss"] - alone["test/loss"]) < 1e-3, (ranks, alone, result)
    assert not glob.glob(os.path.join(WORK, "*my-thing*")) + glob.glob(os.path.join(WORK, "try-collective-*"))


# ---- names and folders ----


def basics():
    @case
    def every_kind_that_is_found_has_a_template():
        kinds = {line.split("/")[0] for line in tenon("list", "--names", path=sys.argv[2]).stdout.splitlines()}
        assert len(kinds) >= 18 and kinds == set(ALL), kinds ^ set(ALL)

    @case
    def names_that_will_not_do_are_refused_with_the_reason():
        before = everything()
        for name, reason in {
            "Foo": "small letters", "a_b": "small letters", "über": "small letters", "a/b": "small letters",
            "9lives": "begins with a letter", "a-": "stands between", "a--b": "stands between", "": "1 to 39",
            "a" * 40: "1 to 39", "double": "word of C or C++", "namespace": "word of C or C++", "tanh": "libm",
            "printf": "a function of that name", "tn-thing": "the host's", "tenon-x": "the host's",
            "momentum": "the template uses that word itself", "piece": None, "adamw": None, "a" * 39: None,
        }.items():
            if reason:
                assert reason in refused("optimizer", name), name
        assert "uses that word itself" in refused("transform", "piece")
        assert "uses that word itself" in refused("activation", "mlp"), "try.yaml would mean another component"
        assert everything() == before, "something was written"

    @case
    def names_that_do():
        for name in ("x9", "a" * 39, "adamw", "piece", "first", "decaying"):  # the last two stand in comments and texts
            made = new("optimizer", name)
            assert os.path.exists(os.path.join(made["folder"], name + ".c"))

    @case
    def kinds_and_languages_are_suggested():
        words = refused("optimiser", "x")
        assert "did you mean 'optimizer'" in words and all(k in words for k in ALL), words
        for kind in ("shared", "c", "c++", "../sink", "", "metric", "meson.build", "k" * 300):
            assert "There are: activation," in refused(kind, "x"), kind
        assert "none of c|c++" in refused("sink", "x", "--lang", "rust")
        assert "takes KIND NAME" in refused("sink")

    @case
    def a_folder_with_something_in_it_is_left_alone():
        folder = os.path.join(WORK, "full")
        os.makedirs(folder)
        with open(os.path.join(folder, "note"), "w") as f:
            f.write("mine")
        before = everything()
        assert "already and not empty" in refused("sink", "x", "--to", folder)
        assert "already and not empty" in refused("sink", "x", "--to", os.path.join(folder, "note"))
        assert "folder above" in refused("sink", "x", "--to", os.path.join(WORK, "none", "x"), code=1)
        for to in ("/", ".", "..", "full/..", ""):
            refused("sink", "x", "--to", to)
        assert everything() == before, "something was written"

    @case
    def an_empty_folder_is_filled_and_modes_are_plain():
        folder = os.path.join(WORK, "empty folder")
        os.mkdir(folder)
        words = tenon("new", "sink", "x9", "--to", folder + "//").stdout
        assert words.startswith(f"{folder}: ") and f"export PKG_CONFIG_PATH='{PKGCONFIG}'" in words, words
        assert f"cd '{folder}'" in words, words
        modes = {f: stat.S_IMODE(os.stat(os.path.join(folder, f)).st_mode) for f in os.listdir(folder)}
        assert modes.pop("build.sh") == modes.pop("test.sh") == 0o755 and set(modes.values()) == {0o644}, modes
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o755

    @case
    def what_can_not_be_finished_leaves_nothing():
        folder = os.path.join(WORK, "closed")
        os.mkdir(folder)
        before = everything()
        limited = ["prlimit", "--fsize=1000", "--", "sh", "-c", 'trap "" XFSZ; exec "$@"', "-"]
        done = subprocess.run([*limited, TENON, "new", "optimizer", "x9", "--to", os.path.join(folder, "x9")],
                              capture_output=True, text=True)
        assert done.returncode == 1 and "can not write" in done.stderr, done
        assert everything() == before, sorted(set(everything()) - set(before))

    @case
    def without_to_it_is_made_here():
        tenon("new", "recompute", "here")
        assert os.path.exists(os.path.join(WORK, "here", "here.c"))

    @case
    def meson_builds_tests_and_installs():
        for kind, language in (("optimizer", "c"), ("sink", "c++")):
            if not shutil.which("meson") or language == "c++" and not shutil.which("c++"):
                continue
            made = new(kind, f"by-meson-{kind}", language=language)
            folder = made["folder"]
            shell("meson", "setup", "build", "--prefix", os.path.join(folder, "root"), "-Dwerror=true",
                  f"-Dlibdir=lib", folder=folder)
            shell("meson", "compile", "-C", "build", folder=folder)
            plugin = os.path.join(folder, "build", made["plugin"])
            assert shown_symbols(plugin) == ["tenon_plugin_v1"]
            log = shell("meson", "test", "-C", "build", folder=folder)
            assert re.search(r"^Ok: +1 *$", log, re.M), log

    @case
    def the_test_of_a_folder_can_fail():
        made = new("optimizer", "goes-wrong")
        source = os.path.join(made["folder"], "goes-wrong.c")
        text = open(source, encoding="utf-8").read()
        with open(source, "w", encoding="utf-8") as f:
            f.write(text.replace('"[0, 1)"', '"[0, 0.5)"'))  # its own default is outside
        build(made)
        words = shell("./test.sh", folder=made["folder"], code=1)
        assert "0.9" in words and "momentum" in words, words


if KINDS:
    if not shutil.which("c++" if LANGUAGE == "c++" else "cc"):
        print(f"no compiler of {LANGUAGE} here", file=sys.stderr)
        sys.exit(77)
    os.mkdir(FOLDERS)
    for each_kind in KINDS:
        kind_case(each_kind)
else:
    os.mkdir(FOLDERS)
    basics()
sys.exit(main())
