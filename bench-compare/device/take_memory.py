#!/usr/bin/env python3
"""Takes memory with all cores, so that a machine whose memory grows as it is used has grown before it counts.

    take_memory.py GIB

Stops after 20 seconds, or when the kernel ends one of its processes because there is no more. Prints how many GiB it
got, in which time, and why it stopped.
"""

import mmap
import os
import signal
import sys
import time

SECONDS_MAX = 20
GIB = 1 << 30
# Linux 5.14 and later; Python does not name it.
MADV_POPULATE_WRITE = 23


def take(taken, number, wanted):
    """Takes memory until the parent ends this process; counts in `taken[number]`."""
    # If memory ends, the kernel ends this process and no other.
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    kept = []
    for _ in range(wanted):
        kept.append(mmap.mmap(-1, GIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        kept[-1].madvise(mmap.MADV_HUGEPAGE)
        kept[-1].madvise(MADV_POPULATE_WRITE)
        taken[number] += 1
    while True:
        signal.pause()


def main():
    """Takes and frees the memory."""
    wanted, processes = int(sys.argv[1]), min(len(os.sched_getaffinity(0)), 16)
    taken, begin, children = mmap.mmap(-1, mmap.PAGESIZE), time.monotonic(), []
    for number in range(processes):
        child = os.fork()
        if not child:
            try:
                take(taken, number, wanted * (number + 1) // processes - wanted * number // processes)
            finally:
                os._exit(1)
        children.append(child)
    ended = []
    while not ended and sum(taken[:processes]) < wanted and time.monotonic() - begin < SECONDS_MAX:
        time.sleep(0.02)
        ended = [child for child in children if os.waitpid(child, os.WNOHANG)[0]]
    got, seconds = sum(taken[:processes]), time.monotonic() - begin
    for child in set(children) - set(ended):
        os.kill(child, signal.SIGKILL)
    why = "all that was wanted" if got == wanted else "there was no more" if ended else "the time was over"
    print("%d GiB in %.1f s: %s" % (got, seconds, why))


if __name__ == "__main__":
    main()
