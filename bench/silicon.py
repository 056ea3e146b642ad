# SPDX-License-Identifier: MIT
"""The machine that bench/truth runs on, and the guest that is compared with it: which of vpmu's models has the host's core, the
cycles of programs natively, without a PMU, and what a guest with full timing counts."""

import os
import re
import resource
import subprocess

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
VPMU = os.path.join(TOP, "build/vpmu")
WORK = os.path.join(TOP, "build/bench/work")
LADDER = os.path.join(TOP, "build/bench/ladder")
SECONDS = 1800  # limit for one command

last_level = []  # options of guests

# Vendor, family, models: vpmu's model of that core.
HOSTS = [
    ("GenuineIntel", 6, {85}, "skylake"),
    ("GenuineIntel", 6, {106, 108}, "icelake"),
    ("GenuineIntel", 6, {143, 207}, "sapphirerapids"),
    ("AuthenticAMD", 25, set(range(0x00, 0x10)), "milan"),
    ("AuthenticAMD", 25, set(range(0x10, 0x20)) | set(range(0xa0, 0xb0)), "genoa"),
]


def host():
    """The vendor, and the model of vpmu that has the host's core, or None."""
    text = open("/proc/cpuinfo").read()
    vendor = re.search(r"vendor_id\s*:\s*(\S+)", text)[1]
    family, model = (int(re.search(rf"{name}\s*:\s*(\d+)", text)[1]) for name in ("cpu family", "\nmodel"))
    for row in HOSTS:
        if row[:2] == (vendor, family) and model in row[2]:
            return vendor, row[3]
    return vendor, None


def make(*targets):
    subprocess.run(["make", "-s", "-C", TOP, *targets], check=True)


def output(command, **arguments):
    return subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=True, timeout=SECONDS,
                          **arguments).stdout


def measure_last_level(life=None):
    """From now on guests keep lines in their last level for as long as the host does: others use the host's, too. In cycles, measured
    unless it is given; the median of nine, since this is run on machines that are never quite quiet."""
    told = life is not None
    if not told:
        make("build/bench/ladder")
        life = sorted(int(output([LADDER, "life"]).split()[1]) for turn in range(9))[4]
    last_level[:] = ["--llc-life", str(life)] if life else []
    how = f"stay for {life / 1e6:.2f} million cycles" if life else "stay"
    print(f"last level: lines {how}, as {'told' if told else 'measured'}; guests with {' '.join(last_level) or 'no --llc-life'}", flush=True)


def in_guest(model, command, options=()):
    """What a command prints in a guest with full timing."""
    return output([VPMU, "exec", "--cpu", model, "--timing", "full", *last_level, *options, "--", *command])


def clock():
    """Cycles of a nanosecond, by a chain of dependent ADDs."""
    return float(output([WORK, "clock"]).split()[2])


def run_native(command):
    """Cycles in user mode and share of the kernel, by CPU time and the clock before and after."""
    before, start = clock(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=SECONDS)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = end.ru_utime - start.ru_utime, end.ru_stime - start.ru_stime
    return user * 1e9 * (before + clock()) / 2, system / max(user + system, 1e-9)
