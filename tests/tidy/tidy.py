#!/usr/bin/env python3
"""The house habits, kept by a test and not by a reviewer. Looks at every file that git tracks or would track.

The last line says `N passed, N failed, N skipped`: one for each habit.
"""

import os
import re
import subprocess
import sys

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILE_LINES_MAX = 900
SAFETY_LINES_MAX = 12
UNSAFE_ALLOWED = ("crates/index/", "crates/memory/", "crates/server/src/io/", "crates/temperature/",
                  "crates/flash/src/device/")
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "LICENSE", "docs/numbers.md", "docs/decisions",
             "tests/transcripts/README.md"]
TEXT_SUFFIXES = (".rs", ".py", ".md", ".toml", ".txt", ".sh", ".go", ".java", ".js", ".json", ".xml", ".yml", ".yaml",
                 ".html", ".css", ".mod", ".sum", ".lock", ".cfg", ".service")
TEXT_NAMES = ("Makefile", "run", ".gitignore", "LICENSE", "Dockerfile")
LENGTH_EXEMPT = (".lock", ".json", ".sum", ".svg", ".csv")

# The words are put together here, so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b|\b(to" + r"do|unimpl" + r"emented)!\(")
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(work|ho" + r"me|ro" + r"ot)/\w")
REGISTRY = re.compile("|".join([
    r"registry\.np" + r"mjs", r"index\.cr" + r"ates\.io", r"static\.cr" + r"ates\.io", r"py" + r"pi\.org/simple",
    r"files\.python" + r"hosted", r"proxy\.gol" + r"ang", r"repo\d*\.mav" + r"en", r"deb\.deb" + r"ian",
    r"\"resol" + r"ved\"", r"--index" + r"-url", r"GOP" + r"ROXY=", r"art" + r"ifactory"]))
UNSAFE = re.compile(r"\bunsafe\b(?!_)")
FORBIDS = re.compile(r"#!\[forbid\(unsafe_code\)\]")


def tracked():
    """Paths, relative to the repository, of every file that is or would be part of it."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=REPOSITORY,
                            stdout=subprocess.PIPE, check=False)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
    else:
        names = [os.path.relpath(os.path.join(folder, name), REPOSITORY) for folder, folders, files in walk()
                 for name in files]
    return sorted(name for name in names if os.path.isfile(os.path.join(REPOSITORY, name)))


def walk():
    """The tree without what is built."""
    for folder, folders, files in os.walk(REPOSITORY):
        folders[:] = [name for name in folders if name not in ("target", ".tools", ".git", "node_modules")]
        yield folder, folders, files


def is_text(name):
    """Whether to read the file."""
    return name.endswith(TEXT_SUFFIXES) or os.path.basename(name) in TEXT_NAMES


def read(name):
    """The lines of a file."""
    with open(os.path.join(REPOSITORY, name), encoding="utf-8", errors="replace") as file:
        return file.read().split("\n")


def code_of(line):
    """A line of Rust without its comment and strings: enough to find a keyword."""
    return re.sub(r'"(\\.|[^"\\])*"', '""', line.split("//", 1)[0])


def long_files(files):
    """No file is longer than a person reads in one sitting."""
    for name in files:
        if not name.endswith(LENGTH_EXEMPT):
            count = len(read(name)) - 1
            if count > FILE_LINES_MAX:
                yield "%s: %d lines, at most %d" % (name, count, FILE_LINES_MAX)


def unsafe_elsewhere(files):
    """`unsafe` stays in the rooms that may use it."""
    for name in files:
        if name.endswith(".rs") and not name.startswith(UNSAFE_ALLOWED):
            for number, line in enumerate(read(name), 1):
                if UNSAFE.search(code_of(line)):
                    yield "%s:%d: unsafe outside index, memory, temperature, the server's io and flash's devices" % (name, number)


def unsafe_without_reason(files):
    """Every unsafe block or impl has its reason near; every unsafe function says what the caller must keep."""
    for name in files:
        if not name.endswith(".rs"):
            continue
        lines = read(name)
        for number, line in enumerate(lines, 1):
            if not UNSAFE.search(code_of(line)) or re.search(r"unsafe\s+extern|deny\(|forbid\(|allow\(", line):
                continue
            near = "\n".join(lines[max(0, number - 1 - SAFETY_LINES_MAX):number + 1])
            if not re.search(r"SAFETY|# Safety", near):
                yield "%s:%d: unsafe without a SAFETY comment near" % (name, number)


def rooms_without_a_lock(files):
    """A crate that needs no unsafe says so in its first lines."""
    for name in files:
        if re.fullmatch(r"(crates/\w+/src/lib|src/main)\.rs", name) and not name.startswith(
                ("crates/index/", "crates/memory/", "crates/server/", "crates/temperature/", "crates/flash/")):
            if not any(FORBIDS.search(line) for line in read(name)):
                yield "%s: no #![forbid(unsafe_code)]" % name


def unfinished(files):
    """Nothing is left to be done later."""
    return findings(files, UNFINISHED, "left unfinished")


def machine_paths(files):
    """Nothing names a folder of one machine."""
    return findings(files, MACHINE_PATH, "a path of one machine")


def registries(files):
    """Nothing names where packages come from: that is the machine's own setting."""
    return findings(files, REGISTRY, "the address of a package registry", skip=("Cargo.lock", "fuzz/Cargo.lock"))


def findings(files, pattern, what, skip=()):
    """Every line on which the pattern is found."""
    for name in files:
        if name in skip:
            continue
        for number, line in enumerate(read(name), 1):
            if pattern.search(line):
                yield "%s:%d: %s: %s" % (name, number, what, line.strip()[:100])


def documents(files):
    """What a reader looks for first is there."""
    for name in DOCUMENTS:
        path = os.path.join(REPOSITORY, name)
        if not os.path.exists(path) or (os.path.isdir(path) and not os.listdir(path)):
            yield "%s is missing" % name


def broken_links(files):
    """Links between documents lead somewhere."""
    for name in files:
        if not name.endswith(".md"):
            continue
        for number, line in enumerate(read(name), 1):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
                if "://" not in target and not target.startswith("mailto:"):
                    path = os.path.join(REPOSITORY, os.path.dirname(name), target)
                    if not os.path.exists(path):
                        yield "%s:%d: a link to %s, which is not there" % (name, number, target)


def white_space(files):
    """No space ends a line, and every file ends in a line feed."""
    for name in files:
        lines = read(name)
        if len(lines) > 1 and lines[-1] != "":
            yield "%s: the last line has no end" % name
        for number, line in enumerate(lines, 1):
            if line != line.rstrip() and not name.endswith((".md", ".txt")):
                yield "%s:%d: space at the end of the line" % (name, number)


HABITS = [long_files, unsafe_elsewhere, unsafe_without_reason, rooms_without_a_lock, unfinished, machine_paths, registries,
          documents, broken_links, white_space]


def main():
    """Looks at each habit; returns the exit status."""
    files = [name for name in tracked() if is_text(name)]
    failed = 0
    for habit in HABITS:
        found = list(habit(files))
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
