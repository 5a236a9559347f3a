#!/usr/bin/env python3
"""Makes an archive for machines without Debian's packages, and one file with the debug symbols of the program.

    packaging/build-archive.py PROGRAM FOLDER

FOLDER gets larder-VERSION-MACHINE-linux.tar.gz and larder-VERSION-MACHINE-linux.debug.gz. The archive has what the
Debian package has below /usr (`assets` in Cargo.toml). The same files make the same archive, byte for byte, with the
times that SOURCE_DATE_EPOCH says; else they are those of 1970. Needs objcopy (apt-get install binutils).
"""

import glob
import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIME = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def content(path):
    """The bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


def parted(program, name, work):
    """(program without its debug symbols, the file with them), by their paths; debuggers know the latter by `name`."""
    symbols, stripped = os.path.join(work, name), os.path.join(work, "larder")
    subprocess.run(["objcopy", "--only-keep-debug", program, symbols], check=True)
    subprocess.run(["objcopy", "--strip-unneeded", "--add-gnu-debuglink=" + symbols, program, stripped], check=True)
    return stripped, symbols


def files(assets, made):
    """The files below /usr of the Debian package: path in the archive -> (bytes, mode). `made` = what stands for
    those that the repository has not, by the start of their paths."""
    found = {}
    for source, at, mode in assets:
        if not at.startswith("usr/"):
            continue
        at = at.removeprefix("usr/").replace("zsh/vendor-completions", "zsh/site-functions")
        for start, instead in made.items():
            source = instead + source.removeprefix(start) if source.startswith(start) else source
        source = os.path.join(REPOSITORY, source)
        fixed = os.path.dirname(source.split("*")[0])
        for path in filter(os.path.isfile, glob.glob(source, recursive=True)):
            found[at + os.path.relpath(path, fixed)] = content(path), int(mode, 8)
    return found


def archive(path, root, members):
    """Writes a tar.gz with nothing in it that differs from one build to the next."""
    folders = set()
    for name in members:
        while name := os.path.dirname(name):
            folders.add(name)
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, TIME) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(folders | members.keys() | {""}):
            data, mode = members.get(name, (None, 0o755))
            entry = tarfile.TarInfo(os.path.normpath(os.path.join(root, name)))
            entry.mode, entry.mtime, entry.size = mode, TIME, len(data or b"")
            entry.type = tarfile.REGTYPE if name in members else tarfile.DIRTYPE
            tar.addfile(entry, io.BytesIO(data or b""))


def main():
    """Reads the command line and writes both files."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, folder = sys.argv[1:]
    with open(os.path.join(REPOSITORY, "Cargo.toml"), "rb") as file:
        cargo = tomllib.load(file)
    name = "larder-%s-%s-linux" % (cargo["workspace"]["package"]["version"], os.uname().machine)
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        stripped, symbols = parted(program, name + ".debug", work)
        pages = os.path.join(work, "pages")
        subprocess.run([os.path.join(REPOSITORY, "packaging", "build-pages.sh"), program, pages], check=True)
        made = {"target/release/larder": stripped, "target/packaging": pages}
        archive(os.path.join(folder, name + ".tar.gz"), name,
                files(cargo["package"]["metadata"]["deb"]["assets"], made))
        with open(os.path.join(folder, name + ".debug.gz"), "wb") as raw, \
                gzip.GzipFile("", "wb", 6, raw, TIME) as packed:
            packed.write(content(symbols))


if __name__ == "__main__":
    main()
