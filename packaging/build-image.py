#!/usr/bin/env python3
"""Makes an image of the server, target/image/larder.tar, from a program that is built. Nothing is fetched.

    packaging/build-image.py [PROGRAM [ARCHIVE]]     without PROGRAM, cargo builds it

The image has the program, the libraries that `ldd` names, taken from this machine, and an empty /data. User, ports,
command, stop signal and health check are those of the last stage of packaging/Containerfile. The archive is an OCI
layout and has docker's manifest as well: `podman pull docker-archive:FILE` and `docker load -i FILE` take it. (So does
`podman load`, which leaves out the health check.) The same files make the same archive, byte for byte.
"""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
NANOSECONDS = {"s": 10**9, "m": 60 * 10**9}
USER = 65532
SMALL_FILES = {
    "/etc/passwd": "larder:x:65532:65532::/data:/usr/sbin/nologin\n",
    "/etc/group": "larder:x:65532:\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
}


def containerfile():
    """The instructions of the last stage, by name."""
    with open(os.path.join(REPOSITORY, "packaging", "Containerfile")) as file:
        text = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", file.read()))
    stage = re.split(r"(?m)^FROM .*$", text)[-1]
    return dict(re.findall(r"(?m)^([A-Z]+) +(.+)$", stage))


def health_check(words):
    """docker's form of a HEALTHCHECK instruction."""
    flags, test = words.split("CMD", 1)
    found = {"Test": ["CMD"] + json.loads(test)}
    for name, number, unit in re.findall(r"--([a-z-]+)=(\d+)([sm])\b", flags):
        found[name.title().replace("-", "")] = int(number) * NANOSECONDS[unit]
    return found


def settings(layer_digest):
    """The image's configuration."""
    of = containerfile()
    return {
        "created": "1970-01-01T00:00:00Z",
        "architecture": ARCHITECTURES[os.uname().machine],
        "os": "linux",
        "config": {
            "User": of["USER"],
            "ExposedPorts": {port + "/tcp": {} for port in of["EXPOSE"].split()},
            "Entrypoint": json.loads(of["ENTRYPOINT"]),
            "Cmd": json.loads(of["CMD"]),
            "Volumes": {of["VOLUME"]: {}},
            "WorkingDir": of["WORKDIR"],
            "StopSignal": of["STOPSIGNAL"],
            "Healthcheck": health_check(of["HEALTHCHECK"]),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
    }


def add(tar, path, data=None, mode=0o644, owner=0):
    """Adds a file, or a folder where there is no data, with nothing in it that differs from one build to the next."""
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.mode, entry.uid, entry.gid = mode, owner, owner
    if data is None:
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    else:
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))


def content(path):
    """The bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


def stripped(program):
    """The bytes of the program without its debug symbols; with them where this machine has no `strip`."""
    if not shutil.which("strip"):
        return content(program)
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "larder")
        subprocess.run(["strip", "--strip-debug", "-o", made, program], check=True)
        return content(made)


def layer(program):
    """The tar of the image's one layer."""
    linked = subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True)
    libraries = re.findall(r"(?m)^\s*(?:\S+ => )?(/\S+) \(0x", linked.stdout)
    if "not found" in linked.stdout:
        sys.exit("a library is missing:\n" + linked.stdout)
    files = {path: (content(path), 0o755) for path in libraries}
    files |= {path: (text.encode(), 0o644) for path, text in SMALL_FILES.items()}
    files["/usr/bin/larder"] = (stripped(program), 0o755)
    files["/usr/share/doc/larder/LICENSE"] = (content(os.path.join(REPOSITORY, "LICENSE")), 0o644)
    folders = set()
    for path in files:
        while (path := os.path.dirname(path)) != "/":
            folders.add(path)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folders):
            add(tar, path, mode=0o755)
        add(tar, "/data", mode=0o755, owner=USER)
        for path, (data, mode) in sorted(files.items()):
            add(tar, path, data, mode)
    return made.getvalue()


def main():
    """Reads the command line and writes the archive."""
    if len(sys.argv) > 1:
        program = sys.argv[1]
    else:
        subprocess.run(["cargo", "build", "--release", "--locked", "--bin", "larder"], cwd=REPOSITORY, check=True)
        program = os.path.join(REPOSITORY, "target", "release", "larder")
    archive = sys.argv[2] if len(sys.argv) > 2 else os.path.join(REPOSITORY, "target", "image", "larder.tar")
    blobs = {}

    def blob(data, kind):
        """Keeps a part of the archive; returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        blobs["blobs/sha256/" + digest] = data
        return {"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(data)}

    unpacked = blob(layer(program), "layer.v1.tar")
    config = blob(json.dumps(settings(unpacked["digest"])).encode(), "config.v1+json")
    manifest = blob(json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                                "config": config, "layers": [unpacked]}).encode(), "manifest.v1+json")
    manifest["annotations"] = {"io.containerd.image.name": "docker.io/library/larder:latest",
                               "org.opencontainers.image.ref.name": "latest"}
    paths = ["blobs/sha256/" + part["digest"].split(":")[1] for part in (config, unpacked)]
    files = dict(blobs)
    files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode()
    files["manifest.json"] = json.dumps([{"Config": paths[0], "RepoTags": ["larder:latest"],
                                          "Layers": paths[1:]}]).encode()
    os.makedirs(os.path.dirname(os.path.abspath(archive)), exist_ok=True)
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in sorted(files.items()):
            add(tar, path, data)


if __name__ == "__main__":
    main()
