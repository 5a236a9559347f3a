"""The page of figures: what was asked, answered in a few lines, and below them the tables of all parts."""

import os


def write(path, found, wanted):
    """Writes the page of what is found (records by part), in the order of the parts wanted."""
    named = [found[part.name] for part in wanted if part.name in found]
    text = ["# Figures of a machine with a GPU and many cores", ""]
    if any(record["rehearsal"] for record in found.values()):
        text += ["**A rehearsal: tiny sizes, and a stand-in for the driver. These figures mean nothing.**", ""]
    rows = [row for record in named for row in record["rows"]]
    text += ["| asked | found | bar |", "|---|---|---|"]
    text += ["| %s | %s | %s |" % line for line in answers(rows)]
    for record in named:
        text += ["", "## %s" % record["title"], "",
                 "Part `%s`, %s s: %s." % (record["part"], record["seconds"], record.get("why", record["state"]))]
        for name in dict.fromkeys(row["table"] for row in record["rows"]):
            text += [""] + table([row for row in record["rows"] if row["table"] == name])
    missing = [part.name for part in wanted if part.name not in found]
    if missing:
        text += ["", "Not done: %s." % ", ".join(missing)]
    # The page is there at any moment, the old one or the new one.
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write("\n".join(text) + "\n")
    os.replace(path + ".new", path)


def table(rows):
    """The lines of a table in Markdown."""
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "table"]
    shown = [[cell(row.get(name)) for name in names] for row in rows]
    kinds = ["---:" if all(isinstance(row.get(name), (int, float, type(None))) for row in rows) else "---"
             for name in names]
    return ["| %s |" % " | ".join(words) for words in [names, kinds, *shown]]


def cell(value):
    """A value in a table."""
    return "" if value is None else str(value).replace("|", "/").replace("\n", " ")


def answers(rows):
    """(what is asked, what is found, the bar) of each question; what is not known is a dash."""
    def only(**wanted):
        return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]

    def one(name, **wanted):
        found = [row[name] for row in only(**wanted) if row.get(name) is not None]
        return found[0] if found else None

    def ratio(above, below):
        return "%.3g" % (above / below) if above and below else "-"

    same = only(table="same")
    yield ("maps whose bits and zones are those of the CPU, of 4",
           "%d, after %s references each" % (len(same), same[0]["references"]) if same else "-", "4")
    for layout in ("line", "published"):
        rate = one("million_a_second", table="marks", layout=layout, memory="explicit", batch=10_000)
        yield "million references/s, map `%s`, batches of 10,000" % layout, rate or "-", "100"
        whole = one("whole_us", table="marks", layout=layout, memory="explicit", batch=10_000)
        yield "us from submission to answer, the same", whole or "-", ""
    cost = {row["server"]: row.get("server us/request") for row in only(table="big")}
    for name in ("hitmap-cuda", "hitmap-cpu", "published-cuda"):
        yield ("full cache: server CPU a request, `%s` / `entry`" % name, ratio(cost.get(name), cost.get("entry")),
               "1.02" if name == "hitmap-cuda" else "")
    for peer in ("memcached", "valkey"):
        yield "full cache: server CPU a request, %s / Larder" % peer, ratio(cost.get(peer), cost.get("entry")), "2"
    workers = sorted({row["workers"] for row in only(table="cores")})
    if len(workers) > 1:
        for server in ("larder", "memcached", "valkey"):
            for what, bar in (("capacity/s", "10 of 12" if server == "larder" else ""), ("requests/s", "")):
                of = [one(what, table="cores", load="get-32", server=server, workers=count)
                      for count in (workers[-1], workers[0])]
                yield "GET 32 B, %s of %s, %d workers / %d" % (what, server, workers[-1], workers[0]), ratio(*of), bar
