"""What the documents of a package or an archive link to."""

import glob
import os
import re


def dangling(folder):
    """(how many documents a folder has, each link between files that leads nowhere: "DOCUMENT links to FILE")."""
    pages = glob.glob(os.path.join(folder, "**", "*.md"), recursive=True)
    found = []
    for page in pages:
        with open(page, encoding="utf-8") as file:
            links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", file.read())
        found += ["%s links to %s" % (page, link) for link in links
                  if "://" not in link and not os.path.exists(os.path.join(os.path.dirname(page), link))]
    return len(pages), found
