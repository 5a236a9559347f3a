#!/usr/bin/env python3
"""The habits of this repository that a machine can check. Looks at every file that git tracks or would track.

    tests/tidy/tidy.py [FOLDER]     FOLDER is the root of the repository if none is given
    tests/tidy/tidy.py --forget     removes the lines of known.txt that are no longer needed

`known.txt` has the exceptions to a habit, one a line: the name of the habit, and what is excepted from it. A line that
is no longer needed is a failure too. `test_tidy.py` shows for each habit that a violation is found. The last line says
`N passed, N failed, N skipped`, one for each habit.
"""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(REPOSITORY, "bench-compare")]

import evidence  # noqa: E402
import structure  # noqa: E402
import wording  # noqa: E402

LINE_CHARACTERS_MAX = 120
SAFETY_LINES_MAX = 12
KNOWN = "tests/tidy/known.txt"
UNSAFE_ALLOWED = ("crates/index/", "crates/memory/", "crates/server/src/io/", "crates/temperature/", "crates/cuda/",
                  "crates/flash/src/device/", "crates/compression/src/learn.rs")
FORBID_NOT_NEEDED = ("crates/index/", "crates/memory/", "crates/server/", "crates/temperature/", "crates/cuda/",
                     "crates/flash/", "crates/compression/")
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "LICENSE", "docs/internals/numbers.md",
             "docs/decisions", "tests/transcripts/README.md"]
TEXT_SUFFIXES = (".rs", ".py", ".md", ".toml", ".txt", ".sh", ".go", ".java", ".js", ".json", ".xml", ".yml", ".yaml",
                 ".html", ".css", ".php", ".mod", ".sum", ".lock", ".cfg", ".service", ".cu")
TEXT_NAMES = ("Makefile", "run", ".gitignore", "LICENSE", "Dockerfile")
# Written by programs, not by people.
LENGTH_EXEMPT = (".lock", ".json", ".sum", ".svg", ".csv")

# The words are put together here, so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b|\b(to" + r"do|unimpl" + r"emented)!\(")
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(work|ho" + r"me|ro" + r"ot)/\w")
REGISTRY = re.compile("|".join([
    r"registry\.np" + r"mjs", r"index\.cr" + r"ates\.io", r"static\.cr" + r"ates\.io", r"py" + r"pi\.org/simple",
    r"files\.python" + r"hosted", r"proxy\.gol" + r"ang", r"repo\d*\.mav" + r"en", r"deb\.deb" + r"ian",
    r"\"resol" + r"ved\"", r"--index" + r"-url", r"GOP" + r"ROXY=", r"art" + r"ifactory"]))
UNSAFE = re.compile(r"\bunsafe\b(?!_)")
SO_MANY = re.compile(r"//.*\bso " + r"many\b", re.IGNORECASE)
FORBIDS = re.compile(r"#!\[forbid\(unsafe_code\)\]")


class Tree:
    """The text files of a repository, each read once."""

    def __init__(self, root):
        self.root = root
        self.all = tracked(root)
        self.files = [name for name in self.all if name.endswith(TEXT_SUFFIXES) or os.path.basename(name) in TEXT_NAMES]
        self.kept = {}
        self.crates = None

    def structure(self, kind):
        """What of one kind breaks the limits of `structure.py`, in all crates: (what is excepted by, text)."""
        if self.crates is None:
            self.crates = [(crate_of(os.path.relpath(source, self.root)),) + found
                           for source in structure.sources(self.root) for found in structure.too_much(source)]
        for crate, found, about, text in self.crates:
            if found == kind:
                yield ("%s %s" % (crate, about)).strip(), text.replace(self.root + "/", "")

    def known(self):
        """The exceptions, each a line of `known.txt`."""
        return [line for line in self.lines(KNOWN) if line and not line.startswith("#")] if self.has(KNOWN) else []

    def text(self, name):
        """What a file holds."""
        if name not in self.kept:
            with open(os.path.join(self.root, name), encoding="utf-8", errors="replace") as file:
                self.kept[name] = file.read()
        return self.kept[name]

    def lines(self, name):
        """The lines of a file; the last one is empty if the file ends in a line feed."""
        return self.text(name).split("\n")

    def has(self, name):
        """Whether a file, or a folder that is not empty, is there."""
        path = os.path.join(self.root, name)
        return bool(os.listdir(path)) if os.path.isdir(path) else os.path.exists(path)


def tracked(root):
    """Paths, relative to the root, of every file that is or would be part of the repository."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
    else:
        names = [os.path.relpath(os.path.join(folder, name), root) for folder, files in walk(root) for name in files]
    return sorted(name for name in names if os.path.isfile(os.path.join(root, name)))


def walk(root):
    """The folders without what is built, each with its files."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in ("target", ".tools", ".git", "node_modules")]
        yield folder, files


def code_of(line):
    """A line of Rust without its comment and strings: enough to find a keyword."""
    return re.sub(r'"(\\.|[^"\\])*"', '""', line.split("//", 1)[0])


def crate_of(name):
    """The folder of the crate that a file belongs to: `crates/cache`, or `src` for the program."""
    return "/".join(name.split("/")[:2]) if name.startswith("crates/") else name.split("/")[0]


def long_functions(tree):
    """No function has more than ninety lines."""
    for name in tree.files:
        if name.endswith(".rs"):
            for number, function, lines in structure.long_functions(tree.text(name)):
                yield "%s %s" % (crate_of(name), function), "%s:%d: %s: %d lines, at most %d" % (
                    name, number, function, lines, structure.FUNCTION_LINES_MAX)


def so_many(tree):
    """A comment names the number that it means."""
    for name in tree.files:
        if name.endswith(".rs"):
            for number, line in enumerate(tree.lines(name), 1):
                if SO_MANY.search(line):
                    yield crate_of(name), "%s:%d: so many: name the number" % (name, number)


def long_lines(tree):
    """No line is wider than 120 characters."""
    for name in tree.files:
        # A transcript holds what goes over the wire, line by line.
        if name.endswith(LENGTH_EXEMPT) or re.search(r"(tests/transcripts|libraries/examples)/\w+\.txt$", name):
            continue
        for number, line in enumerate(tree.lines(name), 1):
            # Markdown has no way to break a row of a table, nor an address.
            row = name.endswith(".md") and (line.startswith("|") or re.match(r"\S*://\S*$", line.strip()))
            if len(line) > LINE_CHARACTERS_MAX and not row:
                yield "%s:%d: %d characters, at most %d" % (name, number, len(line), LINE_CHARACTERS_MAX)


def circles(tree):
    """No more than three files of a crate know each other in a circle."""
    return tree.structure("circle")


def upward_arrows(tree):
    """The modules in one module stand on a ladder: none names one that leads back to it."""
    return tree.structure("upwards")


def wide_structs(tree):
    """No struct with functions of its own has more than fifteen fields."""
    return tree.structure("fields")


def metric_helps(tree):
    """The help of each metric can be understood by itself."""
    for name in tree.files:
        if re.match(r"crates/(server|cache)/src/.*\.rs$", name):
            for number, text in wording.metrics(name, tree.text(name)):
                wrong = wording.wrong_in_metric(text)
                if wrong:
                    yield "%s:%d: %s: %s" % (name, number, text, wrong)


def flag_helps(tree):
    """The help of each flag can be understood by itself, and a flag with a value has an example of one."""
    for name in tree.files:
        if not re.match(r"(src|bench-compare/src|crates/server/src/settings/table)/.*\.rs$", name):
            continue
        text = tree.text(name)
        for number, flag, help_text, example, takes_value in wording.flags(text):
            wrong = wording.wrong_in_flag(help_text) or (not example and takes_value and "no example of a value")
            if wrong:
                yield "%s:%d: --%s: %s: %s" % (name, number, flag, help_text, wrong)
        for number, help_text in wording.arguments(text):
            wrong = wording.wrong_in_flag(help_text)
            if wrong:
                yield "%s:%d: %s: %s" % (name, number, help_text, wrong)


def unsafe_elsewhere(tree):
    """`unsafe` stays in the crates that may use it."""
    for name in tree.files:
        if name.endswith(".rs") and not name.startswith(UNSAFE_ALLOWED):
            for number, line in enumerate(tree.lines(name), 1):
                if UNSAFE.search(code_of(line)):
                    yield "%s:%d: unsafe outside %s" % (name, number, " ".join(UNSAFE_ALLOWED))


def unsafe_without_reason(tree):
    """Every unsafe block or impl has its reason near; every unsafe function says what the caller must keep."""
    for name in tree.files:
        if not name.endswith(".rs"):
            continue
        lines = tree.lines(name)
        for number, line in enumerate(lines, 1):
            if not UNSAFE.search(code_of(line)) or re.search(r"unsafe\s+extern|deny\(|forbid\(|allow\(", line):
                continue
            near = "\n".join(lines[max(0, number - 1 - SAFETY_LINES_MAX):number + 1])
            if not re.search(r"SAFETY|# Safety", near):
                yield "%s:%d: unsafe without a SAFETY comment near" % (name, number)


def missing_forbid(tree):
    """A crate that needs no unsafe says so in its first lines."""
    for name in tree.files:
        if re.fullmatch(r"(crates/\w+/src/lib|src/main)\.rs", name) and not name.startswith(FORBID_NOT_NEEDED):
            if not any(FORBIDS.search(line) for line in tree.lines(name)):
                yield "%s: no #![forbid(unsafe_code)]" % name


def unfinished(tree):
    """Nothing is left to be done later."""
    return findings(tree, UNFINISHED, "left unfinished")


def machine_paths(tree):
    """Nothing names a folder of one machine."""
    return findings(tree, MACHINE_PATH, "a path of one machine")


def registries(tree):
    """Nothing names where packages come from: that is the machine's own setting."""
    return findings(tree, REGISTRY, "the address of a package registry", skip=("Cargo.lock", "fuzz/Cargo.lock"))


def findings(tree, pattern, what, skip=()):
    """Every line on which the pattern is found."""
    for name in tree.files:
        if name in skip:
            continue
        for number, line in enumerate(tree.lines(name), 1):
            if pattern.search(line):
                yield "%s:%d: %s: %s" % (name, number, what, line.strip()[:100])


def documents(tree):
    """The documents that a reader looks for first are there."""
    for name in DOCUMENTS:
        if not tree.has(name):
            yield "%s is missing" % name


def broken_links(tree):
    """Links between documents lead somewhere, and so do those to a heading."""
    for name in tree.files:
        if not name.endswith(".md"):
            continue
        for number, line in enumerate(tree.lines(name), 1):
            for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", line):
                if "://" in target or target.startswith("mailto:"):
                    continue
                path = os.path.normpath(os.path.join(os.path.dirname(name), target)) if target else name
                if not os.path.exists(os.path.join(tree.root, path)):
                    yield "%s:%d: a link to %s, which is not there" % (name, number, target)
                elif heading and path.endswith(".md") and heading not in anchors(tree.lines(path)):
                    yield "%s:%d: a link to the heading %s of %s, which is not there" % (name, number, heading, path)


def anchors(lines):
    """The names by which links reach the headings of a document."""
    headings = (re.sub(r"[`*]|\[|\]\([^)]*\)", "", line.lstrip("#").strip().lower())
                for line in lines if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def named_files(tree):
    """A file that a document names is there: at its path, or, where the path is short, somewhere."""
    roots = {name.split("/")[0] for name in tree.all if "/" in name}
    for name in tree.files:
        if not name.endswith(".md"):
            continue
        for number, line in enumerate(tree.lines(name), 1):
            for path in re.findall(r"`([\w.-]+(?:/[\w.-]+)+/?|[\w-]+\.(?:rs|py))`", line):
                root = path.split("/")[0]
                if root in roots:
                    there = root == "target" or tree.has(path)
                elif path.endswith((".rs", ".py")):
                    there = any(("/" + one).endswith("/" + path) for one in tree.all)
                else:
                    there = True
                if not there:
                    yield "%s:%d: names %s, which is not there" % (name, number, path)


def named_code(tree):
    """A function or variant that a document names with its type is in the code."""
    named = {}
    for name in tree.files:
        if name.endswith(".md"):
            for number, line in enumerate(tree.lines(name), 1):
                for owner, member in re.findall(r"`(?:\w+::)*([A-Z]\w*)::(\w+)(?:\([^`]*\))?`", line):
                    named.setdefault((owner, member), "%s:%d" % (name, number))
    code = [set(re.findall(r"\w+", tree.text(name))) for name in tree.files if name.endswith(".rs")]
    for (owner, member), where in sorted(named.items()):
        if not any(owner in words and member in words for words in code):
            yield "%s: names %s::%s, which no file has" % (where, owner, member)


def stale_evidence(tree):
    """Index, tables and plots of docs/evidence are those of its data (bench-compare/evidence.py --index)."""
    return list(evidence.Evidence(tree.root).stale()) if tree.has(evidence.DECLARED) else []


def white_space(tree):
    """No space ends a line, and every file ends in a line feed."""
    for name in tree.files:
        lines = tree.lines(name)
        if lines[-1] != "":
            yield "%s: the last line has no end" % name
        for number, line in enumerate(lines, 1):
            if line != line.rstrip() and not name.endswith((".md", ".txt")):
                yield "%s:%d: space at the end of the line" % (name, number)


EXCEPTABLE = [circles, upward_arrows, wide_structs, long_functions, so_many]


def needed_exceptions(tree):
    """The lines that `known.txt` would need for no habit to fail."""
    return {"%s %s" % (habit.__name__, about) for habit in EXCEPTABLE for about, _ in habit(tree)}


def stale_exceptions(tree):
    """Every exception is still needed."""
    needed = needed_exceptions(tree)
    for line in tree.known():
        if line not in needed:
            yield "%s: %s: no longer needed (tests/tidy/tidy.py --forget removes the line)" % (KNOWN, line)


HABITS = [long_functions, long_lines, so_many, circles, upward_arrows, wide_structs, metric_helps, flag_helps,
          unsafe_elsewhere, unsafe_without_reason, missing_forbid, unfinished, machine_paths, registries, documents,
          broken_links, named_files, named_code, stale_evidence, white_space, stale_exceptions]


def forget(tree):
    """Removes the exceptions that are no longer needed."""
    needed = needed_exceptions(tree)
    kept = [line for line in tree.lines(KNOWN) if not line or line.startswith("#") or line in needed]
    with open(os.path.join(tree.root, KNOWN), "w", encoding="utf-8") as file:
        file.write("\n".join(kept))


def unknown(tree, habit):
    """What a habit finds, without the known exceptions."""
    if habit not in EXCEPTABLE:
        return list(habit(tree))
    known = tree.known()
    return [text for about, text in habit(tree) if "%s %s" % (habit.__name__, about) not in known]


def main():
    """Looks at each habit; returns the exit status."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--forget"]
    tree = Tree(arguments[0] if arguments else REPOSITORY)
    if "--forget" in sys.argv:
        forget(tree)
        return 0
    failed = 0
    for habit in HABITS:
        found = unknown(tree, habit)
        failed += bool(found)
        print("%-4s %s" % ("FAIL" if found else "ok", habit.__doc__), flush=True)
        for line in found[:20]:
            print("     " + line)
        if len(found) > 20:
            print("     and %d more" % (len(found) - 20))
    print("%d passed, %d failed, 0 skipped" % (len(HABITS) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
