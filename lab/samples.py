# SPDX-License-Identifier: MIT
"""The file of vpmu record: a line for each sample, and before the samples that need them the lines that say which process has which
name and which file where. All are words; those that a guest chose are quoted as in a URL.

    # vpmu profile 2 frequency HZ
    TIME kernel START END BUILDID           the guest's kernel
    TIME comm PID TID NAME new|same         a thread's name; new: of a process that was not seen before, or executes another program
    TIME map PID START END OFFSET ID NAME   code of a file; ID: its build id, elf-… of its headers if it has none, or -
    TIME sample VCPU guest rip R cr3 C cpl L [pid P tid T] [stack ADDRESS…]
    TIME sample VCPU hypervisor STATE exit NAME
    TIME sample VCPU vmm STATE exit KVM_EXIT at ADDRESS
    TIME sample VCPU idle
    TIME symbol START END NAME              a function of the guest's kernel that is in samples; at the end"""

import shlex
import urllib.parse

HEADER = "# vpmu profile "
VERSIONS = "1", "2"  # the first has samples only
PERF_MAGIC = "PERFILE2", "2ELIFREP"  # of perf.data, in both byte orders
EXITS = {0: "unknown", 2: "io", 5: "hlt", 6: "mmio", 8: "shutdown", 10: "intr", 17: "internal-error"}  # KVM_EXIT_*


def quote(name):
    return urllib.parse.quote(name, safe="/:[]+@,")


def printable(text):
    """Without what would break lines or move a terminal's cursor."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def unquote(word):
    return printable(urllib.parse.unquote_to_bytes(word).decode(errors="replace"))


def check_range(start, end):
    if not 0 <= start < end <= 1 << 64:
        raise ValueError


class Map:
    def __init__(self, words):
        self.pid = int(words[0])
        self.start, self.end, self.offset = (int(word, 16) for word in words[1:4])
        self.identity, self.name = words[4], unquote(words[5])
        check_range(self.start, self.end)


class Sample:
    """part: "guest user", "guest kernel", "hypervisor", "VMM" or None, of an idle vCPU. what: the exit or access, outside of the guest.
    addresses: of the guest, innermost first: the instruction, then return addresses."""

    def __init__(self, words):
        self.vcpu, where = int(words[0]), words[1]
        self.part, self.what, self.addresses = None, None, []
        self.cr3 = self.pid = self.tid = None
        if where == "guest":
            self._guest(words[2:])
        elif where not in ("hypervisor", "vmm", "idle"):
            raise ValueError
        elif where != "idle" and words[2] == "R":
            self._outside(where, words[4:])

    def _outside(self, where, words):
        if where == "hypervisor":
            self.part, self.what = "hypervisor", f"exit {words[0]}"
        else:
            name = EXITS.get(int(words[0]), words[0])
            self.part, self.what = "VMM", f"{name} {words[2]}" if name in ("io", "mmio") else name
        self.what = printable(self.what)

    def _guest(self, words):
        stack = words.index("stack") if "stack" in words else len(words)
        fields = dict(zip(words[:stack:2], words[1:stack:2]))
        self.addresses = [int(word, 16) for word in [fields["rip"], *words[stack + 1:]]]
        self.cr3 = int(fields["cr3"], 16) & ~0xFFF
        self.part = "guest user" if int(fields["cpl"]) else "guest kernel"
        if "pid" in fields:
            self.pid, self.tid = int(fields["pid"]), int(fields["tid"])


def check_header(path, line):
    if line.startswith(PERF_MAGIC):
        raise ValueError(f"{path} is a file of perf record: perf report -i {shlex.quote(path)} shows it")
    words = line[len(HEADER):].split()
    if not line.startswith(HEADER) or not words:
        raise ValueError(f"{path} is not a profile of vpmu record")
    if words[0] not in VERSIONS:
        raise ValueError(f"{path} is a profile of another version of vpmu record")
    return int(words[2]) if words[1:2] == ["frequency"] and words[2:3] and words[2].isdigit() else 499


def parse(line):
    """(time, kind, value) of a line. ValueError: it is none."""
    words = line.split()
    try:
        when, kind, rest = float(words[0]), words[1], words[2:]
        if kind == "sample":
            return when, kind, Sample(rest)
        if kind == "map":
            return when, kind, Map(rest)
        if kind == "comm":
            return when, kind, (int(rest[0]), int(rest[1]), unquote(rest[2]), rest[3] == "new")
        if kind in ("kernel", "symbol"):
            start, end = int(rest[0], 16), int(rest[1], 16)
            check_range(start, end)
            return when, kind, (start, end, unquote(rest[2]))
    except (IndexError, KeyError, ValueError):
        pass
    raise ValueError(f"this is not a sample: {printable(' '.join(words)[:80])}")


class File:
    """What vpmu record wrote: frequency, and records as parse() has them. Lines that name the kernel's functions come first, wherever
    they are in the file."""

    def __init__(self, path, lines):
        self.records, self.symbols = [], []
        self.frequency = check_header(path, lines.readline())
        for line in lines:
            record = parse(line)
            (self.symbols if record[1] == "symbol" else self.records).append(record)


def read(path):
    with open(path, encoding="utf-8", errors="backslashreplace") as lines:
        return File(path, lines)
