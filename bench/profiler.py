# SPDX-License-Identifier: MIT
"""Where the engine's time goes: perf samples of a guest's QEMU process, sorted by what the code at each address is for."""

import collections
import os
import re
import signal
import subprocess
import tempfile

from machine import Failure

HERTZ = 997
# What a sample is: (heading, source file in src/ or name of the mapping, and function). The first that matches counts.
KINDS = [
    ("translated", r"^/memfd:vpmu-code"),
    ("decoding", r"^engine/translate/(decoder|scan|source)\.c|^engine/decode\.c|/libZydis"),
    ("translation", r"^engine/translate/"),
    ("comparing", r" (guarded_same_line|cache_verify|cache_expect|begin|expect|epoch_\w+)$"),
    ("protecting", r" (tlb_)?(protect\w*|shared_claim\w*|shared_acknowledge\w*|claim\w*)$"),
    ("TLB misses", r"^engine/runtime/slow_\w+\.c|^cpu/mmu/(walk|tlb|access|linear)\.c|^base/guarded\.c|^mem/"),
    ("look-ups", r"^engine/runtime/(run|\w+_cache|\w+_cache_memory|find_block|fetch)\.c|^cpu/mmu/(code_pages|shared_code)\.c|^cpu/mode"),
    ("helpers", r"^(engine|cpu)/"),
    ("PMU", r"^(hwpmu|pmu|hostperf|timing)/"),
    ("hypervisor", r"^(vm|irq|kvm|preload|x86|base)/"),
    ("host kernel", r"^kernel "),
    ("QEMU, libc", r""),
]


class Mappings:
    """What lies where in a process."""

    def __init__(self, pid):
        self.rows, self.bases = [], {}
        with open(f"/proc/{pid}/maps") as lines:
            for line in lines:
                words = line.split(None, 5)
                begin, end = (int(part, 16) for part in words[0].split("-"))
                name = words[5].strip() if len(words) > 5 else "anonymous"
                self.rows.append((begin, end, name))
                self.bases.setdefault(name, begin - int(words[2], 16))

    def find(self, address):
        if address >> 63:
            return "kernel"
        return next((name for begin, end, name in self.rows if begin <= address < end), "anonymous")


def sources(library, addresses):
    """{address: (source file in src/, function)} for offsets in our library; inlined code belongs to its caller's file."""
    text = subprocess.run(["addr2line", "-a", "-f", "-i", "-e", library], input="\n".join(map(hex, addresses)),
                          capture_output=True, text=True, check=True).stdout
    found, address, lines = {}, None, iter(text.splitlines())
    for line in lines:
        if line.startswith("0x"):
            address = int(line, 16)
            continue
        path = next(lines).split(":")[0]
        if line.startswith("guarded_"):
            path = "base/guarded.c"  # in assembly, which has no line numbers
        if path.endswith((".c", ".S")) and address not in found:
            found[address] = (path.split("/src/")[-1], line)
    return found


def kind(place, function=""):
    return next(heading for heading, pattern in KINDS if re.search(pattern, f"{place} {function}"))


class Profile:
    """Samples a process between start() and stop()."""

    def __init__(self, pid):
        self.mappings, self.folder = Mappings(pid), tempfile.TemporaryDirectory(prefix="vpmu-profile-")
        self.data = self.folder.name + "/perf.data"
        control, self.control = os.pipe()
        self.answers, answers = os.pipe()
        self.perf = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-F", str(HERTZ), "-p", str(pid), "-D", "-1",
                                      f"--control=fd:{control},{answers}", "-o", self.data], pass_fds=(control, answers),
                                     stderr=subprocess.DEVNULL)
        os.close(control)
        os.close(answers)
        os.write(self.control, b"enable\n")
        if not os.read(self.answers, 16):
            raise Failure("perf does not work here")

    def stop(self):
        """Returns {place: samples} where a place is (source file or mapping, function)."""
        self.perf.send_signal(signal.SIGINT)
        self.perf.wait()
        os.close(self.control)
        os.close(self.answers)
        text = subprocess.run(["perf", "script", "-i", self.data, "-F", "ip"], capture_output=True, text=True).stdout
        self.folder.cleanup()
        return self.places(collections.Counter(int(word, 16) for word in text.split()))

    def places(self, addresses):
        names = {address: self.mappings.find(address) for address in addresses}
        library = next((name for name in self.mappings.bases if name.endswith("/libvpmu-kvm.so")), None)
        base = self.mappings.bases.get(library, 0)
        ours = sources(library, [a - base for a, name in names.items() if name == library]) if library else {}
        result = collections.Counter()
        for address, count in addresses.items():
            result[ours.get(address - base, (names[address], ""))] += count
        return result


def shares(places):
    """{heading: share of all samples}."""
    total, result = max(sum(places.values()), 1), {heading: 0.0 for heading, _ in KINDS}
    for (place, function), count in places.items():
        result[kind(place, function)] += count / total
    return result


def table(profiles, functions=6):
    """Lines of text for {workload: places}."""
    lines = [f"{'workload':<14}" + "".join(f"{heading:>13}" for heading, _ in KINDS)]
    for workload, places in profiles.items():
        lines.append(f"{workload:<14}" + "".join(f"{share:>13.1%}" for share in shares(places).values()))
    for workload, places in profiles.items():
        total = sum(places.values())
        most = [(place, count) for place, count in places.most_common() if place[1]][:functions]
        lines += ["", f"{workload}: the engine's functions that take most"]
        lines += [f"  {count / total:>6.1%}  {function} ({file})" for (file, function), count in most]
    return lines
