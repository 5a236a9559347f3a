"""Which source files of a crate know each other, and which files write the fields of a struct.

    tests/tidy/structure.py [--circles] [--fields] [FOLDER]     prints every circle and every large struct

A file knows another file when it names the module of that file, or something that is defined there, by a path that
begins with `crate`, `self`, `super` or the name of a child module. A re-export (`pub use`) is followed to the file that
defines the name; a file that re-exports a name knows the file of the name only if its own code uses the name too. The
declaration `mod x;` is no such path. Tests are left out: `#[cfg(test)]`, files called `tests.rs`, folders called `tests`.

A file writes a field if it assigns to `.field`, borrows it mutably, or calls one of `WRITING_CALLS` on it. The field is
found by its name alone, so a field of another struct with the same name counts too: only structs with more than
`FIELDS_WRITTEN_MAX` visible fields are looked at.
"""

import os
import re
import sys

CIRCLE_FILES_MAX = 3
FIELDS_WRITTEN_MAX = 15

ITEM = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+|const\s+|async\s+|extern\s+\"C\"\s+)*"
    r"(?:fn|struct|enum|union|trait|type|const|static)\s+(?:mut\s+)?(\w+)", re.M)
MACRO = re.compile(r"^\s*macro_rules!\s+(\w+)", re.M)
STRUCT = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?struct\s+(\w+)[^;{(]*\{(.*?)^[ \t]*\}", re.M | re.S)
FIELD = re.compile(r"^\s*(pub(?:\([^)]*\))?\s+)?(\w+)\s*:(?!:)", re.M)
WRITING_CALLS = ("store|swap|fetch_\\w+|compare_exchange\\w*|lock|try_lock|write|set|replace|push|push_back|push_front|"
                 "insert|remove|clear|take|drain|truncate|extend\\w*|retain|resize|pop\\w*|get_mut|as_mut|iter_mut|append|"
                 "sort\\w*")


def code_of(text):
    """The text without comments and without what stands in strings; line feeds stay."""
    def blank(match):
        found = match.group(0)
        return '""' if found.startswith(('"', 'r', 'b')) and '"' in found else re.sub(r"[^\n]", "", found)
    character = r"""'(?:\\u\{[^}]*\}|\\.|[^'\\\n])'|"""
    return re.sub(character + r'''//[^\n]*|/\*.*?\*/|\bb?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"''', blank, text, flags=re.S)


def block_end(text, start):
    """Behind the brace that closes the first one found from `start`."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return at + 1
    return len(text)


def without_tests(text):
    """Code without what only tests are compiled with."""
    while True:
        match = re.search(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*", text)
        if not match:
            return text
        brace, semicolon = text.find("{", match.end()), text.find(";", match.end())
        if brace < 0 and semicolon < 0:
            end = len(text)
        elif semicolon >= 0 and (brace < 0 or semicolon < brace):
            end = semicolon + 1
        else:
            end = block_end(text, brace)
        text = text[:match.start()] + text[end:]


def uses_of(text):
    """Every path that a `use` names, as (segments, name it is known by, whether it is exported)."""
    for match in re.finditer(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", text):
        for path in expand(re.sub(r"\s+", " ", match.group(2).strip())):
            segments, _, alias = path.partition(" as ")
            segments = [part.strip() for part in segments.split("::")]
            yield segments, alias.strip() or segments[-1], bool(match.group(1))


def expand(path):
    """`a::{b, c::d}` as `a::b` and `a::c::d`."""
    brace = path.find("{")
    if brace < 0:
        yield path
        return
    head, inner = path[:brace], path[brace + 1:path.rfind("}")]
    depth, part, parts = 0, "", []
    for character in inner:
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
            continue
        depth += (character == "{") - (character == "}")
        part += character
    parts.append(part)
    for part in parts:
        if part.strip():
            for tail in expand(part.strip()):
                yield head[:-2] if tail == "self" and head.endswith("::") else head + tail


class Crate:
    """The modules of a crate, each a file."""

    def __init__(self, source):
        self.source = source
        self.texts, self.items, self.exports = {}, {}, {}
        for folder, folders, files in os.walk(source):
            folders[:] = [name for name in folders if name != "tests"]
            for name in files:
                if name.endswith(".rs") and name != "tests.rs":
                    self.add(os.path.join(folder, name))
        for module, text in self.texts.items():
            self.exports[module] = {
                name: self.absolute(module, path) for path, name, exported in uses_of(text) if exported}

    def add(self, path):
        """Reads one file."""
        parts = os.path.relpath(path, self.source)[:-3].split(os.sep)
        if parts[-1] in ("lib", "main", "mod"):
            parts.pop()
        with open(path, encoding="utf-8") as file:
            text = without_tests(code_of(file.read()))
        self.texts[tuple(parts)] = text
        self.items[tuple(parts)] = set(ITEM.findall(text)) | set(MACRO.findall(text))

    def path_of(self, module):
        """The file of a module, for people."""
        for tail in (".rs", "/mod.rs", "/lib.rs", "/main.rs"):
            path = os.path.join(self.source, *module) + tail
            if os.path.exists(path):
                return path
        return os.path.join(self.source, *module)

    def absolute(self, module, path):
        """A path from the root of the crate, or None where it does not begin in it."""
        base, rest = list(module), list(path)
        if rest[0] == "crate":
            return rest[1:]
        if rest[0] not in ("self", "super"):
            return base + rest if tuple(base + rest[:1]) in self.texts else None
        while rest and rest[0] in ("self", "super"):
            if rest.pop(0) == "super" and base:
                base.pop()
        return base + rest

    def defines(self, path, depth=0):
        """The module that a path leads to, re-exports followed."""
        module = ()
        for at, part in enumerate(path):
            if module + (part,) in self.texts:
                module += (part,)
                continue
            led = self.exports.get(module, {}).get(part)
            if led and depth < 8 and part not in self.items[module]:
                return self.defines(led + path[at + 1:], depth + 1)
            break
        return module

    def edges(self):
        """Which module knows which."""
        found = {}
        for module, text in self.texts.items():
            known = found.setdefault(module, set())
            plain = re.sub(r"\buse\s+[^;]+;", "", text)
            paths = [path for path, name, exported in uses_of(text)
                     if not exported or re.search(r"\b%s\b" % re.escape(name), plain)]
            paths += [match.split("::") for match in re.findall(r"\b(?:crate|super|self)(?:::\w+)+", plain)]
            children = {child[-1] for child in self.texts if child[:-1] == module and child}
            paths += [match.split("::") for match in re.findall(r"(?<![:\w])[a-z_]\w*(?:::\w+)+", plain)
                      if match.split("::")[0] in children]
            for path in paths:
                absolute = self.absolute(module, path)
                if absolute is not None:
                    known.add(self.defines(absolute))
            known.discard(module)
        return found


def circles(edges):
    """Groups of modules that all reach each other, largest first (Tarjan 1972)."""
    order, low, stack, on, found = {}, {}, [], set(), []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        on.add(node)
        for other in edges.get(node, ()):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            group = []
            while True:
                top = stack.pop()
                on.discard(top)
                group.append(top)
                if top == node:
                    break
            if len(group) > 1:
                found.append(group)

    for node in edges:
        if node not in order:
            visit(node)
    return sorted(found, key=len, reverse=True)


def written_elsewhere(crate):
    """For each struct with many fields that other files see: (module, name, the fields that other files write)."""
    for module, text in crate.texts.items():
        for name, body in STRUCT.findall(text):
            fields = FIELD.findall(body)
            if len(fields) <= FIELDS_WRITTEN_MAX:
                continue
            written = [field for visible, field in fields if any(
                where != module and sees(where, module, visible.strip()) and writes(field, other)
                for where, other in crate.texts.items())]
            yield module, name, written


def sees(where, module, visible):
    """Whether the module `where` sees a field of `module` that was declared with `visible`."""
    if visible == "":
        return where[:len(module)] == module
    if visible == "pub(super)":
        return where[:max(0, len(module) - 1)] == module[:-1]
    return True


def writes(field, text):
    """Whether the code writes a field of this name."""
    return re.search(
        r"\.%s\b(?:\[[^\]]*\])?(?:\s*(?:[-+*/|&^]|<<|>>)?=(?![=>])|\s*(?:\.0)?\.(?:%s)\()|&mut\s+[\w.]+\.%s\b"
        % (field, WRITING_CALLS, field), text) is not None


def too_much(source):
    """What breaks the limits in the crate whose sources lie in the folder `source`, one line each."""
    sys.setrecursionlimit(10_000)
    crate = Crate(source)
    for group in circles(crate.edges()):
        if len(group) > CIRCLE_FILES_MAX:
            yield "circle of %d: %s" % (len(group), " ".join(sorted(crate.path_of(module) for module in group)))
    for module, name, written in written_elsewhere(crate):
        if len(written) > FIELDS_WRITTEN_MAX:
            yield "%s: %s: %d fields are written by other files: %s" % (
                crate.path_of(module), name, len(written), " ".join(written))


def sources(folder):
    """The folders `src` of the workspace."""
    for found, folders, _ in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("target", ".tools", ".git", "node_modules"))
        if "src" in folders and os.path.exists(os.path.join(found, "Cargo.toml")):
            yield os.path.join(found, "src")


def main():
    """Prints what was found; nothing is judged here."""
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    flags = [argument for argument in sys.argv[1:] if argument.startswith("--")]
    sys.setrecursionlimit(10_000)
    for source in sources(arguments[0] if arguments else "."):
        crate = Crate(source)
        if not flags or "--circles" in flags:
            for group in circles(crate.edges()):
                print("circle of %d: %s" % (len(group), " ".join(sorted(crate.path_of(module) for module in group))))
        if not flags or "--fields" in flags:
            for module, name, written in written_elsewhere(crate):
                print("%s: %s: %d fields written elsewhere" % (crate.path_of(module), name, len(written)))


if __name__ == "__main__":
    main()
