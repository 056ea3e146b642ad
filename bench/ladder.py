# SPDX-License-Identifier: MIT
"""The ladder of bench/truth: what an access costs in working sets of each size, natively and in a guest (bench/ladder.c)."""

import silicon
from silicon import LADDER

KBYTES = [16, 24, 64, 128, 256, 1024, 2048, 4096, 8192, 65536, 131072]
FAR = 0.3  # what the model may be off


def read(text):
    return {(kind, int(size)): float(cycles) for kind, size, cycles in (line.split() for line in text.splitlines())}


def ladder(model, rounds):
    silicon.make("all", "build/bench/ladder")
    sizes = [str(size) for size in KBYTES]
    native = {}
    for turn in range(rounds):
        for key, cycles in read(silicon.output([LADDER, "-r", "3", *sizes])).items():
            native[key] = min(cycles, native.get(key, cycles))
    guest = read(silicon.in_guest(model, [LADDER, *sizes], ["-m", "1G"]))
    print(f"{'':<8}{'KBytes':>8}{'native':>10}{model:>10}{'error':>10}   (cycles: of a load; of a line)")
    for kind in ("chase", "stream"):
        for size in KBYTES:
            there, here = native[kind, size], guest[kind, size]
            error = here / there - 1
            print(f"{kind:<8}{size:>8}{there:>10.1f}{here:>10.1f}{100 * error:>+8.0f} %{'  far off' if abs(error) > FAR else ''}")
