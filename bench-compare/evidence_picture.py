"""Draws bars as SVG: how much each server does, beside one of them that counts as 1."""

import html

WIDTH, ROW, HEAD, GAP, LEFT, RIGHT = 860, 22, 26, 14, 150, 190
STYLE = """.bars text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
.bars text, .bars .note { fill: #3d444d; } .bars .title { font-size: 17px; font-weight: 600; fill: #1f2328; }
.bars .head { font-weight: 600; fill: #1f2328; } .bars .ground { fill: #ffffff; }
.bars .bar { fill: #9aa3ad; } .bars .ours { fill: #2f6f4f; }
"""


def bars_of(picture, found, tables):
    """What to draw for a picture: title, and groups of bars, each with a name, its length and a note."""
    groups = []
    for group in picture["groups"]:
        table = tables.table_of(found, group["table"])
        column = tables.place_of(table, group["column"])
        # Less is better in each column: `plus` is what every server needs besides.
        needs = {row[0]: tables.number(row[column]) + group.get("plus", 0) for row in table["rows"]}
        bars = [[title, needs[picture["one"]] / needs[name], group["note"] % needs[name]]
                for name, title in picture["servers"]]  # fmt: skip
        groups.append({"title": group["title"], "bars": bars})
    return {"title": picture["title"], "groups": groups}


def svg(picture):
    """The picture as a file. The first bar of each group is ours."""
    longest = max(length for group in picture["groups"] for _, length, _ in group["bars"])
    parts, y = [], 54
    for group in picture["groups"]:
        parts.append('<text class="head" x="14" y="%d">%s</text>' % (y, html.escape(group["title"])))
        y += HEAD - 14
        for nth, (name, length, note) in enumerate(group["bars"]):
            width = (WIDTH - LEFT - RIGHT) * length / longest
            parts.append('<text x="%d" y="%d" text-anchor="end">%s</text>' % (LEFT - 8, y + 14, html.escape(name)))
            parts.append('<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>'
                         % ("bar ours" if nth == 0 else "bar", LEFT, y, width, ROW - 4))  # fmt: skip
            parts.append('<text x="%.1f" y="%d">%.2f &#215;  (%s)</text>'
                         % (LEFT + width + 6, y + 14, length, html.escape(note)))  # fmt: skip
            y += ROW
        y += GAP + 12
    height = y - 12
    title = html.escape(picture["title"])
    return ('<svg xmlns="http://www.w3.org/2000/svg" class="bars" width="%d" height="%d" viewBox="0 0 %d %d" '
            'role="img">\n'
            "<title>%s</title>\n<style>\n%s</style>\n"
            '<rect class="ground" width="%d" height="%d"/>\n<text class="title" x="14" y="28">%s</text>\n%s\n</svg>\n'
            % (WIDTH, height, WIDTH, height, title, STYLE, WIDTH, height, title, "\n".join(parts)))  # fmt: skip
