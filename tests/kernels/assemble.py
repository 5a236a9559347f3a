#!/usr/bin/env python3
"""The kernels of crates/cuda are assembled for every generation of devices that drivers know, without a device.

    .tools/venv/bin/python tests/kernels/assemble.py            # compares with crates/cuda/kernels/registers.txt
    .tools/venv/bin/python tests/kernels/assemble.py --write    # keeps the counts of these kernels

A driver does the same with hitmap.ptx when a server starts. What the assembler says of each kernel is kept: how many
registers a thread has, which limits how many threads a device runs at a time, and that nothing is spilled to memory.
"""

import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KERNELS = os.path.join(ROOT, "crates", "cuda", "kernels")
KEPT = os.path.join(KERNELS, "registers.txt")
# Volta, Turing, Ampere twice, Ada, Hopper, Blackwell.
DEVICES = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100")
SAID = re.compile(r"Compiling entry function '(\w+)'.*?"
                  r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?"
                  r"Used (\d+) registers", re.DOTALL)


def assembler():
    """The program that assembles PTX, of the package nvidia-cuda-nvcc-cu12."""
    packages = os.path.join(sys.prefix, "lib", "python*", "site-packages")
    found = glob.glob(os.path.join(packages, "nvidia", "cuda_nvcc", "bin", "ptxas"))
    if not found:
        raise SystemExit("there is no ptxas in %s: pip install -r tests/requirements.txt" % sys.prefix)
    # Some installers lose that it is a program.
    os.chmod(found[0], 0o755)
    return found[0]


def assemble(program, device):
    """The registers of each kernel on a device. A kernel that spills is an error."""
    ran = subprocess.run([program, "-v", "-arch=" + device, os.path.join(KERNELS, "hitmap.ptx"), "-o", os.devnull],
                         capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit("%s: hitmap.ptx is not assembled:\n%s" % (device, ran.stderr))
    counts = {}
    for kernel, stack, stores, loads, registers in SAID.findall(ran.stderr + ran.stdout):
        if (stack, stores, loads) != ("0", "0", "0"):
            raise SystemExit("%s: %s spills: %s bytes of stack, %s stored, %s loaded"
                             % (device, kernel, stack, stores, loads))
        counts[kernel] = int(registers)
    return counts


def table(program):
    """The registers of every kernel on every device, as they are kept."""
    release = re.search(r"release ([\d.]+)", subprocess.run([program, "--version"], capture_output=True, text=True,
                                                            check=True).stdout).group(1)
    by_device = {device: assemble(program, device) for device in DEVICES}
    kernels = sorted(by_device[DEVICES[0]])
    lines = ["Registers of a thread, by ptxas %s; no kernel spills. tests/kernels/assemble.py --write makes this."
             % release, "", "%-16s" % "kernel" + "".join("%8s" % device for device in DEVICES)]
    for kernel in kernels:
        lines.append("%-16s" % kernel + "".join("%8d" % by_device[device][kernel] for device in DEVICES))
    return "\n".join(lines) + "\n", len(kernels) * len(DEVICES)


def main():
    """Assembles, and compares with what is kept."""
    made, count = table(assembler())
    with open(os.path.join(KERNELS, "hitmap.ptx")) as file:
        entries = re.findall(r"\.visible \.entry (\w+)\(", file.read())
    if count != len(entries) * len(DEVICES):
        raise SystemExit("the assembler tells of %d kernels, and hitmap.ptx has %d for %d devices"
                         % (count, len(entries), len(DEVICES)))
    if sys.argv[1:] == ["--write"]:
        with open(KEPT, "w") as file:
            file.write(made)
        return
    with open(KEPT) as file:
        kept = file.read()
    if kept != made:
        raise SystemExit("the kernels are not as %s says; now:\n%s" % (os.path.relpath(KEPT, ROOT), made))
    print("%d passed, 0 failed" % count)


if __name__ == "__main__":
    main()
