# SPDX-License-Identifier: MIT
"""Function shares of bench/truth: how the time of a program divides into its functions, by samples of cpu-clock natively and of cycles
in a guest with full timing, and how far the two are apart: half the sum of the differences, in points."""

import collections
import os
import re
import shutil
import subprocess

import silicon
from silicon import TOP, WORK

# Programs, for some four seconds natively; a guest does less of the same: fewer rounds of equal work.
NATIVE = {"xz": [WORK, "count", "xz", "10", "30"], "zlib": [WORK, "count", "zlib", "10", "20"],
          "sqlite": [WORK, "count", "sqlite", "100", "24"]}
GUEST = {"xz": [WORK, "count", "xz", "4", "1"], "zlib": [WORK, "count", "zlib", "3", "1"], "sqlite": [WORK, "count", "sqlite", "60", "1"]}
PERL = ("for my $round (1..{}) {{ my (%h, $s); for my $i (1..500000) "
        "{{ $h{{$i % 1000}} .= 'x' if $i =~ /[37]$/; $s += length($h{{$i % 77}} // '') }} print $s }}")
SMALL = 0.005  # functions with a smaller share in both are taken together
# Natively a sample falls on the instruction that is waited for. That is what precise samples name; the interrupt of the others comes after it.
# AMD's precise samples are of IBS, which cannot leave the kernel out.
PRECISE, OTHERWISE = "cycles:uppp", "cycles:u"
AMD = ("milan", "genoa")
PERIOD = 5003  # 60 functions of equal shares are 4 points apart by chance with 10,000 samples on both sides, 2 with 60,000


def functions(text):
    """{function: share} of what perf script prints: the function's name, or the object's."""
    found = collections.Counter()
    for line in text.splitlines():
        match = re.match(r"\s*[0-9a-f]+ (.*?)(?:\+0x[0-9a-f]+)? \((.*)\)$", line)
        if match:
            found[match[1] if match[1] != "[unknown]" else os.path.basename(match[2])] += 1
    total = sum(found.values())
    return {name: n / total for name, n in found.items()}, total


def script(data, **arguments):
    return subprocess.run(["perf", "script", "-i", data, "-F", "ip,sym,symoff,dso"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, timeout=silicon.SECONDS, **arguments).stdout


def record_native(command, folder):
    data = os.path.join(folder, "native.data")
    silicon.output(["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "10000", "-o", data, *command])
    return functions(script(data))


def record_guest(model, command, folder):
    data, event = os.path.join(folder, "guest.data"), OTHERWISE if model in AMD else PRECISE
    silicon.in_guest(model, ["perf", "record", "-q", "-e", event, "-c", str(PERIOD), "-o", data, *command], ["--rw", folder])
    return functions(script(data))


def distance(one, other):
    names = {name for name in (*one, *other) if max(one.get(name, 0), other.get(name, 0)) >= SMALL}
    apart = sum(abs(one.get(name, 0) - other.get(name, 0)) for name in names)
    rest = [1 - sum(shares.get(name, 0) for name in names) for shares in (one, other)]
    return (apart + abs(rest[0] - rest[1])) / 2


def show(name, native, guest, counts, most=6):
    print(f"{name}: {100 * distance(native, guest):.1f} points apart ({counts[0]} samples natively, {counts[1]} in the guest)")
    names = sorted({*native, *guest}, key=lambda key: -abs(native.get(key, 0) - guest.get(key, 0)))
    for key in names[:most]:
        print(f"    {100 * native.get(key, 0):>6.1f} {100 * guest.get(key, 0):>6.1f}  {key}")


def shares(model, pattern, folder):
    silicon.make("all", "build/bench/work")
    programs = {name: (NATIVE[name], GUEST[name]) for name in NATIVE}
    os.environ["PERL_HASH_SEED"] = "0"  # by chance some runs of one program take longer in hv_common() than others
    if shutil.which("perl"):
        programs["perl"] = ["perl", "-e", PERL.format(50)], ["perl", "-e", PERL.format(1)]
    for name, (native, guest) in programs.items():
        if not re.search(pattern, name):
            continue
        there, n = record_native(native, folder)
        here, m = record_guest(model, guest, folder)
        show(name, there, here, (n, m))
