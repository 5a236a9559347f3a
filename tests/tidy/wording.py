"""The texts that users read one at a time: the help of metrics and of flags. Each must be clear without its neighbours.

A text of a metric (`# HELP`) is a sentence or a phrase of at least four words that begins with a capital and ends in a
full stop. A text of a flag has at least three words and no full stop, because its default follows in brackets. Neither
begins with a preposition or "its", has a pronoun among its first four words, or points at a neighbour as "Bytes of
them." does.
"""

import re

METRIC_WORDS_MIN = 4
FLAG_WORDS_MIN = 3
PRONOUNS = ("it", "they", "them", "those", "ones")
PRONOUN_WORDS = 4
# Words that stand for something of the text before: "Bytes of them.", "Those of the log.", "accepted, as above".
POINTING = re.compile(
    r"(?<!all )(?<!one )(?<!each )(?<!some )\bof them\b|"
    r"\b(?:of|than) (?:these|those)\b(?! \w)|\bthose of\b|\breplaced ones\b|"
    r"\bdid\b(?! not)|\bas (?:above|below|before)\b|\bsee above\b|\b(?:ditto|likewise|whoever)\b", re.IGNORECASE)
NOT_FIRST = ("of", "by", "in", "on", "with", "without", "below", "above", "from", "among", "besides", "its",
                "their", "which", "who")

WORD = re.compile(r"[A-Za-z0-9][\w'/%.-]*")
STRING = r'"((?:[^"\\]|\\.|\\\n)*)"'
NAMED = re.compile(r'\(\s*(?:"[a-z][a-z0-9_]*"|names::[A-Z_]+)\s*,\s*' + STRING, re.S)
FIELD = re.compile(r"\bhelp:\s*" + STRING, re.S)
COUNTERS = re.compile(r"^counters! \{$(.*?)^\}$", re.M | re.S)
COUNTED = re.compile(r"((?:^\s*///[^\n]*\n)+)\s*\w+,", re.M)
FLAG = re.compile(r"^    Row \{ (.*?) \},$", re.M | re.S)
CLAP = re.compile(r"((?:^\s*///[^\n]*\n)+)((?:\s*#\[[^\n]*\n)*?\s*#\[arg\b)", re.M)


def plain(text):
    """A string literal as it is printed."""
    return re.sub(r"\\\n\s*", "", text).replace('\\"', '"').replace("\\\\", "\\")


def documented(lines):
    """Lines of a doc comment, joined."""
    return " ".join(line.strip()[3:].strip() for line in lines.strip().split("\n"))


def wrong_in_text(text):
    """What keeps a text from being understood by itself, or None."""
    words = WORD.findall(text)
    if words and words[0].lower() in NOT_FIRST:
        return 'it begins with "%s" and not with what it is about' % words[0]
    for before, word in zip([""] + words, words[:PRONOUN_WORDS]):
        if word.lower() in PRONOUNS and before != "because":
            return 'its beginning has the pronoun "%s" before the noun' % word
    match = POINTING.search(text)
    return '"%s" stands for something that the text does not name' % match.group(0) if match else None


def wrong_in_metric(text):
    """What is wrong with the help of a metric, or None."""
    if not (text[:1].isupper() or text[:1].isdigit()):
        return "it does not begin with a capital"
    if not text.endswith(".") or text.endswith(".."):
        return "it does not end in one full stop"
    if len(WORD.findall(text)) < METRIC_WORDS_MIN:
        return "it has fewer than %d words" % METRIC_WORDS_MIN
    return wrong_in_text(text)


def wrong_in_flag(text):
    """What is wrong with the help of a flag, or None."""
    if text.endswith("."):
        return "it ends in a full stop, before the default in brackets"
    if len(WORD.findall(text)) < FLAG_WORDS_MIN:
        return "it has fewer than %d words" % FLAG_WORDS_MIN
    return wrong_in_text(text)


def metrics(name, text):
    """(line, help) of every metric that a file of the server or the cache declares."""
    found = []
    if "Family" in text or name.startswith("crates/cache/src/"):
        found += [(match.start(1), plain(match.group(1))) for match in NAMED.finditer(text)]
    if "Family" in text:
        found += [(match.start(1), plain(match.group(1))) for match in FIELD.finditer(text)]
    for block in COUNTERS.finditer(text):
        found += [(block.start(1) + match.start(1), documented(match.group(1)))
                  for match in COUNTED.finditer(block.group(1))]
    for at, help_text in found:
        if help_text[:1].isupper() or " " in help_text:
            yield text.count("\n", 0, at) + 1, help_text


def flags(text):
    """(line, name, help, example or None, whether it takes a value) of every row of the table of flags."""
    for match in FLAG.finditer(text):
        row = match.group(1)
        if "Topic::Refused" in row or "Topic::Section" in row:
            continue
        name = re.search(r'name: "([^"]*)"', row)
        help_text = FIELD.search(row)
        example = re.search(r'example: "([^"]*)"', row)
        yield (text.count("\n", 0, match.start(1)) + 1, name.group(1) if name else "?",
               plain(help_text.group(1)) if help_text else "", example.group(1) if example else None,
               "takes:" in row)


def arguments(text):
    """(line, help) of every argument that clap prints the doc comment of."""
    for match in CLAP.finditer(text):
        rest = text[match.start(2):text.find("\n", text.find("]", match.end()))]
        if "skip" not in rest:
            yield text.count("\n", 0, match.start(1)) + 1, documented(match.group(1))
