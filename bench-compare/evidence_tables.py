"""The tables of a run: read from what a program prints, compared with older ones, asked for single figures, and shown
in Markdown. A table is a title, names of columns and rows of cells; a cell is the text as it was printed.
"""

import ast
import itertools
import json
import operator
import re

NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
MARK = re.compile(r"<!-- table ([\w-]+) \"([^\"]+)\"(.*?)-->\n(.*?)<!-- end -->", re.S)
COLUMN = re.compile(r"(?:#(\d+)|(.+?))(?:\*([\d.]+))?(?::\.(\d))?(?: -> (.*))?")
# Where a run says nothing, a figure may differ by this much: a counted one by nothing.
TOLERANCES = {"counted": 0.0, "timed": 0.1}


def number(cell):
    """The number that a cell begins with, or None."""
    found = NUMBER.match(str(cell).strip().strip("*$"))
    return float(found.group(0).replace(",", "")) if found else None


def shown(value, decimals=None):
    """A number as the tables show it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if decimals is not None:
        return "%.*f" % (decimals, value)
    return "%d" % value if float(value).is_integer() and abs(value) < 1e15 else "%.6g" % value


# Reading.


def parts_of(run):
    """The parts of a run: (what fills the braces of the command, the words in place of `{args}`, names)."""
    if "product" in run:
        names = list(run["product"])
        for values in itertools.product(*run["product"].values()):
            yield dict(zip(names, map(str, values))), [], [str(value) for value in values]
        return
    for each in run.get("each", [""]):
        if isinstance(each, str):
            yield {"each": each}, [], [each] if each else []
        else:
            yield {}, each["args"], [each["name"]]


def read(run, output, names=()):
    """The tables in what a program printed. `names` are those of the part of the run, if it has parts: they stand in
    the first columns, `parts` of the run, of tables made of lines and of reports, and behind the titles of others."""
    kind = run.get("format", "markdown")
    tables = {"markdown": markdown, "report": report, "bench": bench}.get(kind, lambda _: [])(output)
    if kind == "report":
        tables += charts(output, run.get("charts", []))
    heads = list(run.get("parts", run.get("product", [])))
    for table in tables:
        if heads:
            table["columns"] = heads + table["columns"]
            table["rows"] = [list(names) + row for row in table["rows"]]
        elif names and kind != "bench":
            table["title"] += ", " + ", ".join(names)
    for pattern in run.get("lines", []):
        rows = [[group or "" for group in found.groups()] for found in re.finditer(pattern["pattern"], output, re.M)]
        rows = [list(names) + row for row in rows]
        tables.append({"title": pattern["title"], "columns": pattern["columns"], "rows": rows})
    return tables


def markdown(text):
    """Tables in Markdown. A table is named by the last heading, or, where there are no headings, by the last line of
    text before it; a second one of the same name has a number behind it."""
    headings = bool(re.search(r"^#", text, re.M))
    tables, title, inside, names = [], "", False, {}
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
            if not inside:
                names[title] = names.get(title, 0) + 1
                count = " (%d)" % names[title] if names[title] > 1 else ""
                tables.append({"title": title + count, "columns": cells, "rows": []})
            elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                tables[-1]["rows"].append(cells)
        elif line and line.startswith("#") == headings:
            title = line.strip("# ")
        inside = line.startswith("|")
    return tables


def report(text):
    """The tables of a report of the workbench (`--json`). Those below a heading have it behind their title."""
    tables, heading = [], ""
    for part in report_of(text)["parts"]:
        heading = ", " + part["heading"] if "heading" in part else heading
        if "table" in part:
            table = part["table"]
            tables.append({"title": table["title"] + heading, "columns": table["columns"],
                           "rows": [[shown(cell) for cell in row] for row in table["rows"]]})  # fmt: skip
    return tables


def report_of(text):
    """The report in a file of JSON."""
    document = json.loads(text)
    return document.get("report", document)


def charts(text, titles):
    """Charts of a report as tables: a row for each point of a curve."""
    for chart in (part["chart"] for part in report_of(text)["parts"] if "chart" in part):
        if chart["title"] in titles:
            rows = [[series["name"], shown(x), shown(y)] for series in chart["series"] for x, y in series["points"]]
            yield {"title": chart["title"], "columns": ["curve", chart["x"]["label"], chart["y"]["label"]],
                   "rows": rows}  # fmt: skip


BENCH = ["server", "us a request", "least", "most", "requests/s", "p50 us", "p99 us", "hit ratio", "B an item"]


def bench(text):
    """A table for each load of `larder-bench-compare --json`: medians, and the least and most of the rounds."""
    tables = []
    for load in json.loads(text)["loads"]:
        rows = []
        for row in load["rows"]:
            if not row["median"]:
                continue
            costs = [one["server_us_per_request"] for one in row["rounds"]]
            last, median = row["rounds"][-1], row["median"]
            gets = last["hits"] + last["misses"]
            latency = median.get("latency") or {}
            memory = last.get("memory") or {}
            rows.append([row["server"]] + [shown(value, decimals) for value, decimals in (
                (median["server_us_per_request"], 3), (min(costs), 3), (max(costs), 3), (median["requests_per_s"], 0),
                (latency.get("p50_us"), 0), (latency.get("p99_us"), 0), (last["hits"] / gets if gets else None, 3),
                (memory.get("overhead_per_item"), 1))])  # fmt: skip
        tables.append({"title": load["load"], "columns": BENCH, "rows": rows})
    return tables


def derive(run, tables):
    """The tables, and those that the run makes of them."""
    found = list(tables)
    for pivot in run.get("pivot", []):
        found.append(pivoted(pivot, table_of(tables, pivot["from"])))
    for select in run.get("select", []):
        table = table_of(tables, select["from"])
        columns, rows = chosen(table | {"rows": rows_of(table, select.get("where"))}, select.get("columns", ""))
        found.append({"title": select["title"], "columns": columns, "rows": rows})
    for compose in run.get("compose", []):
        rows = []
        for row in compose["rows"]:
            table = table_of(tables, row["table"], missing=None)
            picked = [composed(table, {compose["by"]: name}, row) for name in row.get("names", compose["names"])]
            rows.append(row["cells"] + picked + row.get("more", []))
        found.append({"title": compose["title"], "columns": compose["columns"], "rows": rows})
    for summary in run.get("summary", []):
        found.append(summed(summary, table_of(found, summary["from"])))
    for less in run.get("less", []):
        one, other = (table_of(found, less[name]) for name in ("one", "other"))
        rows = [row for row in zip(one["rows"], other["rows"]) if number(row[0][0]) > less["after"]][: less["rows"]]
        found.append({"title": less["title"], "columns": one["columns"], "rows": [
            [cells[0]] + ["%+.2f" % (number(cell) - number(there)) for cell, there in list(zip(cells, others))[1:]]
            for cells, others in rows]})  # fmt: skip
    found += [joined(join, found) for join in run.get("join", [])]
    for reckon in run.get("reckon", []):
        rows = []
        for row in reckon["rows"]:
            names = {name: pick(found, {"table": reckon["from"], "column": spec["column"],
                                        "row": row["where"] | spec["row"]})
                     for name, spec in reckon["of"].items()}  # fmt: skip
            figures = [evaluate(text, names) for text in reckon["values"]]
            rows.append(row["cells"] + [shown(figure, reckon.get("decimals")) for figure in figures])
        found.append({"title": reckon["title"], "columns": reckon["columns"], "rows": rows})
    kept = run.get("keep")
    return [table for table in found if not kept or table["title"] in kept]


def composed(table, where, row):
    """A figure of a composed table; with `spread` the least and the most of the rounds behind it."""
    found = rows_of(table, where) if table else []
    if not found:
        return ""
    columns = [row["column"]] + (["least", "most"] if row.get("spread") else [])
    figures = [shown(number(found[0][place_of(table, column)]), row.get("decimals")) for column in columns]
    return figures[0] + (" (%s to %s)" % tuple(figures[1:]) if row.get("spread") else "")


def pivoted(pivot, table):
    """One row for each value of a column, one column for each value of another, or several where `value` is a list."""
    values = pivot["value"] if isinstance(pivot["value"], list) else [pivot["value"]]
    down, across = place_of(table, pivot["rows"]), place_of(table, pivot["columns"])
    cells, names, heads = {}, [], []
    for row in rows_of(table, pivot.get("where")):
        for value in values:
            head = pivot.get("head", "%s") % row[across] + (": " + value if len(values) > 1 else "")
            cells[row[down], head] = row[place_of(table, value)]
            names += [row[down]] if row[down] not in names else []
            heads += [head] if head not in heads else []
    names = [name for name in pivot.get("only", names) if name in names]
    decimals = pivot.get("decimals")
    cell = lambda text: shown(number(text), decimals) if decimals is not None and text else text  # noqa: E731
    return {"title": pivot["title"], "columns": [pivot["rows"]] + heads,
            "rows": [[name] + [cell(cells.get((name, head), "")) for head in heads] for name in names]}  # fmt: skip


def joined(join, tables):
    """Columns of several tables side by side, by what stands in their first columns."""
    first = table_of(tables, join["columns"][0]["table"])
    rows = [[row[0]] for row in first["rows"] if not join.get("match") or re.search(join["match"], row[0])]
    for column in join["columns"]:
        table = table_of(tables, column["table"])
        place = place_of(table, column["column"])
        cells = {row[0]: row[place] for row in table["rows"]}
        for row in rows:
            row.append(cells.get(row[0], ""))
    return {"title": join["title"], "columns": [first["columns"][0]] + [column["head"] for column in join["columns"]],
            "rows": rows}  # fmt: skip


def summed(summary, table):
    """For each value of the column `by` the mean of another one, and the largest in brackets. Each case, some of the
    rows, is a column."""
    by, value, decimals = place_of(table, summary["by"]), place_of(table, summary["value"]), summary["decimals"]
    names, cells = list(dict.fromkeys(row[by] for row in table["rows"])), {}
    for case in summary["cases"]:
        for name in names:
            figures = [number(row[value]) for row in rows_of(table, case["where"] | {summary["by"]: name})]
            cells[name, case["head"]] = "%s (%s)" % (
                shown(sum(figures) / len(figures), decimals), shown(max(figures), decimals))  # fmt: skip
    heads = [case["head"] for case in summary["cases"]]
    return {"title": summary["title"], "columns": [summary["by"]] + heads,
            "rows": [[name] + [cells[name, head] for head in heads] for name in names]}  # fmt: skip


# Comparing.


def moved(old, new, tolerance, least):
    """What differs by more than the tolerance, as lines of text."""
    olds, news = ({table["title"]: table for table in tables} for tables in (old, new))
    for title in olds.keys() - news.keys():
        yield "%s: the table is gone" % title
    for title in [title for title in news if title not in olds]:
        yield "%s: a new table" % title
    for title in [title for title in news if title in olds]:
        one, other = olds[title], news[title]
        if one["columns"] != other["columns"] or len(one["rows"]) != len(other["rows"]):
            yield "%s: other columns, or another number of rows" % title
            continue
        for before, after in zip(one["rows"], other["rows"]):
            for column, was, now in zip(one["columns"], before, after):
                if not alike(was, now, tolerance, least):
                    yield "%s: %s, %s: %s, was %s" % (title, after[0], column, now or "nothing", was or "nothing")


def alike(was, now, tolerance, least):
    """Whether two cells say the same, all numbers within the tolerance."""
    if was == now:
        return True
    if NUMBER.sub("#", was) != NUMBER.sub("#", now):
        return False
    pairs = zip(*([float(text.replace(",", "")) for text in NUMBER.findall(cell)] for cell in (was, now)))
    return all(abs(one - other) <= max(least, tolerance * abs(one)) for one, other in pairs)


# Single figures.


def table_of(tables, title, missing=KeyError):
    """The table with this title; without a title the first one."""
    found = [table for table in tables if table["title"] == title] if title else tables[:1]
    if not found and missing is None:
        return None
    if len(found) != 1:
        raise KeyError("no single table '%s' among %s" % (title, [table["title"] for table in tables]))
    return found[0]


def place_of(table, column):
    """The place of a column, by its name or by its place from 1."""
    if isinstance(column, int):
        return column - 1
    if table["columns"].count(column) != 1:
        raise KeyError("no single column '%s' in '%s': %s" % (column, table["title"], table["columns"]))
    return table["columns"].index(column)


def wanted_of(table, row):
    """What stands at which places of the rows that are meant."""
    return {place_of(table, int(name[1:]) if re.fullmatch(r"#\d+", name) else name): value
            for name, value in (row or {}).items()}  # fmt: skip


def rows_of(table, row):
    """The rows that have what `row` says: of each of these columns a value, or one of a list."""
    wanted = wanted_of(table, row)
    return [cells for cells in table["rows"]
            if all(cells[place] in (value if isinstance(value, list) else [value]) for place, value in wanted.items())]


def pick_cells(table, row=None, column=None):
    """The cells of a column, or of a list of columns, in the rows that have what `row` says; without a column all that
    are numbers, except in the first one."""
    wanted, rows = wanted_of(table, row), rows_of(table, row)
    if not rows:
        raise KeyError("no row %s in '%s'" % (row, table["title"]))
    if column is not None:
        places = [place_of(table, name) for name in (column if isinstance(column, list) else [column])]
        return [cells[place] for cells in rows for place in places]
    others = [place for place in range(1, len(table["columns"])) if place not in wanted]
    return [cells[place] for cells in rows for place in others if number(cells[place]) is not None]


def pick(tables, spec):
    """One number, or a list of numbers, as `pick_cells` finds them."""
    cells = pick_cells(table_of(tables, spec.get("table")), spec.get("row"), spec.get("column"))
    numbers = [number(cell) for cell in cells]
    if None in numbers:
        raise KeyError("%s has cells that are no numbers: %s" % (spec, cells))
    return numbers[0] if len(numbers) == 1 else numbers


OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
FUNCTIONS = {"min": min, "max": max, "abs": abs, "mean": lambda numbers: sum(numbers) / len(numbers)}


def evaluate(text, names):
    """A sum of numbers and lists of numbers, such as `mean(1 - a / b)`. Lists are taken element by element."""
    return value_of(ast.parse(text, mode="eval").body, names)


def value_of(node, names):
    """The value of a part of an expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return pairwise(operator.mul, -1, value_of(node.operand, names))
    if isinstance(node, ast.BinOp):
        return pairwise(OPERATORS[type(node.op)], value_of(node.left, names), value_of(node.right, names))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        values = [value_of(argument, names) for argument in node.args]
        if node.func.id == "abs" and isinstance(values[0], list):
            return [abs(value) for value in values[0]]
        return FUNCTIONS[node.func.id](*values)
    raise ValueError("no expression of figures: %s" % ast.dump(node))


def pairwise(function, one, other):
    """A function of two numbers, of lists element by element."""
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            raise ValueError("lists of %d and %d figures" % (len(one), len(other)))
        return [function(*pair) for pair in zip(one, other)]
    if isinstance(one, list):
        return [function(value, other) for value in one]
    if isinstance(other, list):
        return [function(one, value) for value in other]
    return function(one, other)


def ours(claim, tables):
    """Our figure of a claim. `tables` has those of each run."""
    if "value" not in claim:
        return pick(tables[claim["run"]], claim)
    names = {name: pick(tables[spec.get("run", claim["run"])], spec) for name, spec in claim["of"].items()}
    return evaluate(claim["value"], names)


def bounds(claim):
    """The least and the largest figure with which a claim holds."""
    expected = claim.get("expected", [claim.get("at_least", float("-inf")), claim.get("at_most", float("inf"))])
    low, high = expected if isinstance(expected, list) else (expected, expected)
    slack = lambda end: max(claim.get("tolerance_least", 0), claim.get("tolerance", 0) * abs(end))  # noqa: E731
    return (low if low == float("-inf") else low - slack(low)), (high if high == float("inf") else high + slack(high))


def verdict(claim, value):
    """The verdict in words, and whether it is the one that is expected. `otherwise` is the verdict of a claim that is
    known not to hold."""
    low, high = bounds(claim)
    # A figure at the very end of the tolerance is within it.
    holds = low - 1e-9 <= value <= high + 1e-9
    return ("holds" if holds else claim.get("otherwise", "OUT OF TOLERANCE")), holds != ("otherwise" in claim)


def expected_text(claim):
    """What a claim expects."""
    if "at_least" in claim:
        return "at least " + shown(claim["at_least"])
    if "at_most" in claim:
        return "at most " + shown(claim["at_most"])
    expected = claim["expected"]
    return "%s to %s" % tuple(map(shown, expected)) if isinstance(expected, list) else shown(expected)


def tolerance_text(claim):
    """The tolerance of a claim."""
    parts = ["%g %%" % (100 * claim["tolerance"])] if claim.get("tolerance") else []
    parts += [shown(claim["tolerance_least"])] if claim.get("tolerance_least") else []
    return " or ".join(parts) or "none"


# Showing.


def row_of(cells):
    """A row of a table in Markdown."""
    return "| %s |" % " | ".join(str(cell) for cell in cells)


def table_text(columns, rows):
    """A table in Markdown."""
    return "\n".join([row_of(columns), "|" + "---|" * len(columns)] + [row_of(row) for row in rows]) + "\n"


def chosen(table, columns):
    """Columns and rows of a table as a page shows them. `columns` are separated by bars, each a name or `#` and a
    place, with a factor (`*100`), decimals (`:.2`) and another heading (`-> heading`) if wanted; none: all as they are.
    """
    wanted = [COLUMN.fullmatch(text.strip()).groups() for text in columns.split("|") if text.strip()]
    if not wanted:
        return table["columns"], table["rows"]
    places = [int(place) - 1 if place else place_of(table, name) for place, name, *_ in wanted]
    heads = [heading if heading is not None else table["columns"][place]
             for place, (*_, heading) in zip(places, wanted)]  # fmt: skip

    def cell(text, factor, decimals):
        value = number(text)
        if value is None or (factor is None and decimals is None):
            return text
        return shown(value * float(factor or 1), None if decimals is None else int(decimals))

    rows = [[cell(row[place], factor, decimals) for place, (_, _, factor, decimals, _) in zip(places, wanted)]
            for row in table["rows"]]  # fmt: skip
    return heads, rows


def beside(table, other):
    """The table with, in brackets, what each figure has more than the same one of another table."""
    rows = []
    for row in table["rows"]:
        same = next((cells for cells in other["rows"] if cells[0] == row[0]), None)
        cells = [row[0]]
        for column, cell in zip(table["columns"][1:], row[1:]):
            there = same[other["columns"].index(column)] if same and column in other["columns"] else ""
            more = number(cell) - number(there) if there and cell else 0.0
            cells.append("%s (%+.2f)" % (cell, more) if abs(more) > 0.005 else cell)
        rows.append(cells)
    return table | {"rows": rows}


def page(text, data):
    """A page with its marked tables made anew from the data of the runs; those without data stay as they are. Before
    the columns a mark may say `beside RUN`, which shows what differs from the same table of that run, and `rows "..."`,
    which leaves out the rows whose first cell does not fit."""

    def made(match):
        name, title, columns = match.group(1, 2, 3)
        if name not in data:
            return match.group(0)
        columns = " ".join(columns.split())
        table = table_of(data[name]["tables"], title)
        other, rows, columns = re.fullmatch(r'(?:beside ([\w-]+) ?)?(?:rows "([^"]*)" ?)?(.*)', columns).groups()
        if other:
            table = beside(table, table_of(data[other]["tables"], title))
        if rows:
            table = table | {"rows": [row for row in table["rows"] if re.search(rows, row[0])]}
        return match.group(0)[: match.start(4) - match.start(0)] + (
            table_text(*chosen(table, columns)) + "\n%s\n" % origin_text(name, data[name]) + "<!-- end -->"
        )

    return MARK.sub(made, text)


def origin_text(name, data):
    """Where the figures of a run come from, in one line."""
    return "Run `%s`: commit %s, %s, %s, %s." % (name, data["commit"], data["date"], data["processor"], data["kernel"])
