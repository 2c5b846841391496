#!/usr/bin/env python3
"""Experiments that are wrong, and what the command line must not depend on. The cases CFG-* are of reports against
other programs. See cli.py."""
import glob
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys

sys.dont_write_bytecode = True
from cli import EXPERIMENT, PLUGINS, RUNS, SOURCE, TENON, WORK, case, main, make_data, run, tenon

ODD = "dir with space/żółw 漢字 Ωμέγα"


def text():
    with open(EXPERIMENT, encoding="utf-8") as f:
        return f.read()


def refuse(content, *words, code=2, name="wrong.yaml"):
    """Runs an experiment of that content, which is refused with all the words; stderr."""
    path = os.path.join(WORK, name)
    with open(path, "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())
    runs = os.path.join(WORK, "none")
    err = tenon("run", path, "--runs", runs, code=code).stderr
    for word in (name, *words):
        assert word in err, (word, err)
    assert not os.path.exists(runs)
    return err


def place(content, part, by=0):
    """Where a part of a text begins: "6:20"."""
    at = content.index(part) + by
    return f":{content.count(chr(10), 0, at) + 1}:{at - (content.rfind(chr(10), 0, at) + 1) + 1}:"


def replaced(part, by):
    wrong = text().replace(part, by, 1)
    assert wrong != text()
    return wrong


# ---- CFG-01: a decimal comma ----


def comma_locale():
    """A locale whose decimal point is a comma, made here; the environment that selects it."""
    folder = os.path.join(WORK, "locales")
    if not os.path.isdir(folder):
        os.makedirs(folder)
        with open(folder + "/map", "w") as f:
            f.write("<code_set_name> UTF-8\n<mb_cur_max> 1\n<comment_char> %\n<escape_char> /\nCHARMAP\n")
            f.writelines(f"<U{c:04X}> /x{c:02x} c\n" for c in range(128))
            f.write("END CHARMAP\n")
        with open(folder + "/source", "w") as f:
            f.write('LC_NUMERIC\ndecimal_point ","\nthousands_sep "."\ngrouping 3;3\nEND LC_NUMERIC\n')
        subprocess.run(["localedef", "-c", "-f", "map", "-i", "source", "./de_DE.UTF-8"], cwd=folder, capture_output=True)
    return {"LOCPATH": folder, "LC_ALL": "", "LC_NUMERIC": "de_DE.UTF-8", "LANG": "C"}


def locale_plugin():
    """sgd under another name, in a file that takes the environment's locale when it is mapped."""
    folder = os.path.join(WORK, "plugins of locales")
    if not os.path.isdir(folder):
        os.makedirs(folder, 0o755)
        with open(os.path.join(SOURCE, "plugins/optimizer/sgd.c")) as f:
            source = f.read().replace("sgd", "commas")
        source += """
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void take_locale(void)
{
    if (!setlocale(LC_ALL, "") && !setlocale(LC_NUMERIC, ""))
        abort();
    locale_t own = uselocale(LC_GLOBAL_LOCALE);
    fprintf(stderr, "half is %g\\n", 0.5);
    uselocale(own);
}
"""
        with open(folder + "/commas.c", "w") as f:
            f.write(source)
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", f"-I{SOURCE}/abi",
                        f"-I{SOURCE}/sdk", "commas.c", "-o", "optimizer-commas.so", "-lm"], cwd=folder, check=True)
    return folder


@case
def cfg_01_a_decimal_comma_changes_nothing():
    written, outputs = [], []
    for env, half in ((comma_locale(), "half is 0,5"), ({"LC_ALL": "C"}, "half is 0.5")):
        runs = os.path.join(WORK, "locale-" + half[-3:])
        done = tenon("run", EXPERIMENT, "update.rule={use: commas, lr: 0.125, momentum: 0.9, weight_decay: 1e-3}", "sinks=none",
                     "checkpoint={every: 1 epoch}", "train.epochs=1", "--runs", runs, "--json", path=locale_plugin(), env=env)
        assert half in done.stderr, done.stderr # the plugin has taken the locale: else this test shows nothing
        folder = json.loads(done.stdout)["folder"]
        tenon("export", folder, path=locale_plugin(), env=env)
        evaluated = tenon("eval", folder, "--json", path=locale_plugin(), env=env).stdout
        outputs.append([re.sub(r'"(folder|checkpoint)":"[^"]*",?', "", out) for out in (done.stdout, evaluated)])
        files = [os.path.join(folder, name) for name in ("experiment.resolved.yaml", "model.safetensors")]
        written.append([open(path, "rb").read() for path in files + sorted(glob.glob(folder + "/checkpoints/*"))])
    assert written[0] == written[1] and len(written[0]) > 2
    assert outputs[0] == outputs[1]
    assert b"lr: 0.125" in written[0][0] and b"weight_decay: 0.001" in written[0][0], written[0][0]


@case
def cfg_01_records_have_points():
    lines = []
    text = tenon("run", EXPERIMENT, "update.rule={use: commas, lr: 0.125}", "--runs", RUNS, path=locale_plugin(), env=comma_locale())
    assert re.search(r"^test/loss +0\.\d+$", text.stdout, re.M) and "0," not in text.stderr.replace("half is 0,5", ""), text
    for env in (comma_locale(), {"LC_ALL": "C"}):
        _, records = run("update.rule={use: commas, lr: 0.125}", "train.epochs=1", path=locale_plugin(), env=env)
        lines.append([{k: v for k, v in r.items() if k != "time"} for r in records])
    assert lines[0] == lines[1]


# ---- CFG-02: numbers ----


def resolved_value(override, key):
    done = tenon("run", EXPERIMENT, override, "--cfg")
    return re.search(rf"\b{key}: ([^,}}\n]+)", done.stdout).group(1)


@case
def cfg_02_numbers_that_are_numbers():
    for written in ("1e-3", "1E-3", "1.0e-3", "+1e-3", "0.001"):
        assert float(resolved_value(f"update.rule.lr={written}", "lr")) == 0.001, written
    assert float(resolved_value("update.rule.lr=0x10", "lr")) == 16
    assert resolved_value("data.batch=0x10", "batch") == "16"
    done = tenon("run", EXPERIMENT, "update.rule.lr=5e-324", "precision=f64", "--cfg").stdout
    assert float(re.search(r"lr: ([^,}]+)", done).group(1)) == 5e-324


@case
def cfg_02_numbers_that_are_none():
    for written, words in ((".5", ["'.5'", "digit on both sides"]), ("1.", ["'1.'", "digit on both sides"]),
                           ("1_000e-6", ["'1_000e-6'", "without '_'"]), ("1e400", ["'1e400'", "does not fit"]),
                           ("inf", ["'inf'", "[0, inf)"]), ("nan", ["'nan'", "[0, inf)"]), ('"1e-3"', ["lr", "real", "quotes"]),
                           ("1,5", []), ("0,5", []), ("1e", ["'1e'"]), ("--1", ["'--1'"]), ("0x", ["'0x'"]), ("5e-324", ["0 in f32"])):
        wrong = replaced("lr: 1e-2", f"lr: {written}")
        err = refuse(wrong, *words)
        if "," not in written: # a comma ends the value, and begins another key
            assert place(wrong, f"lr: {written}", 4 + (written[0] == '"')) in err, (written, err)
            assert err.rstrip().endswith("^"), err


@case
def cfg_02_integers():
    for written in ("1e2", "1.0", "16.", "1_6", '"16"', "sixteen", "99999999999999999999", "-1", "0", "0x1p4"):
        wrong = replaced("batch: 16", f"batch: {written}")
        err = refuse(wrong, "batch")
        assert place(wrong, f"batch: {written}", 7 + (written[0] == '"')) in err, err


# ---- CFG-04: keys ----


@case
def cfg_04_unknown_keys():
    for wrong, key, words in (
            (replaced("lr: 1e-2", "learning_rte: 0.5"), "learning_rte", ["adamw"]),
            (replaced("max_norm", "max_nrom"), "max_nrom", ["clip-norm", "did you mean 'max_norm'"]),
            (replaced("epochs: 4", "epoch: 4"), "epoch: 4", ["train", "did you mean 'epochs'"]),
            (replaced("seed: 1", "batch: 16"), "batch: 16}\neval", ["train"]),
            (replaced("lr: 1e-2", "momentum: 0.9"), "momentum", ["adamw"]),
            (text() + "optimizer: {lr: 1}\n", "optimizer", ["the experiment", "known: name, data"]),
            (replaced("eval:", "evl:"), "evl:", ["did you mean 'eval'"]),
            (replaced("widths:", "width:"), "width:", ["mlp", "did you mean 'widths'"])):
        err = refuse(wrong, f"unknown key '{key.split(':')[0]}'", *words)
        assert place(wrong, key) in err, err


@case
def cfg_04_a_key_given_twice():
    for wrong, key in ((replaced("lr: 1e-2", "lr: 1e-2, lr: 1e-3"), "lr: 1e-3"), (text() + "name: again\n", "name: again"),
                       (replaced("max_norm: 1.0", "max_norm: 1.0, max-norm: 2.0"), "max-norm")):
        assert place(wrong, key) in refuse(wrong, "given twice"), wrong


# ---- CFG-05: paths ----


def odd_places():
    """The experiment, its data and its plugins, all in a folder of an odd name."""
    folder = os.path.join(WORK, ODD)
    if not os.path.isdir(folder):
        os.makedirs(folder)
        make_data(folder)
        shutil.copytree(PLUGINS, os.path.join(folder, "plugins"), ignore=shutil.ignore_patterns("*.p", "*-f64.so"))
        with open(os.path.join(folder, "e.yaml"), "w", encoding="utf-8") as f:
            f.write(text().replace(f'"{WORK}"', f'"{folder}"'))
    return folder


@case
def cfg_05_spaces_and_letters_in_every_path():
    folder = odd_places()
    plugins = os.path.join(folder, "plugins")
    more = {"path": plugins}
    done = tenon("run", os.path.join(folder, "e.yaml"), "train.epochs=1", "checkpoint={every: 1 epoch}", "--runs", folder + "/runs",
                 "--json", **more)
    result = json.loads(done.stdout)
    assert result["folder"].startswith(folder + "/runs/"), result
    assert "go on" not in done.stderr
    assert json.loads(tenon("eval", result["folder"], "--json", **more).stdout)["test/loss"] == result["test/loss"]
    os.remove(sorted(glob.glob(glob.escape(result["folder"]) + "/checkpoints/*"))[-1])
    assert json.loads(tenon("resume", result["folder"], "--json", **more).stdout)["test/loss"] == result["test/loss"]
    assert json.loads(tenon("export", result["folder"], "--json", **more).stdout)["file"] == result["folder"] + "/model.safetensors"
    with open(result["folder"] + "/environment.json", encoding="utf-8") as f:
        paths = {plugin["path"] for plugin in json.load(f)["plugins"]}
    assert paths and all(os.path.dirname(p) == plugins for p in paths), paths
    assert plugins + "/optimizer-adamw.so" in tenon("info", "adamw", **more).stdout


@case
def cfg_05_names_that_are_only_bytes():
    runs = os.path.join(os.fsencode(WORK), b"r\xff\n\xc5\xbc")
    for name in (b"with\nnewline.yaml", b"not\xff\xfeutf-8.yaml", b"x" * 240 + b".yaml", b"'quote\" $(x).yaml", b"-dash.yaml"):
        path = os.path.join(os.fsencode(WORK), name)
        shutil.copy(EXPERIMENT, path)
        result = json.loads(tenon("run", path, "train.epochs=1", "--runs", runs, "--json").stdout)
        folder = max(glob.glob(glob.escape(runs) + b"/*"), key=os.path.getmtime)
        tenon("resume", folder, "--quiet")
        assert result["updates"] == 13
        os.remove(path)
        shutil.rmtree(runs)
    assert b"no\xffsuch".decode("utf-8", "surrogateescape") in tenon("run", b"no\xffsuch.yaml", code=2).stderr


@case
def cfg_05_a_path_of_300_bytes():
    deep = os.path.join(WORK, "d" * 100, "e" * 100)
    os.makedirs(deep)
    path = os.path.join(deep, "f" * 80 + ".yaml")
    assert len(path) > 300
    shutil.copy(EXPERIMENT, path)
    result = json.loads(tenon("run", path, "train.epochs=1", "--runs", os.path.join(deep, "r" * 90), "--json").stdout)
    assert len(result["folder"]) > 300
    tenon("resume", result["folder"], "--quiet")


@case
def messages_hold_no_control_characters():
    for odd in ("\\e[31m", "\\x7F", "\\u009B31m", "\\a"):
        err = refuse(replaced("use: cross-entropy", f'use: "x{odd}y"'), "no loss is called 'x?")
        assert not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f]", err.replace("\t", "")), repr(err)


@case
def a_message_comes_in_one_piece():
    ours, stderr = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    assert subprocess.run([TENON, "info", "nothing-of-the-kind"], stderr=stderr, cwd=WORK).returncode == 2
    piece = ours.recv(4096)
    assert piece.startswith(b"tenon: no component named 'nothing-of-the-kind'") and piece.endswith(b"\n"), piece


@case
def cfg_05_texts_in_an_experiment_are_utf_8():
    wrong = text().encode().replace(b"name: small", b'name: "sm\xffll"')
    assert ":1:10:" in refuse(wrong, "0xFF is not UTF-8")


# ---- experiments that are none ----


@case
def wrong_types_have_a_place():
    for part, by, words in (("lr: 1e-2", "lr: [1, 2]", ["lr", "a number"]), ("lr: 1e-2", "lr: {use: x}", ["lr"]),
                            ("widths: [24, 12]", "widths: [24, wide]", ["widths", "wide"]), ("smoothing: 0.1", "smoothing: yes", ["yes"]),
                            ("max_norm: 1.0", "max_norm: ", ["max_norm"]), ("{epochs: 4, seed: 1}", "5", ["train"]),
                            ("use: layernorm", "use: [layernorm]", []), ("p: 0.1", "p: 1.5", ["[0, 1]"]),
                            ("every: 1 epoch", "every: 1 parsec", ["every", "1 parsec"]), ("seed: 1", "seed: -1", ["[0, inf)"])):
        if part in text():
            err = refuse(replaced(part, by), *words)
            assert re.search(r"wrong\.yaml:\d+:\d+: ", err) and "^" in err, err


@case
def anchors_that_hold_themselves():
    for content in ("a: &x [*x]\n", "a: &x {b: *x}\n", "a: &x [1, [2, {c: *x}]]\n", "a: *nowhere\n"):
        assert "wrong.yaml:1:" in refuse(content), content
    assert "within what it names" in refuse("a: &x [*x]\n")


@case
def anchors_that_multiply():
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 24):
        lines.append(f"{chr(97 + i)}: &{chr(97 + i)} [" + ", ".join(["*" + chr(96 + i)] * 9) + "]")
    refuse("\n".join(lines), "aliases count each time")


@case
def an_anchor_that_is_fine_is_taken():
    good = os.path.join(WORK, "anchor.yaml")
    with open(good, "w", encoding="utf-8") as f:
        f.write(replaced("max_norm: 1.0", "max_norm: &one 1.0").replace("lr: 1e-2", "lr: *one"))
    assert re.search(r"max_norm: 1\b.*lr: 1\b", tenon("run", good, "--cfg").stdout, re.S)


@case
def files_that_are_too_large_or_too_deep():
    refuse(b"#" * 10_000_000, "10000000 bytes", "at most 1048576")
    refuse(text().encode() + b"#" * 10_000_000, "at most 1048576")
    refuse("[" * 100_000, "levels deep")
    refuse("a: " * 50_000)


@case
def files_that_are_no_text():
    with open(TENON, "rb") as f:
        refuse(f.read(300_000), "is a control character")
    refuse(bytes(range(128, 256)) * 10, "not UTF-8")
    refuse(b"name: a\0b\n", "0x00 is a control character")
    refuse(text().encode("utf-16"), "not UTF-8")
    refuse("", "an experiment is a mapping")
    refuse("just a line\n", "an experiment is a mapping")
    refuse("- a\n- b\n", "an experiment is a mapping")
    err = refuse(b"name: \x1b[31m\n", "0x1B is a control character")
    assert "\x1b" not in err


@case
def files_that_can_not_be_read():
    assert "No such file" in tenon("run", "missing.yaml", code=2).stderr
    err = tenon("run", EXPERIMENT, "data={use: csv, train: a/missing.csv}", code=1).stderr
    assert "a/missing.csv: No such file or directory; the path is from the current folder on: resume a run where it began" in err, err
    assert "a directory" in tenon("run", WORK, code=2).stderr
    assert tenon("run", "", code=2).stderr
    os.mkfifo(os.path.join(WORK, "fifo.yaml"))
    assert "FIFO" in tenon("run", "fifo.yaml", code=2).stderr
    assert "device" in tenon("run", "/dev/zero", code=2).stderr
    os.symlink("loop.yaml", os.path.join(WORK, "loop.yaml"))
    assert "loop.yaml" in tenon("run", "loop.yaml", code=1).stderr
    closed = os.path.join(WORK, "closed.yaml")
    shutil.copy(EXPERIMENT, closed)
    os.chmod(closed, 0)
    if not os.access(closed, os.R_OK): # root reads all
        assert "Permission denied" in tenon("run", closed, code=1).stderr


@case
def every_byte_lost_is_survived():
    """Cut at each byte, the experiment is refused or read, and nothing worse."""
    whole = text().encode()
    path = os.path.join(WORK, "cut.yaml")
    for at in range(0, len(whole), 7):
        with open(path, "wb") as f:
            f.write(whole[:at])
        done = subprocess.run([TENON, "run", path, "--cfg"], capture_output=True, cwd=WORK,
                              env={k: v for k, v in os.environ.items() if k != "TENON_PLUGIN_PATH"})
        assert done.returncode in (0, 2), (at, done)
        assert done.returncode == 0 or b"cut.yaml" in done.stderr


@case
def overrides_have_places_too():
    for override, words in (("update.rule.lr=.5", ["update.rule.lr=.5", "digit on both sides"]), ("=3", []), ("update.rule.lr", []), ("~nothing", ["nothing"]),
                            ("update.rle.lr=1", ["rule"]), ("data.batch=[", []), ("", [])):
        err = tenon("run", EXPERIMENT, override, "--cfg", code=2).stderr
        for word in words:
            assert word in err, (override, err)


@case
def a_number_is_the_same_from_the_command_line():
    assert math.isclose(float(resolved_value("update.rule.lr=3e-4", "lr")), 3e-4, rel_tol=0)


if __name__ == "__main__":
    sys.exit(main())
