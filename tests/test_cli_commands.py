#!/usr/bin/env python3
"""What the program does beside runs: eval, export, install, doctor, help, manual page, completion. See cli.py."""
import fcntl
import glob
import json
import math
import os
import re
import shutil
import stat
import struct
import subprocess
import sys

sys.dont_write_bytecode = True
from cli import BAD, EXPERIMENT, PLUGINS, TENON, WORK, case, main, make_data, run, tenon

AVERAGED = ["+update={use: ema, decay: 0.9, on: {axes: 2}}", "schedule=none", "checkpoint={every: 1 epoch}", "train.epochs=2"]
MADE = {}


def made(*overrides):
    """A run with checkpoints, made once for each list of overrides."""
    if overrides not in MADE:
        MADE[overrides] = run(*AVERAGED, *overrides)[0]
    return MADE[overrides]


def checkpoints(folder):
    return sorted(glob.glob(glob.escape(folder) + "/checkpoints/*.safetensors"))


def tensors(path):
    """A safetensors file by its own rules: {name: (shape, bytes, type)} and the metadata."""
    with open(path, "rb") as f:
        content = f.read()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    data, at = content[8 + size:], 0
    metadata = header.pop("__metadata__")
    for entry in sorted(header.values(), key=lambda e: e["data_offsets"]):
        assert entry["data_offsets"][0] == at, entry
        at = entry["data_offsets"][1]
    assert at == len(data)
    return {k: (e["shape"], data[slice(*e["data_offsets"])], e["dtype"]) for k, e in header.items()}, metadata


def numbers(entry):
    shape, data, dtype = entry
    values = struct.unpack(f"<{math.prod(shape)}{'f' if dtype == 'F32' else 'd'}", data)
    return values


# ---- eval ----


@case
def eval_gives_what_the_run_gave():
    result = made()
    before = sorted(os.listdir(result["folder"]))
    found = json.loads(tenon("eval", result["folder"], "--json").stdout)
    assert found["test/loss"] == result["test/loss"] and found["test/accuracy"] == result["test/accuracy"], found
    assert found["view"] == "eval" and found["updates"] == result["updates"], found
    assert sorted(os.listdir(result["folder"])) == before
    assert f"test/loss      {result['test/loss']:.4f}" in tenon("eval", result["folder"]).stdout


@case
def eval_takes_another_split_view_and_threads():
    folder = made()["folder"]
    found = {json.loads(tenon("eval", folder, *more, "--json").stdout).get(key) for more, key in (
        ((), "test/loss"), (("train",), "train/loss"), (("--view", "train"), "test/loss"))}
    assert len(found) == 3 and None not in found, found
    one = tenon("eval", folder, "--threads", "1", "--json").stdout
    assert one == tenon("eval", folder, "--threads=3", "--json").stdout
    err = tenon("eval", folder, 'no"such\\split', code=2).stderr
    assert 'no"such\\split' in err, err
    assert "none of train|eval" in tenon("eval", folder, "--view", "both", code=2).stderr


@case
def eval_is_for_runs_without_evaluations_too():
    result, _ = run("eval=none", "checkpoint={every: 1 epoch}", "train.epochs=1", "precision={use: f32, storage: bf16, master: false}")
    assert "test/loss" not in result
    assert math.isfinite(json.loads(tenon("eval", result["folder"], "--json").stdout)["test/loss"])


@case
def eval_of_nothing_says_what_is_missing():
    for command in ("eval", "resume"):
        assert "is no folder of a run, which holds experiment.resolved.yaml" in tenon(command, WORK, code=2).stderr
        assert "needed the folder of a run" in tenon(command, WORK + "/nothing", code=2).stderr
        assert "is a file; needed the folder" in tenon(command, __file__, code=2).stderr
    assert "needed the folder of a run, or a checkpoint" in tenon("export", WORK + "/nothing", code=2).stderr
    result, _ = run("train.epochs=1", "checkpoint=none")
    assert "no checkpoint is there" in tenon("eval", result["folder"], code=2).stderr


@case
def a_run_that_has_ended_is_said_to_have():
    assert "the run has ended already" in tenon("resume", made()["folder"], "--quiet").stderr


@case
def a_damaged_checkpoint_is_passed_over():
    folder = os.path.join(WORK, "damaged")
    shutil.copytree(made()["folder"], folder)
    last, before = checkpoints(folder)[-1], checkpoints(folder)[-2]
    with open(last, "r+b") as f:
        f.seek(-3, 2)
        f.write(b"???")
    for command in (["eval", folder, "--json"], ["export", folder, "--json"]):
        done = tenon(*command)
        assert json.loads(done.stdout)["checkpoint"] == before and "can not be used" in done.stderr, done
    for path in checkpoints(folder):
        os.truncate(path, 100)
    for command in ("eval", "export"):
        assert os.path.basename(last) in tenon(command, folder, code=1).stderr


# ---- export ----


def dot(weights, x, bias):
    n = len(x)
    return [sum(w * v for w, v in zip(weights[i * n:(i + 1) * n], x)) + b for i, b in enumerate(bias)]


@case
def another_program_computes_the_same_from_an_export():
    """A forward pass in Python over the test images, from nothing but the exported file."""
    plain = ["data.normalize=unit", "model.normalizer=none", "model.activation=tanh", "model.regularizer=none", "loss.smoothing=0", "precision=f64"]
    result = made(*plain)
    file = os.path.join(WORK, "model of żółw.safetensors")
    tenon("export", result["folder"], file)
    found, metadata = tensors(file)
    assert {dtype for _, _, dtype in found.values()} == {"F64"}
    p = {name: numbers(entry) for name, entry in found.items()}
    with open(os.path.join(WORK, "t10k-images-idx3-ubyte"), "rb") as f:
        images = f.read()[16:]
    loss = 0.0
    for i in range(64):
        x = [v / 255 for v in images[64 * i:64 * i + 64]]
        for layer in ("hidden.0.linear", "hidden.1.linear"):
            x = [math.tanh(v) for v in dot(p[layer + ".weight"], x, p[layer + ".bias"])]
        x = dot(p["head.weight"], x, p["head.bias"])
        loss += math.log(sum(math.exp(v - max(x)) for v in x)) + max(x) - x[i % 4]
    assert abs(loss / 64 - result["test/loss"]) < 1e-9 * result["test/loss"], (loss / 64, result)
    assert metadata["view"] == "eval" and metadata["updates"] == str(result["updates"]), metadata
    with open(os.path.join(result["folder"], "experiment.resolved.yaml"), encoding="utf-8") as f:
        assert metadata["experiment"] == f.read()


@case
def an_export_is_of_either_view_with_statistics():
    result = made("model.normalizer=batchnorm", "eval.refresh=4")
    files = [os.path.join(WORK, view + ".safetensors") for view in ("eval", "train")]
    for view, file in zip(("eval", "train"), files):
        report = json.loads(tenon("export", result["folder"], file, "--view", view, "--json").stdout)
        assert report["view"] == view and report["file"] == file, report
    a, b = (tensors(file)[0] for file in files)
    assert a.keys() == b.keys() and "hidden.0.norm.running_mean" in a
    state, _ = tensors(checkpoints(result["folder"])[-1])
    for name in a:
        source = f"buffers/train/{name}" if "running" in name else f"parameters/{name}"
        seen = f"buffers/eval/{name}" if "running" in name else f"update/ema/average/{name}"
        assert b[name] == state[source]
        assert a[name][1] == state.get(seen, state[source])[1], name
    assert a["head.weight"][1] != b["head.weight"][1] and a["head.bias"][1] == b["head.bias"][1]
    assert a["hidden.0.norm.running_var"][1] != b["hidden.0.norm.running_var"][1]


@case
def what_a_codec_stored_is_exported_as_numbers():
    result = made("precision={use: f32, storage: bf16, master: false}", "~update.ema")
    tenon("export", result["folder"])
    found, _ = tensors(os.path.join(result["folder"], "model.safetensors"))
    assert found["hidden.0.linear.weight"][0] == [24, 64] and found["hidden.0.linear.weight"][2] == "F32"
    stored, _ = tensors(checkpoints(result["folder"])[-1])
    for name, (shape, data, _) in found.items():
        raw = stored["parameters/" + name][1][:2 * math.prod(shape)]
        assert data == b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2)), name


@case
def an_export_needs_no_data_and_takes_one_checkpoint():
    data = os.path.join(WORK, "data of its own")
    os.makedirs(data)
    make_data(data)
    result, _ = run(f'data.folder="{data}"', "train.epochs=1")
    shutil.rmtree(data)
    first = checkpoints(result["folder"])[0]
    report = json.loads(tenon("export", first, os.path.join(WORK, "one.safetensors"), "--json").stdout)
    assert report["checkpoint"] == first and report["updates"] == 0, report
    assert json.loads(tenon("export", result["folder"], "--json").stdout)["updates"] == result["updates"]
    assert data in tenon("eval", result["folder"], code=1).stderr
    assert "name the one to write" in tenon("export", first, code=2).stderr
    assert "is the checkpoint itself" in tenon("export", first, first, code=2).stderr
    assert "can not write" in tenon("export", first, "/nowhere/file", code=1).stderr
    assert "is a folder; name a file" in tenon("export", first, WORK, code=2).stderr
    assert "empty name" in tenon("export", first, "", code=2).stderr
    assert "no checkpoint of this host" in tenon("export", os.path.join(WORK, "one.safetensors"), "x", code=1).stderr


@case
def export_replaces_files_only():
    folder = made()["folder"]
    pipe, link, file = (os.path.join(WORK, name) for name in ("a pipe", "a link", "its file"))
    os.mkfifo(pipe)
    os.symlink(file, link)
    with open(file, "w") as f:
        f.write("older")
    assert "is no regular file" in tenon("export", folder, pipe, code=2).stderr
    assert stat.S_ISFIFO(os.lstat(pipe).st_mode)
    assert json.loads(tenon("export", folder, link, "--json").stdout)["file"] == link
    assert os.path.islink(link) and "head.weight" in tensors(file)[0]


@case
def a_file_has_one_writer():
    folder, file, other = made()["folder"], os.path.join(WORK, "shared.st"), os.path.join(WORK, ".shared.st.new")
    with open(other, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.write("half of another's")
        f.flush()
        assert f"{file}: another process is writing it" in tenon("export", folder, file, code=1).stderr
        with open(other) as kept:
            assert kept.read() == "half of another's"
    tenon("export", folder, file)
    assert "head.weight" in tensors(file)[0] and not os.path.exists(other)


# ---- install ----


def share(name):
    return os.path.join(WORK, name), {"XDG_DATA_HOME": os.path.join(WORK, name)}


def mode(path):
    return os.stat(path).st_mode & 0o7777


@case
def install_puts_a_plugin_where_it_is_found():
    home, env = share("share one")
    source = os.path.join(BAD, "good-one.so")
    names = json.loads(tenon("list", "--json", path=BAD).stdout)
    names = {c["kind"] + "/" + c["name"] for c in names if c["path"] == os.path.realpath(source)}
    done = json.loads(tenon("install", source, "--json", env=env, preexec_fn=lambda: os.umask(0)).stdout)
    target = os.path.join(home, "tenon", "plugins", "good-one.so")
    assert done["path"] == target and {c.split(" ")[0] for c in done["components"]} == names, done
    with open(source, "rb") as a, open(target, "rb") as b:
        assert a.read() == b.read()
    assert mode(target) == 0o644 and mode(os.path.dirname(target)) == 0o755
    assert os.listdir(os.path.dirname(target)) == ["good-one.so"]
    listed = json.loads(tenon("list", "--json", env=env).stdout)
    assert any(c["path"] == target and c["state"] == "found" for c in listed)
    err = tenon("install", source, env=env, code=2).stderr
    assert "is there already" in err and "--force" in err and target in err, err
    tenon("install", source, "--force", env=env)
    err = tenon("install", target, env=env, code=2).stderr
    assert "installed already" in err, err


@case
def install_refuses_what_another_file_has():
    home, env = share("share two")
    source = os.path.join(PLUGINS, "optimizer-adamw.so")
    copy = os.path.join(WORK, "copy.so")
    shutil.copy(source, copy)
    err = tenon("install", copy, env=env, code=2).stderr
    assert "optimizer/adamw" in err and source in err and "--force" in err, err
    assert not os.path.exists(home)
    tenon("install", copy, "--force", env=env)
    assert json.loads(tenon("info", "adamw", "--json", env=env).stdout)["path"] == os.path.join(home, "tenon/plugins/copy.so")


@case
def install_refuses_what_can_not_be_used():
    home, env = share("share three")
    with open(os.path.join(PLUGINS, "optimizer-adamw.so"), "rb") as f:
        content = f.read()
    wrong = {"cut.so": (content[:len(content) // 2], 3, "ELF_TRUNCATED"), "text.so": (b"not a plugin", 3, "NOT_ELF"),
             "plugin.txt": (content, 2, "named *.so"), "empty.so": (b"", 3, "")}
    for name, (data, code, word) in wrong.items():
        path = os.path.join(WORK, name)
        with open(path, "wb") as f:
            f.write(data)
        assert word in tenon("install", path, env=env, code=code).stderr, name
    for name, word in (("isa-unknown.so", "ISA"), ("default-outside.so", "NOTE_INVALID"), ("draft-old.so", "INTERFACE")):
        assert word in tenon("install", os.path.join(BAD, name), env=env, code=3).stderr
    shutil.copy(glob.glob("/lib/*/libm.so.6")[0], os.path.join(WORK, "libm.so"))
    assert "no TENON note" in tenon("install", os.path.join(WORK, "libm.so"), env=env, code=3).stderr
    assert "ENOENT" in tenon("install", "/no/such.so", env=env, code=2).stderr
    os.makedirs(os.path.join(WORK, "folder.so"))
    assert "NOT_REGULAR" in tenon("install", os.path.join(WORK, "folder.so"), env=env, code=3).stderr
    assert not os.path.exists(home), "a refusal left something behind"


@case
def install_does_not_write_where_others_can():
    home, env = share("share four")
    folder = os.path.join(home, "tenon", "plugins")
    os.makedirs(folder)
    os.chmod(folder, 0o777)
    err = tenon("install", os.path.join(BAD, "good-one.so"), env=env, code=3).stderr
    assert "UNTRUSTED_PATH" in err and "chmod go-w" in err and not os.listdir(folder), err
    assert "HOME" in tenon("install", os.path.join(BAD, "good-one.so"), env={"HOME": "x", "XDG_DATA_HOME": "y"}, code=2).stderr


# ---- doctor ----


def examine(*arguments, code=0, **more):
    report = json.loads(tenon("doctor", "--json", *arguments, code=code, **more).stdout)
    assert report["wrong"] == sum(f["state"] == "wrong" for f in report["findings"]), report
    return report["findings"]


def wrong(findings):
    return [f for f in findings if f["state"] == "wrong"]


@case
def doctor_finds_nothing_wrong_here():
    findings = examine()
    topics = {f["topic"] for f in findings}
    assert topics == {"search path", "plugins", "BLAS", "CUDA", "processor", "memory", "disk"}, topics
    assert any("OpenBLAS" in f["found"] for f in findings if f["topic"] == "BLAS")
    assert any(PLUGINS in f["found"] for f in findings)
    assert "nothing is wrong" in tenon("doctor").stdout


@case
def doctor_says_what_mends_the_search_path():
    untrusted = os.path.join(WORK, "open to all")
    os.makedirs(untrusted)
    os.chmod(untrusted, 0o777)
    shutil.copy(os.path.join(BAD, "good-one.so"), untrusted)
    missing = os.path.join(WORK, "it is missing")
    path = f"{untrusted}:{missing}:relative"
    found = wrong(examine(path=path, code=1))
    assert any("not an absolute folder" in f["found"] and "$PWD/relative" in f["fix"] for f in found), found
    assert any(missing in f["found"] and "mkdir -p" in f["fix"] for f in found), found
    fixes = {f["fix"].removeprefix("run: ") for f in found if "UNTRUSTED_PATH" in f["found"]}
    assert len(fixes) == 1, found
    subprocess.run(fixes.pop(), shell=True, check=True)
    os.makedirs(missing)
    assert not wrong(examine(path=f"{untrusted}:{missing}"))
    here = os.path.realpath(__file__)
    found = wrong(examine(path=here, code=1))
    assert any(f["found"] == here + ": is no folder" and "name the folder" in f["fix"] for f in found), found
    text = tenon("doctor", path="relative", code=1).stdout
    assert re.search(r"^WRONG  search path .*relative", text, re.M) and "to mend it:" in text and "1 thing is to be mended" in text, text


@case
def doctor_names_each_refused_plugin():
    folder = os.path.join(WORK, "refused")
    os.makedirs(folder)
    for name in ("isa-unknown.so", "draft-old.so"):
        shutil.copy(os.path.join(BAD, name), folder)
    shutil.copy(os.path.join(PLUGINS, "optimizer-adamw.so"), folder)
    with open(os.path.join(folder, "text.so"), "w") as f:
        f.write("no plugin")
    findings = examine(path=folder, code=1)
    for name in ("isa-unknown.so", "draft-old.so", "text.so"):
        assert sum(name in f["found"] and f["state"] == "wrong" for f in findings) == 1, (name, findings)
    assert any("rebuild" in f["fix"] for f in wrong(findings))
    assert any(f["state"] == "note" and "adamw" in f["found"] and "is not used" in f["found"] for f in findings)


@case
def doctor_looks_at_the_disk():
    found = wrong(examine("--runs", "/dev/null/runs", code=1))
    assert len(found) == 1 and found[0]["topic"] == "disk" and "--runs" in found[0]["fix"], found
    assert any(WORK in f["found"] for f in examine("--runs", os.path.join(WORK, "a", "b")) if f["topic"] == "disk")


@case
def doctor_asks_the_cuda_driver():
    """With a driver of our own making, whose answers are known."""
    if not glob.glob(os.path.join(glob.escape(PLUGINS), "*-cuda.so")):
        assert any("not looked for" in f["found"] for f in examine() if f["topic"] == "CUDA")
        return
    for count, code, state, word in ((2, 0, "ok", "2 devices, the first is Test 100"), (0, 100, "note", "finds no device"),
                                     (0, 803, "wrong", "cuInit returned 803"), (0, 34, "wrong", "cuInit returned 34")):
        folder = os.path.join(WORK, f"driver-{count}-{code}")
        os.makedirs(folder)
        source = os.path.join(folder, "driver.c")
        with open(source, "w") as f:
            f.write(f"""int cuInit(unsigned f) {{ return f ? 1 : {code}; }}
int cuDeviceGetCount(int *n) {{ *n = {count}; return 0; }}
int cuDriverGetVersion(int *v) {{ *v = 12040; return 0; }}
int cuDeviceGet(int *d, int i) {{ *d = i + 7; return 0; }}
int cuDeviceGetName(char *to, int n, int d) {{
    const char *name = d == 7 ? "Test 100" : "wrong";
    for (int i = 0; i < n && (to[i] = name[i]); i++)
        ;
    return 0;
}}
""")
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", os.path.join(folder, "libcuda.so.1")], check=True)
        env = {"LD_LIBRARY_PATH": folder + ":" + os.environ.get("LD_LIBRARY_PATH", "")}
        env.update({k: os.environ[k] for k in ("CUDA_VISIBLE_DEVICES",) if k in os.environ})
        found = [f for f in examine(env=env, code=int(state == "wrong")) if f["topic"] == "CUDA"]
        assert len(found) == 1 and found[0]["state"] == state and word in found[0]["found"], found


# ---- info ----


@case
def info_knows_the_file_and_the_state():
    info = json.loads(tenon("info", "adamw", "--json").stdout)
    xxh = shutil.which("xxh128sum")
    if xxh:
        assert subprocess.run([xxh, info["path"]], capture_output=True, text=True).stdout.split()[0] == info["xxh128"]
    assert re.fullmatch("[0-9a-f]{32}", info["xxh128"]) and info["state_bytes"] == 8, info
    text = tenon("info", "adamw").stdout
    for word in (info["xxh128"], info["path"], "up to 8 bytes an element", "grain", "stage", "Apache-2.0", "arXiv:1711.05101",
                 "[0, 1)", "second moment", info["version"], "formula"):
        assert word in text, word
    assert "taps" in tenon("info", "kfac").stdout and "(global)" in tenon("info", "clip-percentile").stdout
    assert "state_bytes" not in json.loads(tenon("info", "gelu", "--json").stdout)


@case
def list_gives_bare_names():
    names = tenon("list", "--names").stdout.split("\n")[:-1]
    listed = {c["kind"] + "/" + c["name"] for c in json.loads(tenon("list", "--json").stdout)}
    assert set(names) == listed and len(names) == len(set(names))
    assert all(n.startswith("loss/") for n in tenon("list", "loss", "--names").stdout.split())


# ---- help, manual page, completion ----


def commands():
    return re.findall(r"^  ([a-z]+) ", tenon("help").stdout, re.M)


@case
def help_is_there_for_every_command():
    assert {"list", "info", "run", "resume", "eval", "export", "install", "check", "bench", "doctor", "completion", "help"} <= set(commands())
    for command in commands():
        text = tenon("help", command).stdout
        assert text == tenon(command, "--help").stdout == tenon(command, "-h").stdout
        assert text.startswith(f"usage: tenon {command}") and "--help" in text
    assert tenon("-h").stdout == tenon("--help").stdout == tenon("help").stdout
    assert tenon("--version").stdout.startswith("tenon ")


@case
def what_is_unknown_is_suggested():
    for arguments, word in ((["rnu"], 'mean "run"'), (["help", "evla"], 'mean "eval"'), (["list", "--jsno"], 'mean "--json"'),
                            (["run", "x", "--thread", "3"], "no option --thread"), (["list", "--runs", "x"], "takes no such option"),
                            (["list", "-j"], "no option -j"), (["eval", "r", "--threads"], "needs a value"),
                            (["list", "--json=yes"], "takes no value"), (["eval", "r", "--threads=-1"], "no whole number"),
                            (["eval", "r", "--threads", "99999999999999999999"], "is too large"),
                            (["list", "OPTIMIZER"], "mean 'optimizer'"), (["info", "ADAMW"], "mean 'adamw'"),
                            (["bench", "gemm", "adamw"], "bench gemm takes no links"), (["bench", "layer", "--costs"], "bench layer takes no"),
                            (["run", EXPERIMENT, "--cfg", "--json"], "--cfg prints YAML"),
                            (["install"], "install takes FILE.so"), (["doctor", "x"], "doctor takes nothing"),
                            (["completion", "tcsh"], "bash, zsh and fish")):
        err = tenon(*arguments, code=2).stderr
        assert word in err, (arguments, err)
    assert "--runs" not in tenon("resume", "x", "--cfg", code=2).stdout


@case
def options_may_stand_anywhere():
    kinds = tenon("list", "--json", "loss").stdout
    assert kinds == tenon("list", "loss", "--json").stdout == tenon("list", "--json", "--", "loss").stdout
    assert "no component of the kind '--json'" in tenon("list", "--", "--json", code=2).stderr


@case
def the_manual_page_is_clean():
    page = tenon("help", "--man").stdout
    for command in commands():
        assert f".It Ic {command}" in page
        for option in re.findall(r"^  --([a-z]+)", tenon("help", command).stdout, re.M):
            assert f".It Fl \\-{option}" in page
    if shutil.which("mandoc"):
        lint = subprocess.run(["mandoc", "-Tlint"], input=page, capture_output=True, text=True)
        assert lint.returncode == 0 and not lint.stdout, lint.stdout
    with open(os.path.join(os.path.dirname(TENON), "tenon.1"), encoding="utf-8") as f:
        assert f.read() == page


def complete_in_bash(*words):
    script = tenon("completion", "bash").stdout + """
compopt() { :; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tenon "$1" "${COMP_WORDS[COMP_CWORD]}" ""
printf '%s\\n' "${COMPREPLY[@]}"
"""
    env = {k: v for k, v in os.environ.items() if k != "TENON_PLUGIN_PATH"}
    done = subprocess.run(["bash", "-c", script, TENON, TENON, *words], capture_output=True, text=True, cwd=WORK, env=env)
    assert not done.stderr, done.stderr
    return set(done.stdout.split("\n")) - {""}


@case
def bash_completes_everything():
    assert complete_in_bash("") >= set(commands())
    assert complete_in_bash("ev") == {"eval"}
    assert complete_in_bash("list", "op") == {"optimizer"}
    assert complete_in_bash("info", "adamw") == {"adamw"}
    assert complete_in_bash("info", "optimizer/adamw") == {"optimizer/adamw"}
    assert complete_in_bash("bench", "") == {"memory", "update", "gemm", "layer"}
    assert "lion" in complete_in_bash("bench", "update", "li")
    assert complete_in_bash("eval", "x", "--view", "") == {"train", "eval"}
    assert complete_in_bash("list", "--js") == {"--json"}
    assert complete_in_bash("help", "ins") == {"install"}
    folder = os.path.join(WORK, "completed")
    os.makedirs(os.path.join(folder, "sub folder"))
    for name in ("a b.yaml", "c.yml", "d.txt", "e.so"):
        open(os.path.join(folder, name), "w").close()
    assert complete_in_bash("run", "completed/") == {"completed/sub folder", "completed/a b.yaml", "completed/c.yml"}
    assert complete_in_bash("install", "completed/") == {"completed/sub folder", "completed/e.so"}
    assert complete_in_bash("resume", "completed/") == {"completed/sub folder"}
    assert complete_in_bash("run", "x", "--runs", "completed/") == {"completed/sub folder"}


@case
def completions_are_what_shells_can_read():
    for shell, arguments in (("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["-n"])):
        script = tenon("completion", shell).stdout
        for command in commands():
            assert re.search(rf"\b{command}\b", script), (shell, command)
        if shutil.which(shell):
            path = os.path.join(WORK, "completion." + shell)
            with open(path, "w", encoding="utf-8") as f:
                f.write(script)
            done = subprocess.run([shell, *arguments, path], capture_output=True, text=True)
            assert done.returncode == 0 and not done.stderr, done.stderr


@case
def fish_completes():
    if not shutil.which("fish"):
        return
    env = {**os.environ, "HOME": WORK, "PATH": os.path.dirname(TENON) + ":" + os.environ["PATH"]}
    env.pop("TENON_PLUGIN_PATH", None)
    for line, wanted in (("tenon ev", {"eval"}), ("tenon list optimi", {"optimizer"}), ("tenon info adamw", {"adamw"}),
                         ("tenon eval r --view ", {"train", "eval"})):
        script = tenon("completion", "fish").stdout + f'\ncomplete -C "{line}"\n'
        done = subprocess.run(["fish", "-N", "-c", script], capture_output=True, text=True, env=env, cwd=WORK)
        found = {word.split("\t")[0] for word in done.stdout.split("\n")} - {""}
        assert found == wanted, (line, found, done.stderr)


if __name__ == "__main__":
    sys.exit(main())
