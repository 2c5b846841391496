#!/usr/bin/env python3
"""Does the documentation do what it says?

  tests/test_docs.py SOURCE BUILD

SOURCE: the root of the repository. BUILD: a build folder, with `tenon` and `plugins`.

Of each page in PAGES, every ```c block whose first line is a comment with a file's name is written to a work folder,
and every ```sh block with a mark on the line before it is run there by `sh -e`, in the page's order:

  <!-- test -->            must exit with 0
  <!-- test exit=2 -->     must exit with 2
  <!-- test if=nvcc -->    is left out where there is no program of that name
  <!-- output -->          before a ```text block: its lines must come in the output of the last block, in that order;
                           "..." stands for anything, runs of blanks for any number of blanks

The work folder has links to abi, sdk and docs, a HOME of its own, and build/tenon, which is a script: it calls the real
program and shortens runs, by putting train.steps=20 in the place of train.epochs and train.steps. `cc` takes warnings
for errors. Exported variables last from one block to the next. A failure is told with the page and the line of its
block. The runs need the package dataset-fashion-mnist. Prints the closing line of a Check program, so that each case counts.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

SOURCE, BUILD = map(os.path.abspath, sys.argv[1:3])
PAGES = ["README.md", "docs/plugin-author.md", "docs/experiment.md", "docs/schedulers.md", "docs/foreign.md"]
KINDS = sorted("docs/kinds/" + f for f in os.listdir(os.path.join(SOURCE, "docs/kinds")))
LINKED = PAGES + ["docs/architecture.md", "CHANGELOG.md"] + KINDS
EXAMPLE = "docs/experiments/fashion-mlp.yaml"
CASES = []

# An experiment without any choice.
BASE = """data: idx
model: mlp
loss: cross-entropy
update: adamw
train: {steps: 1}
"""

TENON = """#!/bin/sh
command=${1-}
[ $# -eq 0 ] || shift
n=$#
while [ $n -gt 0 ]; do
    argument=$1
    shift
    n=$((n - 1))
    case $command$argument in
    runtrain.epochs=* | runtrain.steps=*) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
[ "$command" != run ] || set -- "$@" train.steps=20
exec "%s/tenon" $command "$@"
"""


def case(function):
    CASES.append(function)
    return function


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as f:
        return f.read()


# ---- pages ----


class Block:
    def __init__(self, page, line, language, mark):
        self.page, self.line, self.language, self.mark, self.lines = page, line, language, mark, []

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    def option(self, name, otherwise=None):
        found = re.search(rf"\b{name}=(\S+)", self.mark)
        return found.group(1) if found else otherwise

    @property
    def file(self):
        found = re.match(r"/\* (\S+\.(?:[ch]|cpp)) \*/$", self.lines[0]) if self.language == "c" and self.lines else None
        return found.group(1) if found else None


def blocks_of(page):
    blocks, block, mark = [], None, ""
    for number, line in enumerate(read(page).split("\n"), 1):
        if block and line == "```":
            blocks.append(block)
            block = None
        elif block:
            block.lines.append(line)
        elif line.startswith("```"):
            block = Block(page, number, line[3:].strip(), mark)
            mark = ""
        else:
            found = re.fullmatch(r"<!-- (.*) -->", line)
            mark = found.group(1) if found else ""
    assert not block, f"{page}:{block.line}: the block has no end"
    return blocks


# ---- work folders ----


class Work:
    """A folder in which a page's commands find what they find in the root of the repository."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="tenon-docs-")
        self.home = os.path.join(self.folder, "home")
        for name in ("home", "build", "bin"):
            os.mkdir(os.path.join(self.folder, name))
        for name in ("abi", "sdk", "docs"):
            os.symlink(os.path.join(SOURCE, name), os.path.join(self.folder, name))
        os.symlink(os.path.join(BUILD, "pkgconfig"), os.path.join(self.folder, "build/pkgconfig"))
        self.write("build/tenon", TENON % BUILD)
        strict = "-Wall -Wextra -Werror -Wno-error=unused-const-variable"  # that one: a file without TN_PLUGIN
        self.write("bin/cc", f'#!/bin/sh\nexec {shutil.which("cc")} {strict} "$@"\n')
        for script in ("build/tenon", "bin/cc"):
            os.chmod(os.path.join(self.folder, script), 0o755)
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("TENON_", "XDG_", "LC_"))}
        path = os.path.join(self.folder, "bin") + ":" + os.environ["PATH"]
        self.env = dict(keep, HOME=self.home, LC_ALL="C", PWD=self.folder, PATH=path)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
            f.write(text)

    def run(self, script):
        """Exit status and output; the environment at the end is kept for the next run."""
        dump = os.path.join(self.folder, ".environment")
        self.write(".script", f"{script}\nenv -0 >'{dump}'\n")
        done = subprocess.run(["sh", "-e", os.path.join(self.folder, ".script")], cwd=self.folder, env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                              timeout=110)
        if os.path.exists(dump):
            with open(dump, encoding="utf-8") as f:
                self.env = dict(pair.split("=", 1) for pair in f.read().split("\0") if "=" in pair)
            os.unlink(dump)
        return done.returncode, done.stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)


def pattern_of(line):
    parts = [r"\s+".join(map(re.escape, part.split(" "))) for part in re.sub(r"\s+", " ", line.strip()).split("...")]
    return re.compile(".*".join(parts))


def check_output(block, output):
    lines = iter(output.split("\n"))
    for offset, wanted in enumerate(block.lines, 1):
        if wanted.strip() in ("", "..."):
            continue
        pattern = pattern_of(wanted)
        assert any(pattern.search(line) for line in lines), \
            f"{block.page}:{block.line + offset}: promised and not printed:\n  {wanted}\nprinted:\n{output}"


def run_block(work, block):
    """The output, or None where the block is left out."""
    program, wanted = block.option("if"), int(block.option("exit", "0"))
    if program and not shutil.which(program):
        print(f"{block.place}: left out, there is no {program} here", file=sys.stderr)
        return None
    code, output = work.run(block.text)
    assert code == wanted, f"{block.place}: exits with {code}, wanted {wanted}:\n{block.text}printed:\n{output}"
    return output


def run_page(work, page):
    """All marked blocks of a page; returns their outputs joined."""
    outputs, output = [], None
    for block in blocks_of(page):
        if block.file:
            work.write(block.file, block.text)
    for block in blocks_of(page):
        first = block.mark.split(" ")[0]
        if first == "test":
            assert block.language == "sh", f"{block.place}: only sh blocks can be tested"
            output = run_block(work, block)
            outputs.append(output or "")
        elif first == "output" and output is not None:
            check_output(block, output)
    return "\n".join(outputs)


# ---- cases ----


@case
def readme_commands():
    with Work() as work:
        output = run_page(work, "README.md")
        for promised in (r"^optimizer/lion ", r"^lr +real +1e-4 ", r"^beta1 +real ", r"^beta2 +real ",
                         r"^weight_decay +real ", r"^m +like +zero ", r"^test/accuracy +0\.\d",
                         r"^ +- \{use: adamw, .*lr: 0\.0003,"):
            assert re.search(promised, output, re.M), f"README.md: nothing printed is like {promised}:\n{output}"


@case
def readme_lion_is_short():
    lion = [b for b in blocks_of("README.md") if b.file == "lion.c"]
    assert len(lion) == 1 and len(lion[0].lines) <= 40, f"README.md: lion.c has {len(lion[0].lines)} lines, promised 40"


@case
def readme_lion_is_the_plugin():
    def code(text):
        """Without comments, the ways to break lines, and who it is by."""
        text = re.sub(r"/\*.*?\*/|\\\n", "", text, flags=re.DOTALL)
        return re.sub(r"\s+", "", re.sub(r"TN_PLUGIN\(.*", "", text))

    shown = next(b.text for b in blocks_of("README.md") if b.file == "lion.c")
    assert code(shown) == code(read("plugins/optimizer/lion.c")), "README.md and plugins/optimizer/lion.c differ"


@case
def readme_misspelling_has_a_place():
    with Work() as work:
        text = read(EXAMPLE)
        line = next(n for n, l in enumerate(text.split("\n"), 1) if "adamw" in l and "weight_decay" in l)
        work.write("typo.yaml", text.replace("weight_decay", "wieght_decay", 1))
        work.write("range.yaml", text.replace("weight_decay: 0.01", "weight_decay: -1", 1))
        code, output = work.run("./build/tenon run typo.yaml")
        assert code == 2 and re.search(rf"typo\.yaml:{line}:\d+: .*did you mean 'weight_decay'", output), output
        code, output = work.run("./build/tenon run range.yaml")
        assert code == 2 and re.search(rf"range\.yaml:{line}:\d+: .*'weight_decay'.*\[0, inf\)", output), output


@case
def yaml_is_valid():
    """Each yaml block, with what it leaves out from BASE."""
    with Work() as work:
        for block in [b for page in PAGES for b in blocks_of(page) if b.language == "yaml"]:
            ours = re.findall(r"^(\w+):", block.text, re.M)
            rest = [line for line in BASE.split("\n") if line.split(":")[0] not in ours]
            work.write("sections.yaml", "\n".join(rest) + "\n" + block.text)
            code, output = work.run("./build/tenon run sections.yaml --cfg")
            assert code == 0, f"{block.place}: {output}"


@case
def experiment_shows_the_example():
    shown = next(b for b in blocks_of("docs/experiment.md") if b.language == "yaml").text
    assert shown == re.sub(r"^#.*\n", "", read(EXAMPLE), flags=re.M), f"docs/experiment.md: not what {EXAMPLE} holds"


@case
def overrides_are_valid():
    with Work() as work:
        for block in [b for page in PAGES for b in blocks_of(page) if b.language == "overrides"]:
            for offset, line in enumerate(block.lines, 1):
                code, output = work.run(f"./build/tenon run {EXAMPLE} --cfg '{re.split('  +', line)[0]}'")
                assert code == 0, f"{block.page}:{block.line + offset}: {output}"


@case
def commands_exist():
    known = set(re.findall(r'^    \{"(\w+)", "', read("host/cli/table.c"), re.M))
    for page in PAGES:
        named = set(re.findall(r"`tenon ([a-z]+)", read(page)))
        for block in blocks_of(page):
            named |= set(re.findall(r"^(?:\S*/)?tenon ([a-z]+)", block.text, re.M)) if block.language == "sh" else set()
        assert len(known) >= 3 and named <= known, f"{page}: tenon has no command {sorted(named - known)}"


@case
def readme_names_every_plugin():
    lists = re.findall(r"^  '[\w-]+': \[([^]]*)\],", read("plugins/meson.build"), re.M)
    names = re.findall(r"'([\w-]+)'", "".join(lists))
    table = "\n".join(l for l in read("README.md").split("\n") if l.startswith("|"))
    missing = [n for n in names if not re.search(rf"(?<![\w-]){n}(?![\w-])", table)]
    assert len(names) > 10 and not missing, f"README.md: the table of components lacks {missing}"


@case
def author_commands():
    with Work() as work:
        run_page(work, "docs/plugin-author.md")


@case
def author_normalizer_trains():
    """Not only without an error: 20 updates without a warm-up must be well above the 0.1 of guessing."""
    with Work() as work:
        blocks = blocks_of("docs/plugin-author.md")
        for block in [b for b in blocks if b.file == "rmsnorm.c"]:
            work.write(block.file, block.text)
        scripts = [b.text for b in blocks if "cc-plugin <<" in b.text or "rmsnorm.c normalizer-rmsnorm" in b.text]
        code, output = work.run("".join(scripts))
        found = re.search(r"^test/accuracy +(0\.\d+)$", output, re.M)
        assert len(scripts) == 2 and code == 0 and found and float(found.group(1)) > 0.5, output


@case
def author_knows_every_reason_code():
    page = read("docs/plugin-author.md")
    folder = os.path.join(SOURCE, "host/plugin")
    source = "".join(read(os.path.join(folder, f)) for f in sorted(os.listdir(folder)) if f.endswith(".c"))
    codes = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)*): %s', source)) - {"EIO"}
    table = page[page.index("## What the loader says"):]
    cells = [line.split("|")[1] for line in table.split("\n") if line.startswith("| ")]
    told = set(re.findall(r"[A-Z][A-Z_]+", " ".join(cells)))
    assert len(codes) > 15 and codes <= told, f"docs/plugin-author.md: the codes {sorted(codes - told)} are not told"
    gone = {c for c in told if c not in source}
    assert not gone, f"docs/plugin-author.md: {sorted(gone)} are no codes of the host"


@case
def author_knows_types_and_statuses():
    page = read("docs/plugin-author.md")
    types = re.findall(r"^#define TN_FIELD_(\w+)", read("sdk/tenon/sdk.h"), re.M)
    missing = [t for t in types if not re.search(rf"^\| {t} \|", page, re.M)]
    missing += [s for s in re.findall(r"X\((TN_E_\w+),", read("abi/tenon/base.h")) if s not in page]
    assert len(types) == 8 and not missing, f"docs/plugin-author.md: {missing} are not told"


@case
def kinds_are_what_the_headers_say():
    script = os.path.join(SOURCE, "docs/kinds.py")
    done = subprocess.run([sys.executable, "-B", script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = "".join(read(page) for page in KINDS)
    folder = os.path.join(SOURCE, "abi/tenon")
    for header in sorted(f for f in os.listdir(folder) if f.endswith(".h")):
        text = read(os.path.join(folder, header))
        assert f"\n## {header}\n" in pages, f"docs/kinds: no page has {header}"
        structs = re.findall(r"^typedef struct (tn_\w+) \{", text, re.M)
        entries = re.findall(r"\(\*(\w+)\)\(", text)
        missing = [n for n in structs if f"\n### {n}\n" not in pages] + [n for n in entries if f"\n#### {n}\n" not in pages]
        assert not missing, f"docs/kinds: {header}: {missing} are not there"
    for kind in [k for k in os.listdir(os.path.join(SOURCE, "plugins")) if k != "meson.build"]:
        assert f"docs/kinds/{kind}.md" in KINDS, f"docs/kinds: no page for {kind}"


@case
def experiment_commands():
    with Work() as work:
        run_page(work, "docs/experiment.md")


@case
def scheduler_commands():
    with Work() as work:
        run_page(work, "docs/schedulers.md")


@case
def schedulers_are_all_told():
    names = {f[:-2] for f in os.listdir(os.path.join(SOURCE, "plugins/scheduler"))}
    told = set(re.findall(r"^\| `([\w-]+)` \|", read("docs/schedulers.md"), re.M))
    assert len(names) > 15 and names == told, f"docs/schedulers.md: {sorted(names ^ told)}"


def anchors(page):
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", read(page), re.M)}


@case
def links_lead_somewhere():
    for page in LINKED:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", read(page), flags=re.M | re.S)):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            full = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            assert os.path.exists(os.path.join(SOURCE, full)), f"{page}: the link {target} leads nowhere"
            assert not anchor or anchor in anchors(full), f"{page}: {full} has no heading for {target}"


def main():
    os.umask(0o022)
    failed = 0
    for function in CASES:
        try:
            function()
        except Exception as error:  # each case is told, then the next one runs
            failed += 1
            text = str(error) if isinstance(error, AssertionError) and str(error) else traceback.format_exc()
            print(f"{function.__name__}: {text}", file=sys.stderr)
    good = len(CASES) - failed
    print(f"{100 * good // len(CASES)}%: Checks: {len(CASES)}, Failures: {failed}, Errors: 0")
    return 1 if failed else 0


sys.exit(main())
