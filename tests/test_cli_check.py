#!/usr/bin/env python3
"""`tenon check` as a program: exit codes, table, JSON, the list, options. See cli.py; the rules: test_check.c."""
import glob
import json
import os
import sys

sys.dont_write_bytecode = True
from cli import BAD, PLUGINS, TENON, WORK, case, main, tenon

ADAMW = os.path.join(PLUGINS, "optimizer-adamw.so")


def bad(name):
    return os.path.join(BAD, name + ".so")


@case
def a_good_plugin_passes():
    done = tenon("check", ADAMW)
    lines = done.stdout.splitlines()
    assert lines[0] == os.path.realpath(ADAMW), lines[0]
    assert "  passed     file-record" in lines, done.stdout
    assert lines[-1].endswith(" passed") and done.stderr == "", (lines[-1], done.stderr)


@case
def a_finding_is_exit_code_1():
    out = tenon("check", bad("load-output"), code=1).stdout
    assert '  failed     load-output' in out and '"fast kernels loaded"' in out, out
    # What it prints as it is loaded, it prints in each rule that loads it.
    assert [line.split()[1] for line in out.splitlines() if line.startswith("  failed")] == ["load-output", "calls-process"], out
    assert out.splitlines()[-1].endswith("2 failed"), out


@case
def a_crash_is_told_and_the_next_file_looked_at():
    files = [bad("segv-at-load"), bad("exit-at-load"), ADAMW]
    out = tenon("check", *files, "--only", "file-record", code=1).stdout
    parts = out.split("\n\n")
    assert [p.splitlines()[0] for p in parts] == [os.path.realpath(f) for f in files], out
    assert "SIGSEGV" in parts[0] and "exit code 0" in parts[1] and parts[2].endswith("1 passed\n"), out


@case
def json_is_one_array():
    found = json.loads(tenon("check", ADAMW, bad("file-note"), "--only=file-note,elf-soname", "--json", code=1).stdout)
    assert [f["path"] for f in found] == [os.path.realpath(ADAMW), os.path.realpath(bad("file-note"))], found
    assert [f["failed"] for f in found] == [0, 1], found
    verdicts = {f["rule"]: f["verdict"] for f in found[1]["findings"]}
    assert verdicts == {"file-note": "failed", "elf-soname": "passed"}, verdicts


@case
def what_is_no_plugin_is_exit_code_3():
    done = tenon("check", bad("clash-host"), code=3)
    assert "NOT_PLUGIN" in done.stderr and done.stdout == "", done
    done = tenon("check", bad("text"), bad("load-output"), "--only", "load-output", code=3)
    assert "NOT_ELF" in done.stderr and "1 failed" in done.stdout, done
    found = json.loads(tenon("check", bad("text"), "--json", code=3).stdout)
    assert found == [], found


@case
def a_wrong_command_line_is_exit_code_2():
    assert "check takes FILE.so" in tenon("check", code=2).stderr
    assert "did you mean 'file-note'" in tenon("check", ADAMW, "--only", "file-nte", code=2).stderr
    assert "ENOENT" in tenon("check", "nowhere.so", code=2).stderr
    assert "no whole number above 0" in tenon("check", ADAMW, "--timeout", "0", code=2).stderr
    assert "ENOENT" in tenon("check", ADAMW, "--against", "nowhere.so", code=2).stderr


@case
def the_list_has_a_sentence_for_each_rule():
    rules = json.loads(tenon("check", "--list", "--json").stdout)
    lines = tenon("check", "--list").stdout.splitlines()
    assert len(lines) == len(rules) > 10
    for line, rule in zip(lines, rules):
        assert line.split(None, 1) == [rule["id"], rule["says"]], (line, rule)


@case
def time_and_memory_have_limits():
    out = tenon("check", bad("sleep-at-load"), "--only", "file-record", "--timeout", "1", code=1).stdout
    assert "timed out" in out and "not done after 1 s while loading it" in out, out
    with open(TENON, "rb") as f:
        is_sanitized = b"__asan_init" in f.read()
    if not is_sanitized:
        out = tenon("check", ADAMW, "--only", "file-record", "--memory", "2", code=1).stdout
        assert "file-record" in out and "1 passed" not in out, out


@case
def an_earlier_build_is_held_against_it():
    done = tenon("check", bad("file-against-8"), "--against", bad("file-against"), "--only", "file-against", code=1)
    assert "row scale of version 1.2.0 is gone" in done.stdout, done.stdout
    tenon("check", bad("file-against-8-repaired"), "--against", bad("file-against"), "--only", "file-against")


@case
def nothing_is_left_behind():
    before = set(glob.glob("/tmp/tenon-check-*"))
    tenon("check", ADAMW, bad("load-threads"), code=1)
    mine = [f for f in set(glob.glob("/tmp/tenon-check-*")) - before if os.listdir(f)]
    assert not mine, mine
    assert "core" not in os.listdir(WORK)


@case
def what_crashes_at_load_is_listed_all_the_same():
    folder = os.path.join(WORK, "crashing")
    os.makedirs(folder)
    for name in ("abort-at-load", "segv-at-load", "exit-at-load", "sleep-at-load"):
        os.symlink(bad(name), os.path.join(folder, name + ".so"))
    out = tenon("list", "--names", path=folder).stdout
    for name in ("abort-at-load", "segv-at-load", "exit-at-load", "sleep-at-load"):
        assert f"optimizer/{name}\n" in out, out


if __name__ == "__main__":
    sys.exit(main())
