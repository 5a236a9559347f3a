"""Which source files of a crate know each other, and how large its structs and functions are.

    tests/tidy/structure.py [FOLDER]     prints every arrow between folders, every circle, and what is large

**Arrows between files.** A file knows another file when it names the module of that file by a path that begins with
`crate`, `self`, `super` or the name of a child module: the arrow goes to the last module in the path, also where that
module only re-exports the name. A `pub use` is an arrow only if the file uses the name itself. The declaration `mod x;`
is no arrow. Tests are left out: `#[cfg(test)]`, files called `tests.rs`, folders called `tests`.

**Ladders.** The modules directly in one module, each with all modules below it, stand on a ladder: if anything in A
names something in B, nothing in B leads back to A. A name that is re-exported by a module further up counts for the
module that it comes from. A module and the modules below it stand on no ladder with each other: `x.rs` and `x/` are one
folder, in which only the size of circles is limited. In a circle of folders the arrows that run upwards are the fewest,
counted in pairs of files, whose loss would leave a ladder.

**Behaviour.** A struct has behaviour if a function of it takes `self`, in any file of the crate; functions of the
traits of `PLAIN_TRAITS` do not count.
"""

import itertools
import os
import re
import sys

CIRCLE_FILES_MAX = 3
FIELDS_MAX = 15
FUNCTION_LINES_MAX = 90
# Above this number of folders in a circle the order is searched for step by step, not among all orders.
FOLDERS_EXACT_MAX = 12
PLAIN_TRAITS = ("Debug", "Display", "Default", "Clone", "Drop", "From", "PartialEq", "Eq", "Hash", "Ord", "PartialOrd")

ITEM = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+|const\s+|async\s+|extern\s+\"C\"\s+)*"
    r"(?:fn|struct|enum|union|trait|type|const|static)\s+(?:mut\s+)?(\w+)", re.M)
MACRO = re.compile(r"^\s*macro_rules!\s+(\w+)", re.M)
STRUCT = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?struct\s+(\w+)[^;{]*?\{(.*?)^[ \t]*\}", re.M | re.S)
FIELD = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:r#)?(\w+)\s*:(?!:)", re.M)
IMPL = re.compile(r"^[ \t]*(?:unsafe\s+)?impl\b([^{;]*)\{", re.M)
TAKES_SELF = re.compile(r"\bfn\s+\w+\s*(?:<[^({]*>)?\(\s*(?:&\s*(?:'\w+\s+)?)?(?:mut\s+)?self\b")
FUNCTION = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?"
                      r"(?:(?:default|unsafe|const|async|extern\s+\"\w*\")\s+)*fn\s+(\w+)", re.M)


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

    def named(self, path):
        """The last module in a path."""
        module = ()
        for part in path:
            if module + (part,) not in self.texts:
                break
            module += (part,)
        return module

    def comes_from(self, path, depth=0):
        """The module that a path leads to, re-exports followed."""
        module = self.named(path)
        rest = path[len(module):]
        led = self.exports.get(module, {}).get(rest[0]) if rest else None
        if led and depth < 8 and rest[0] not in self.items[module]:
            return self.comes_from(led + rest[1:], depth + 1)
        return module

    def paths(self, module):
        """Every path of the crate that a file names, as (path from the root, whether the file only re-exports it)."""
        text = self.texts[module]
        plain = re.sub(r"\b(?:use\s+[^;]+|mod\s+\w+)\s*;", "", text)
        # A name behind a dot, or before a colon, is a field, a method or a parameter.
        found = [(path, exported and not re.search(r"(?<![.\w])%s\b(?!\s*:(?!:))" % re.escape(name), plain))
                 for path, name, exported in uses_of(text)]
        found += [(match.split("::"), False) for match in re.findall(r"\b(?:crate|super|self)(?:::\w+)+", plain)]
        children = {child[-1] for child in self.texts if child[:-1] == module and child}
        found += [(match.split("::"), False) for match in re.findall(r"(?<![:\w])[a-z_]\w*(?:::\w+)+", plain)
                  if match.split("::")[0] in children]
        for path, only_exported in found:
            absolute = self.absolute(module, path)
            if absolute is not None:
                yield absolute, only_exported

    def edges(self):
        """Which file knows which."""
        return {module: {self.named(path) for path, only_exported in self.paths(module) if not only_exported} - {module}
                for module in self.texts}

    def ladders(self):
        """For each module with modules in it: the arrows between these, each with the pairs of files that make it."""
        found = {}
        for module in self.texts:
            for path, _ in self.paths(module):
                for other in {self.named(path), self.comes_from(path)}:
                    shared = len(os.path.commonprefix([module, other]))
                    if shared < min(len(module), len(other)):
                        arrow = module[:shared + 1], other[:shared + 1]
                        found.setdefault(module[:shared], {}).setdefault(arrow, set()).add((module, other))
        return found

    def with_behaviour(self):
        """The names of the structs that have behaviour."""
        found = set()
        for text in self.texts.values():
            for match in IMPL.finditer(text):
                head = without_generics(match.group(1)).split(" where ")[0]
                trait, _, kind = head.rpartition(" for ")
                name = re.match(r"[\s&]*(?:\w+::)*(\w+)", kind)
                if name and trait.split("::")[-1].strip() not in PLAIN_TRAITS:
                    if TAKES_SELF.search(text[match.start():block_end(text, match.end() - 1)]):
                        found.add(name.group(1))
        return found

    def wide_structs(self):
        """(module, name, number of fields) of every struct with behaviour that has more than `FIELDS_MAX` fields."""
        with_behaviour = self.with_behaviour()
        for module, text in sorted(self.texts.items()):
            for name, body in STRUCT.findall(text):
                count = len(FIELD.findall(body))
                if count > FIELDS_MAX and name in with_behaviour:
                    yield module, name, count


def without_generics(text):
    """The text without what stands in angle brackets."""
    out, depth = "", 0
    for character in re.sub("->", "", re.sub(r"\s+", " ", text)):
        depth -= character == ">"
        out += character if depth == 0 and character not in "<>" else ""
        depth += character == "<"
    return " " + out


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


def upwards(arrows):
    """The fewest arrows, each counted as often as pairs of files make it, whose loss leaves no circle."""
    known = {}
    for one, other in arrows:
        known.setdefault(one, set()).add(other)
        known.setdefault(other, set())
    found = []
    for group in circles(known):
        inside = {arrow: len(files) for arrow, files in arrows.items() if set(arrow) <= set(group)}
        place = {folder: at for at, folder in enumerate(ladder_of(sorted(group), inside))}
        found += [arrow for arrow in inside if place[arrow[0]] < place[arrow[1]]]
    return sorted(found)


def ladder_of(folders, weights):
    """The folders from the ground up, so that the arrows that run upwards weigh least."""
    def cost(folder, below):
        """What it costs to put a folder on the next step: its arrows to folders that are not below it."""
        return sum(weight for (one, other), weight in weights.items() if one == folder and other not in below)

    if len(folders) > FOLDERS_EXACT_MAX:
        placed = []
        while len(placed) < len(folders):
            placed.append(min((folder for folder in folders if folder not in placed),
                              key=lambda folder: (cost(folder, placed), folder)))
        return placed
    best = {frozenset(): (0, ())}
    for size in range(1, len(folders) + 1):
        for group in map(frozenset, itertools.combinations(folders, size)):
            best[group] = min((best[group - {last}][0] + cost(last, group), best[group - {last}][1] + (last,))
                              for last in sorted(group))
    return list(best[frozenset(folders)][1])


def too_much(source):
    """What breaks the limits in the crate whose sources lie in the folder `source`: (kind, what it is about, text)."""
    sys.setrecursionlimit(10_000)
    crate = Crate(source)
    for group in circles(crate.edges()):
        if len(group) > CIRCLE_FILES_MAX:
            names = sorted(crate.path_of(module) for module in group)
            yield "circle", "", "circle of %d files: %s" % (len(group), " ".join(names))
    for _, arrows in sorted(crate.ladders().items()):
        for one, other in upwards(arrows):
            pairs = ", ".join("%s -> %s" % tuple(crate.path_of(module) for module in pair)
                              for pair in sorted(arrows[one, other]))
            yield "upwards", "%s -> %s" % ("::".join(one), "::".join(other)), pairs
    for module, name, count in crate.wide_structs():
        yield "fields", name, "%s: %s: %d fields, at most %d" % (crate.path_of(module), name, count, FIELDS_MAX)


def long_functions(text):
    """(line, name, lines) of every function in Rust code with more than `FUNCTION_LINES_MAX` lines."""
    code = code_of(text)
    for match in FUNCTION.finditer(code):
        brace, semicolon = code.find("{", match.end()), code.find(";", match.end())
        if brace < 0 or 0 <= semicolon < brace and "[" not in code[match.end():semicolon]:
            continue
        start = match.end(1)
        lines = code.count("\n", start, block_end(code, brace)) + 1
        if lines > FUNCTION_LINES_MAX:
            yield code.count("\n", 0, start) + 1, match.group(1), lines


def sources(folder):
    """The folders `src` of the workspace."""
    for found, folders, _ in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("target", ".tools", ".git", "node_modules"))
        if "src" in folders and os.path.exists(os.path.join(found, "Cargo.toml")):
            yield os.path.join(found, "src")


def main():
    """Prints what was found; nothing is judged here."""
    sys.setrecursionlimit(10_000)
    for source in sources(sys.argv[1] if len(sys.argv) > 1 else "."):
        crate = Crate(source)
        for group in circles(crate.edges()):
            print("circle of %d: %s" % (len(group), " ".join(sorted(crate.path_of(module) for module in group))))
        for parent, arrows in sorted(crate.ladders().items()):
            up = upwards(arrows)
            for one, other in sorted(arrows):
                print("%s: %s -> %s%s" % (crate.path_of(parent), one[-1], other[-1],
                                          " UPWARDS" if (one, other) in up else ""))
        for module, name, count in crate.wide_structs():
            print("%s: %s: %d fields" % (crate.path_of(module), name, count))


if __name__ == "__main__":
    main()
