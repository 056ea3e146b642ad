# SPDX-License-Identifier: MIT
"""The samples of vpmu record as perf.data. The guest is the system that perf seems to have recorded: its processes, files and kernel have
the numbers and addresses that they have in it, and each vCPU is a CPU. The hypervisor and the VMM are two processes more, with PIDs that
Linux does not give, whose functions are exits and accesses; so are processes that are known by their CR3 only."""

import os

import build_ids
import perf_file

FIRST_PID = (1 << 22) + 1  # PID_MAX_LIMIT of Linux is before it
PARTS = {"hypervisor": FIRST_PID, "VMM": FIRST_PID + 1}
FIRST_UNKNOWN = FIRST_PID + 16
PART_BASE = 0x10000000
KALLSYMS = b"[kernel.kallsyms]"


def nanoseconds(seconds):
    return 1 + int(seconds * 10**9)


class Part:
    """The hypervisor or the VMM: addresses for what it did."""

    def __init__(self, name, samples):
        self.pid, self.name = PARTS[name], f"/vpmu/{name}"
        self.names = sorted({sample.what for sample in samples if sample.part == name})
        self.addresses = {what: PART_BASE + build_ids.TEXT + build_ids.SLOT * i for i, what in enumerate(self.names)}
        self.identity, self.image = build_ids.image(self.names)

    def introduce(self, out):
        name, start = self.name.encode(), PART_BASE + build_ids.TEXT
        out.comm(0, self.pid, self.pid, os.path.basename(name), True)
        out.map(0, self.pid, start, start + build_ids.SLOT * len(self.names) + 0xFFF & ~0xFFF, build_ids.TEXT, name)
        out.build_id(perf_file.USER, name, self.identity)

    def keep(self):
        """Puts the names into perf's cache. OSError."""
        build_ids.keep(self.name.lstrip("/"), self.identity, "elf", self.image)


class Export:
    def __init__(self, out, file):
        samples = [value for _, kind, value in file.records if kind == "sample"]
        self.out = perf_file.Writer(out, file.frequency, any(len(sample.addresses) > 1 for sample in samples))
        self.parts = {name: Part(name, samples) for name in PARTS}
        self.unknown = {}  # PIDs by CR3
        self.count, self.problem = 0, None

    def write(self, file):
        kernel = [value for _, kind, value in file.records if kind == "kernel"]
        for value in kernel:
            self._kernel(*value)
        for _, _, (start, end, name) in file.symbols:
            if not any(first <= start < last for first, last, _ in kernel):  # a module's
                self.out.symbol(start, end, name.encode())
        for part in self.parts.values():
            if part.names:
                self._introduce(part)
        for when, kind, value in file.records:
            if kind != "kernel":
                getattr(self, "_" + kind)(nanoseconds(when), value)
        self.out.finish({perf_file.HOSTNAME: "guest", perf_file.OSRELEASE: "guest", perf_file.VERSION: "vpmu", perf_file.ARCH: "x86_64",
                         perf_file.CPUDESC: "vpmu"})

    def _introduce(self, part):
        part.introduce(self.out)
        try:
            part.keep()
        except OSError as error:
            self.problem = error  # samples without names are samples still

    def _kernel(self, start, end, identity):
        self.out.kernel(start, end)
        if len(identity) == 40:
            self.out.build_id(perf_file.KERNEL, KALLSYMS, identity)

    def _comm(self, when, value):
        pid, tid, name, new = value
        self.out.comm(when, pid, tid, name.encode(), new)

    def _map(self, when, area):
        name = area.name.encode()
        self.out.map(when, area.pid, area.start, area.end, area.offset, name)
        if area.identity != "-" and not area.identity.startswith("elf-"):
            self.out.build_id(perf_file.USER, name, area.identity)

    def _process(self, when, sample):
        """(PID, TID) of a guest's sample; of one that is known by its CR3 only, in the kernel too, they are made up."""
        if sample.pid is not None:
            return sample.pid, sample.tid
        if sample.cr3 not in self.unknown:
            self.unknown[sample.cr3] = pid = FIRST_UNKNOWN + len(self.unknown)
            self.out.comm(when, pid, pid, f"cr3 {sample.cr3:#x}".encode(), True)
        return (self.unknown[sample.cr3],) * 2

    def _sample(self, when, sample):
        if not sample.part:
            return
        self.count += 1
        part = self.parts.get(sample.part)
        if part:
            self.out.sample(when, sample.vcpu, perf_file.USER, part.pid, part.pid, [part.addresses[sample.what]])
        else:
            mode = perf_file.KERNEL if sample.part == "guest kernel" else perf_file.USER
            self.out.sample(when, sample.vcpu, mode, *self._process(when, sample), sample.addresses)


def write(file, out):
    """(how many samples were written, the OSError of perf's cache or None). OSError: of the file."""
    export = Export(out, file)
    export.write(file)
    return export.count, export.problem
