#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages docs/kinds/*.md: what a plugin of each kind must be, from the contract's headers.

  docs/kinds.py            writes them
  docs/kinds.py --check    exits with 1 where one is not what it would write

Which kinds there are and what stands behind them is read from host/plugin/interface.c, what one can begin with from
sdk/template.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGES = os.path.join(ROOT, "docs/kinds")
COMMON = ["base.h", "plugin.h", "parameter.h", "failure.h"]
# Headers that a kind's interface reaches and does not define; sdk headers that help.
MORE = {
    "optimizer": ["matrix.h"], "layer": ["tangent.h", "normalizer.h"], "normalizer": ["normalizer.h", "tangent.h"],
    "activation": ["tangent.h"], "regularizer": ["tangent.h"],
}
HELP = {
    "optimizer": ["rule.h", "matrix_rule.h", "dense.h", "minimize.h"], "transform": ["rule.h"], "wrapper": ["rule.h"],
    "average": ["rule.h"], "layer": ["layers.h", "vecmath.h"], "normalizer": ["layers.h", "vecmath.h"],
    "activation": ["layers.h", "vecmath.h"], "regularizer": ["layers.h", "vecmath.h"], "loss": ["layers.h"],
    "scheduler": ["schedule.h"], "sink": ["line.h"], "codec": ["codec.h"], "backend": ["gemm.h"],
}
QUIET = ("uint32_t struct_size", "uint32_t reserved", "int32_t reserved", "int32_t reserved2")
TAGS = {
    "load": "by one thread, while the host loads or plans; may be slow",
    "main": "by one thread at a time for one instance, between steps",
    "piece": "by any thread, many at a time, each with its own piece",
    "any": "re-entrant: by any thread at any time",
}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


# ---- kinds ----


def headers():
    return sorted(f for f in os.listdir(os.path.join(ROOT, "abi/tenon")) if f.endswith(".h"))


def interfaces():
    """[(macro, id, header, [kinds])] in the order of the host's table."""
    ids = {}
    for header in headers():
        for macro, text in re.findall(r'^#define (TN_[A-Z_]+) +"(tenon\.[a-z-]+/[0-9.]+)"', read("abi/tenon/" + header), re.M):
            ids[macro] = (text, header)
    table = read("host/plugin/interface.c")
    table = table[table.index("known[] = {"):]
    table = table[:table.index("\n};")]
    rows = re.findall(r'\{(TN_[A-Z_]+),\s*"([a-z -]+)"', table)
    return [(macro, *ids[macro], kinds.split()) for macro, kinds in rows]


def kinds():
    """{kind: [(id, header)]}, of those that there is a template of."""
    found = {}
    for _, text, header, names in interfaces():
        for kind in names:
            if os.path.exists(os.path.join(ROOT, "sdk/template", kind, "my-thing.c")):
                found.setdefault(kind, []).append((text, header))
    return found


# ---- headers ----


def plain(comment):
    """A comment without its frame, one string a line, indentation kept."""
    lines = re.sub(r"^/\*|\*/$", "", comment).split("\n")
    lines = [re.sub(r"^\s*\*( |$)", "", l) if i else l.strip() for i, l in enumerate(lines)]
    return [l.rstrip() for l in lines]


def prose(lines):
    """Markdown of a comment: paragraphs, lists of -, and what is indented as it stands."""
    out, block = [], False
    for line in lines:
        goes_on = not block and out and out[-1].strip() and not out[-1].endswith(":") and line.startswith("  ")
        if goes_on and not line.lstrip().startswith("- ") and not is_item(out):
            out[-1] += " " + escape(line.strip())
            continue
        indented = line.startswith("  ") and not line.lstrip().startswith(("- ", "SPDX")) and (block or not is_item(out))
        if indented and not block:
            out += ["", "```text"]
        if block and not indented:
            out += ["```", ""]
        block = indented
        if indented:
            out.append(line)
        elif line.lstrip().startswith("- "):
            out.append("- " + line.lstrip()[2:])
        elif line.startswith("  "):
            out.append("  " + line.strip())
        else:
            out.append(escape(line))
    return tidy(out + (["```"] if block else []))


def is_item(out):
    return bool(out) and out[-1].startswith(("- ", "  "))


def escape(text):
    return re.sub(r"(?<!`)\b(tn_\w+(?:\.\w+)?|TN_[A-Z0-9_]+\*?)(?!`)", r"`\1`", text)


def tidy(lines):
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n").split("\n")


def joined(comments):
    return " ".join(" ".join(l.strip() for l in plain(c) if l.strip()) for c in comments)


def members(body):
    """[(declaration, comment)] of a struct."""
    found, pending, at, line_of = [], [], 0, -1
    while at < len(body):
        if body[at].isspace():
            at += 1
        elif body.startswith("/*", at):
            end = body.index("*/", at) + 2
            if found and body.count("\n", 0, at) == line_of:
                found[-1][1].append(body[at:end])
            else:
                pending.append(body[at:end])
            at = end
        else:
            end = body.index(";", at)
            found.append((re.sub(r"\s+", " ", body[at:end]), pending))
            pending, at = [], end + 1
            line_of = body.count("\n", 0, end)
    return [(declaration, joined(comments)) for declaration, comments in found]


def parts_of(header):
    """[('comment', lines) | ('section', title) | ('define', name, value, comment) | ('struct', name, comment, members)]"""
    text = read("abi/tenon/" + header)
    first = text.index("*/") + 2
    parts = [("comment", [l for l in plain(text[:first]) if not l.startswith("SPDX")])]
    text = re.sub(r"^(TN_AT|TN_SIZE)\(.*?\);$|^#(if|ifdef|ifndef|endif|include|error|else).*$|^extern \"C\" \{$|^\}$", "",
                  text[first:], flags=re.M | re.S if False else re.M)
    token = re.compile(r"/\*.*?\*/|^#define (\w+)(?:\([^)]*\))?[ \t]*((?:[^\n/\\]|/(?!\*)|\\\n|\\)*)|"
                       r"^(?:typedef )?(?:struct|enum) (\w+) \{(.*?)^\}[^;]*;|^typedef [^{;]*;|^struct \w+;", re.M | re.S)
    comment = None
    for m in token.finditer(text):
        whole = m.group(0)
        if whole.startswith("/*"):
            title = re.fullmatch(r"/\* ---- (.*?) ----\s*(.*?)\*/", whole, re.S)
            before = text[text.rfind("\n", 0, m.start()) + 1:m.start()]
            if title:
                parts.append(("section", title.group(1)))
                rest = [l for l in plain("/*" + title.group(2) + "*/")]
                comment = rest if any(rest) else None
                if comment:
                    parts.append(("comment", comment))
                    comment = None
            elif before.strip() and parts[-1][0] == "define":
                parts[-1] = (*parts[-1][:3], joined([whole]))
            else:
                if comment:
                    parts.append(("comment", comment))
                comment = plain(whole)
        elif whole.startswith("#define"):
            value = m.group(2).strip()
            if not value or "\\" in value or m.group(1).startswith("TENON_") or "(" in whole.split(m.group(1))[1][:1]:
                continue
            parts.append(("define", m.group(1), value, " ".join(comment) if comment else ""))
            comment = None
        elif m.group(3):
            enum = whole.startswith("enum")
            if not enum:
                parts.append(("struct", m.group(3), comment or [], members(m.group(4))))
            comment = None
    if comment:
        parts.append(("comment", comment))
    return parts


# ---- pages ----


def cell(text):
    return escape(text).replace("|", "\\|")


def signature(declaration):
    """(name, as it is declared in C) of a member that is a function, else None."""
    found = re.match(r"(.*?)\(\*(\w+)\)\((.*)\)$", declaration)
    return (found.group(2), f"{found.group(1).strip()} {found.group(2)}({found.group(3)})".replace("* ", "*")) if found else None


def entry_lines(declaration, comment):
    name, code = signature(declaration)
    tags = re.findall(r"\[(load|main|piece|any)\]", comment)
    words = re.sub(r"\s*\[(load|main|piece|any)\]", "", comment)
    called = "; ".join(f"{tag}: {TAGS[tag]}" for tag in dict.fromkeys(tags))
    return [f"#### {name}", "", "```c", wrapped(code), "```", ""] + ([escape(words), ""] if words else []) + (
        [f"Called `[{tags[0]}]`: {TAGS[tags[0]]}.", ""] if len(set(tags)) == 1 else [f"Called {called}.", ""] if called else [])


def wrapped(code, width=110):
    if len(code) <= width:
        return code + ";"
    head, rest = code.split("(", 1)
    lines, line = [], head + "("
    pad = " " * len(line)
    for part in re.split(r"(?<=,) ", rest):
        if len(line) + len(part) > width:
            lines.append(line.rstrip())
            line = pad
        line += part + " "
    return "\n".join(lines + [line.rstrip() + ";"])


def struct_lines(name, comment, fields):
    out = [f"### {name}", "", *prose(comment), ""]
    plain_fields = [(d, c) for d, c in fields if not signature(d) and c + d not in QUIET]
    if plain_fields:
        out += ["| field | is |", "|---|---|"] + [f"| `{d}` | {cell(c)} |" for d, c in plain_fields] + [""]
    for declaration, words in fields:
        if signature(declaration):
            out += entry_lines(declaration, words)
    return out


def header_lines(header):
    out, rows = [f"## {header}", ""], []
    for part in parts_of(header) + [("end",)]:
        if part[0] == "define":
            rows.append(f"| `{part[1]}` | `{part[2]}` | {cell(part[3])} |")
            continue
        if rows:
            out += ["| constant | value | is |", "|---|---|---|"] + rows + [""]
            rows = []
        if part[0] == "section":
            out += [f"**{part[1]}**", ""]
        elif part[0] == "comment":
            out += prose(part[1]) + [""]
        elif part[0] == "struct":
            out += struct_lines(*part[1:])
    return out


def note(what):
    return f"<!-- Made by docs/kinds.py from {what}: change those. -->"


def kind_page(kind, behind):
    names = list(dict.fromkeys([h for _, h in behind] + MORE.get(kind, [])))
    helpers = ", ".join(f"[{h}](../../sdk/tenon/{h})" for h in ["sdk.h"] + HELP.get(kind, []))
    out = [f"# {kind}", "", note(", ".join("abi/tenon/" + n for n in names)), "",
           f"`tenon new {kind} NAME` makes a folder to begin with: "
           f"[sdk/template/{kind}](../../sdk/template/{kind}/my-thing.c).",
           "How to build, check and publish it is in [plugin-author.md](../plugin-author.md),",
           "what all kinds share in [contract.md](contract.md).", "",
           "| | |", "|---|---|",
           "| interface | " + ", ".join(f"`{i}`" for i, _ in behind) + " |",
           "| headers | " + ", ".join(f"[{n}](../../abi/tenon/{n})" for n in names) + " |",
           f"| helpers | {helpers} |",
           f"| to copy from | [plugins/{kind}](../../plugins/{kind}) |", ""]
    for name in names:
        out += header_lines(name)
    return "\n".join(tidy(out)) + "\n"


def contract_page():
    out = ["# What all kinds share", "", note(", ".join("abi/tenon/" + n for n in COMMON)), ""]
    for name in COMMON:
        out += header_lines(name)
    return "\n".join(tidy(out)) + "\n"


def index_page(found):
    out = ["# The kinds of components", "", note("host/plugin/interface.c and abi/tenon"), "",
           "One page each, from the contract's headers, and [what all share](contract.md).",
           "[plugin-author.md](../plugin-author.md) leads from nothing to a plugin.", "",
           "| kind | interface | header |", "|---|---|---|"]
    for kind, behind in found.items():
        out.append(f"| [{kind}]({kind}.md) | " + ", ".join(f"`{i}`" for i, _ in behind) + " | " +
                   ", ".join(h for _, h in behind) + " |")
    return "\n".join(out) + "\n"


def pages():
    found = kinds()
    made = {f"{kind}.md": kind_page(kind, behind) for kind, behind in found.items()}
    return dict(made, **{"contract.md": contract_page(), "README.md": index_page(found)})


def main():
    made, stale = pages(), []
    os.makedirs(PAGES, exist_ok=True)
    for name in sorted(set(made) | set(os.listdir(PAGES))):
        path = os.path.join(PAGES, name)
        before = open(path, encoding="utf-8").read() if os.path.exists(path) else None
        if before == made.get(name):
            continue
        stale.append(name)
        if "--check" not in sys.argv and name in made:
            with open(path, "w", encoding="utf-8") as f:
                f.write(made[name])
        elif "--check" not in sys.argv:
            os.remove(path)
    if stale and "--check" in sys.argv:
        print(f"docs/kinds: not what the headers say: {', '.join(stale)}; run docs/kinds.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
