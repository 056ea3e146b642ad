# SPDX-License-Identifier: MIT
"""Names for the samples of vpmu record: of processes, and of functions wherever they are loaded. A file of this host names code of the
guest only if it has the build id of the guest's file."""

import os
import subprocess
import sys

import symbols

DEBUG_FILES = "/usr/lib/debug/.build-id"


def why(error, tool):
    """Why a tool of binutils does not answer."""
    if isinstance(error, FileNotFoundError):
        return f"there is no {tool}: run 'apt install binutils'"
    return f"{tool} takes too long" if isinstance(error, subprocess.TimeoutExpired) else f"cannot run {tool}: {error.strerror}"


def demangled(mangled):
    """{name: as its language has it, without parameters}, as perf shows it, by c++filt; nothing without it, which is said."""
    wanted = sorted(name for name in mangled if name.startswith(("_Z", "_R")))
    if not wanted:
        return {}
    try:
        done = subprocess.run(["c++filt", "-p", "-i"], input="".join(f"{name}\n" for name in wanted), text=True, errors="replace",
                              stdout=subprocess.PIPE, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"vpmu report: names of C++ and Rust stay mangled: {why(error, 'c++filt')}", file=sys.stderr)
        return {}
    lines = done.stdout.splitlines()
    return dict(zip(wanted, lines)) if len(lines) == len(wanted) else {}


class Process:
    def __init__(self, comm):
        self.comm, self.maps = comm, []

    def add(self, new):
        """A mapping, which takes the place of what was there."""
        self.maps = [old for old in self.maps if old.end <= new.start or new.end <= old.start] + [new]

    def find(self, address):
        return next((area for area in self.maps if area.start <= address < area.end), None)


class Processes:
    """What the records before a sample say of the guest's processes."""

    def __init__(self):
        self.known = {}

    def comm(self, pid, tid, name, new):
        if new or pid not in self.known:
            self.known[pid] = Process(name)
        if tid == pid:
            self.known[pid].comm = name

    def map(self, area):
        self.known.setdefault(area.pid, Process("")).add(area)

    def of(self, sample):
        return self.known.get(sample.pid) if sample.pid is not None else None


class Files:
    """ELF files by build id. given: those of --elf, which come first."""

    def __init__(self, given):
        self.given = [(os.path.basename(path), symbols.Elf(path)) for path in given]
        self.known = {elf.identity: elf for _, elf in self.given}

    def get(self, area):
        if area.identity not in self.known:
            self.known[area.identity] = self._open(area)
        return self.known[area.identity]

    def _open(self, area):
        """A mapped file has an absolute name; any other would be one of the current folder."""
        elf = self._same(area.name, area.identity) if area.identity != "-" and area.name.startswith("/") else None
        debug = self._same(f"{DEBUG_FILES}/{area.identity[:2]}/{area.identity[2:]}.debug", area.identity) if elf else None
        if debug:
            elf.use_symbols_of(debug)
        return elf

    @staticmethod
    def _same(path, identity):
        """A file, if it is the one that the guest has mapped."""
        try:
            elf = symbols.Elf(path)
        except (OSError, ValueError):
            return None
        return elf if elf.identity == identity else None

    def absolute(self, address):
        """(program, name): of a given file that is not position-independent."""
        for program, elf in self.given:
            name = elf.symbols.find(address)
            if name:
                return program, name
        return None, None


class Resolver:
    def __init__(self, kallsyms, elfs, kernel):
        """kernel: (start, end, name) of functions that the recording names."""
        rows = [(start, name, end - start, symbols.GLOBAL) for start, end, name in kernel]
        self.kernel = symbols.kernel_map(kallsyms) if kallsyms else symbols.Symbols.of(rows)
        self.files, self.processes = Files(elfs), Processes()

    def record(self, kind, value):
        """Takes note of what is no sample."""
        if kind == "comm":
            self.processes.comm(*value)
        elif kind == "map":
            self.processes.map(value)

    def _in_process(self, process, address):
        area = process.find(address)
        if not area:
            return None
        elf = self.files.get(area)
        name = elf.at_offset(address - area.start + area.offset) if elf else None
        return name or f"[{os.path.basename(area.name).strip('[]')}]"

    def _name(self, sample, process, address):
        if sample.part == "guest kernel":
            name = self.kernel.find(address)
        else:
            name = (process and self._in_process(process, address)) or self.files.absolute(address)[1]
        return name or f"{address & ~0xfff:#x}"

    def code(self, sample):
        """(file, start, size, address) of the function that a sample of user code is in, as its file has it, or None."""
        process = self.processes.of(sample)
        area = process.find(sample.addresses[0]) if process and sample.part == "guest user" else None
        elf = self.files.get(area) if area else None
        address = elf.address(sample.addresses[0] - area.start + area.offset) if elf else None
        found = elf.symbols.range(address) if address is not None else None
        return (elf.path, found[0], found[1], address) if found and found[1] else None

    def stack(self, sample):
        """What a sample is part of, and its frames, outermost first. A return address is after its CALL, where another function may
        begin."""
        if sample.what:
            return [sample.part], [sample.what]
        process = self.processes.of(sample)
        frames = [self._name(sample, process, address - bool(i)) for i, address in enumerate(sample.addresses)]
        frames.reverse()
        if sample.part == "guest kernel":
            return [sample.part], frames
        program = process.comm if process else self.files.absolute(sample.addresses[0])[0]
        return [sample.part, program or f"process of CR3 {sample.cr3:#x}"], frames
