#!/usr/bin/env python3
"""`tenon range`: the report, the plot, the picture, what is refused. See cli.py."""
import fcntl
import json
import math
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
import xml.etree.ElementTree as xml

sys.dont_write_bytecode = True
from cli import EXPERIMENT, TENON, WORK, case, main, run, tenon

SVG = "{http://www.w3.org/2000/svg}"
SYNTHETIC = ['data={use: synthetic, task: blobs, batch: 16}']


def report(*arguments, **more):
    return json.loads(tenon("range", EXPERIMENT, *arguments, "--json", **more).stdout)


@case
def the_table_is_that_of_a_run_with_the_same_schedule():
    """The run has the rates by a schedule, and its own folder and evaluations; the range test has neither."""
    found = report("--from", "1e-4", "--to", "1e-1", "--steps", "12", "--smooth", "0")
    assert "runs" not in os.listdir(WORK)
    assert found["columns"] == ["update", "rate", "loss", "smoothed"] and found["ended"] == "steps", found
    assert found["rows"] == [{"row": "rule.lr", "factor": 1}] and found["ramp"] == "geometric", found
    assert [p[0] for p in found["points"]] == list(range(1, 13))
    assert found["points"][0][1] == 1e-4 and found["points"][-1][1] == 0.1
    _, records = run("schedule={rule.lr: {use: geometric, start: 1e-4, end: 0.1, steps: 11}}", "~train.epochs", "+train.steps=12")
    trained = [r for r in records if r["event"] == "train"]
    assert len(trained) == 12
    for point, record in zip(found["points"], trained):
        assert abs(point[1] - record["rule.lr"]) < 1e-12 * point[1], (point, record)
        assert abs(point[2] - record["loss"]) < 1e-6 * point[2], (point, record)
        assert point[2] == point[3]


@case
def a_synthetic_set_gives_a_sensible_rate():
    found = report(*SYNTHETIC, "train.seed=3")
    assert found["ended"] in ("stop", "steps") and 1e-4 < found["steepest"] < 1, found
    assert found["steepest"] < found["minimum"] <= 10 and found["tenth"] == found["minimum"] / 10, found
    assert found == report(*SYNTHETIC, "train.seed=3", "train.threads=2"), "two times, two results"
    assert found != report(*SYNTHETIC, "train.seed=4")


@case
def the_plot_is_plain_text_of_72_columns():
    text = tenon("range", EXPERIMENT, *SYNTHETIC).stdout
    assert "\033" not in text and text.isascii()
    plot = [line for line in text.splitlines() if line[8:9] in ("|", "+") and line[:8].strip(" .0123456789e+-") == ""]
    assert len(plot) == 17 and max(map(len, plot)) == 72, (plot, text)
    for word in ("rule.lr rises from 1e-07 to 10", "steepest", "tenth", "1e-05"):
        assert word in text, text
    found, curve = report(*SYNTHETIC), "\n".join(line[9:] for line in plot)
    assert all(curve.count(letter) == 1 for letter in "SM"), text
    column = next(line.index("M") for line in plot if "M" in line[9:]) - 9
    assert abs(found["minimum"] - 1e-7 * 10 ** (8 * column / 62)) < 0.2 * found["minimum"], (found, column)
    assert f"{found['steepest']:.3g}" in text and f"{found['tenth']:.3g}" in text


@case
def the_plot_is_as_wide_as_the_terminal():
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    done = subprocess.Popen([TENON, "range", EXPERIMENT, "--steps", "5"], stdout=slave, stderr=subprocess.PIPE, cwd=WORK)
    os.close(slave)
    text = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:
            break
        if not piece:
            break
        text += piece
    assert done.wait() == 0, done.stderr.read()
    assert max(len(line.rstrip()) for line in text.decode().splitlines() if line[8:9] in ("|", "+")) == 100, text


@case
def the_picture_is_well_formed_and_whole():
    file = os.path.join(WORK, "range of żółw.svg")
    with open(file, "w") as f:
        f.write("older")
    found = report(*SYNTHETIC, 'name="a <b> & \\"c\\""', "--svg", file)
    root = xml.parse(file).getroot()
    assert root.tag == SVG + "svg" and root.get("version") == "1.1"
    lines = [[tuple(map(float, p.split(","))) for p in line.get("points").split()] for line in root.iter(SVG + "polyline")]
    assert [len(line) for line in lines] == [len(found["points"])] * 2
    for (x, _), (_, rate, _, _) in zip(lines[1], found["points"]):
        assert abs(x - (70 + 630 * (math.log10(rate) + 7) / 8)) < 0.06, (x, rate)
    lowest = max(range(len(lines[1])), key=lambda i: lines[1][i][1])
    assert found["points"][lowest][3] <= min(p[3] for p in found["points"]) * 1.01
    words = [t.text for t in root.iter(SVG + "text")]
    assert words[0] == 'a <b> & "c": loss over rule.lr', words
    assert any(w.startswith("steepest ") for w in words) and any(w.startswith("tenth ") for w in words), words
    assert "can not write" in tenon("range", EXPERIMENT, "--svg", "/nowhere/x.svg", code=1).stderr


@case
def a_stopped_one_leaves_no_picture():
    file = os.path.join(WORK, "none.svg")
    process = subprocess.Popen([TENON, "range", EXPERIMENT, "--steps", "1000000", "--stop", "inf", "--to", "1e-6", "--svg", file],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=WORK)
    until = time.time() + 20
    while not os.path.exists(os.path.join(WORK, ".none.svg.new")) and time.time() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and not out and b"stopped on request" in err, (process.returncode, out, err)
    assert not os.path.exists(file) and not os.path.exists(os.path.join(WORK, ".none.svg.new"))


@case
def divergence_is_no_failure():
    found = report("update={use: sgd, as: rule}", "--to", "1e38", "--stop", "inf", "--steps", "60")
    assert found["ended"] == "diverged" and len(found["points"]) < 60, found
    done = tenon("range", EXPERIMENT, "update={use: sgd, as: rule}", "--to", "1e38", "--stop", "inf", "--steps", "60")
    assert "diverged" in done.stdout and not done.stderr, done


@case
def what_is_wrong_is_said():
    for arguments, word in ((("--from", "x"), 'is no number'), (("--to", "1e-8"), "the first below the second"), (("--smooth", "1"), "smooth 1"),
                            (("--row", "rul.lr"), "did you mean 'rule'"), (("--row", "model.widths"), "only real rows change"), (("--stop", "1"), "stop 1"),
                            (("--steps", "0"), "whole number above 0"), (("--row", "rule.beta1"), "outside its range"), (("--linaer",), '"--linear"'),
                            (("--lang", "c"), "takes no such option")):
        err = tenon("range", EXPERIMENT, *arguments, code=2).stderr
        assert word in err, (arguments, err)
    assert "no number" not in tenon("new", "optimizer", "my-range-rule", "--to", os.path.join(WORK, "a folder")).stderr


if __name__ == "__main__":
    main()
