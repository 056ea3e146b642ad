# SPDX-License-Identifier: MIT
"""Writes perf.data, as perf and its readers want it (tools/perf/Documentation/perf.data-file-format.txt, include/uapi/linux/perf_event.h
of Linux): one event, records in the order of time, and the features that say which files and which machine they are of."""

import struct

MAGIC = b"PERFILE2"
HEADER = struct.Struct("<8sQQQQQQQQQQQQ")  # size, attr size, (offset, size) of attrs, data and event types, four words of features
SECTION = struct.Struct("<QQ")
RECORD = struct.Struct("<IHH")  # type, misc, size
ATTR_SIZE = 112  # PERF_ATTR_SIZE_VER5
MAX_RECORD = 0xFFF8
NAME_ALIGN = 64  # of strings in features

TYPE_SOFTWARE, CPU_CLOCK = 1, 0
IP, TID, TIME, CALLCHAIN, CPU, PERIOD = 1, 2, 4, 0x20, 0x80, 0x100  # PERF_SAMPLE_*
# Bits of perf_event_attr: inherit, mmap, comm, freq, task, sample_id_all, mmap2, comm_exec, ksymbol
FLAGS = 1 << 1 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 13 | 1 << 18 | 1 << 23 | 1 << 24 | 1 << 31
MMAP, COMM, SAMPLE, MMAP2, KSYMBOL = 1, 3, 9, 10, 17  # PERF_RECORD_*
OUT_OF_LINE = 2  # PERF_RECORD_KSYMBOL_TYPE_OOL: code that no file has
KERNEL, USER = 1, 2  # PERF_RECORD_MISC_*: the mode that a record is of
COMM_EXEC, BUILD_ID_SIZE = 1 << 13, 1 << 15
CONTEXT = {KERNEL: (1 << 64) - 128, USER: (1 << 64) - 512}  # PERF_CONTEXT_*
PROT_READ_EXEC, MAP_PRIVATE = 5, 2
EVERYONE = 0xFFFFFFFF  # the PID of the kernel's maps
# Features: HEADER_*
BUILD_ID, HOSTNAME, OSRELEASE, VERSION, ARCH, NRCPUS, CPUDESC, CMDLINE, EVENT_DESC = 2, 3, 4, 5, 6, 7, 8, 11, 12


def padded(text, align=8):
    """A string and its 0, and more of them."""
    return text + bytes(align - len(text) % align)


def string(text):
    data = padded(text, NAME_ALIGN)
    return struct.pack("<I", len(data)) + data


class Writer:
    """records() are added, then finish() writes the file. stacks: samples have callers."""

    def __init__(self, out, frequency, stacks):
        self.out, self.period, self.stacks = out, 10**9 // frequency, stacks
        self.frequency, self.build_ids, self.cpus = frequency, {}, 0
        self.data_at = HEADER.size + ATTR_SIZE + SECTION.size
        out.write(bytes(self.data_at))
        self.size = 0

    def _record(self, kind, misc, body):
        if RECORD.size + len(body) > MAX_RECORD:
            raise ValueError("a record is too long")
        self.out.write(RECORD.pack(kind, misc, RECORD.size + len(body)) + body)
        self.size += RECORD.size + len(body)

    @staticmethod
    def _identity(when, pid, tid, cpu=0):
        """What ends each record but samples (sample_id_all)."""
        return struct.pack("<IIQII", pid, tid, when, cpu, 0)

    def comm(self, when, pid, tid, name, new):
        """A thread's name. new: the process executes another program, so that its maps are gone."""
        self._record(COMM, COMM_EXEC if new else 0, struct.pack("<II", pid, tid) + padded(name[:15]) + self._identity(when, pid, tid))

    def map(self, when, pid, start, end, offset, name):
        body = struct.pack("<IIQQQIIQQII", pid, pid, start, end - start, offset, 0, 0, 0, 0, PROT_READ_EXEC, MAP_PRIVATE)
        self._record(MMAP2, USER, body + padded(name[:4095]) + self._identity(when, pid, pid))

    def kernel(self, start, end):
        """Where the kernel is. The name says which of its symbols is at the start, for perf to find out how far it was moved."""
        body = struct.pack("<IIQQQ", EVERYONE, 0, start, end - start, start)
        self._record(MMAP, KERNEL, body + padded(b"[kernel.kallsyms]_text") + self._identity(0, EVERYONE, 0))

    def symbol(self, start, end, name):
        """A function that is not in the kernel itself."""
        body = struct.pack("<QIHH", start, min(end - start, 0xFFFFFFFF), OUT_OF_LINE, 0)
        self._record(KSYMBOL, 0, body + padded(name[:255]) + self._identity(0, EVERYONE, 0))

    def sample(self, when, cpu, mode, pid, tid, addresses):
        """addresses: the instruction's, then those of its callers."""
        self.cpus = max(self.cpus, cpu + 1)
        body = struct.pack("<QIIQIIQ", addresses[0], pid, tid, when, cpu, 0, self.period)
        if self.stacks:
            body += struct.pack(f"<{2 + len(addresses)}Q", 1 + len(addresses), CONTEXT[mode], *addresses)
        self._record(SAMPLE, mode, body)

    def build_id(self, mode, name, identity):
        """identity: hex digits."""
        self.build_ids[name] = mode, bytes.fromhex(identity)

    # --- the end ---

    def _attr(self):
        what = IP | TID | TIME | CPU | PERIOD | (CALLCHAIN if self.stacks else 0)
        head = struct.pack("<IIQQQQQ", TYPE_SOFTWARE, ATTR_SIZE, CPU_CLOCK, self.frequency, what, 0, FLAGS)
        return head + bytes(ATTR_SIZE - len(head))

    def _build_id_table(self):
        table = b""
        for name, (mode, identity) in self.build_ids.items():
            body = struct.pack("<i20sB3x", -1, identity, len(identity)) + padded(name[:4095], NAME_ALIGN)
            table += RECORD.pack(0, mode | BUILD_ID_SIZE, RECORD.size + len(body)) + body
        return table

    def _features(self, machine):
        """{number: bytes}. machine: {number: text}, of those that are a string."""
        features = {number: string(text.encode()) for number, text in machine.items()}
        features[BUILD_ID] = self._build_id_table()
        features[NRCPUS] = struct.pack("<II", self.cpus, self.cpus)
        features[CMDLINE] = struct.pack("<I", 2) + string(b"vpmu") + string(b"record")
        features[EVENT_DESC] = struct.pack("<II", 1, ATTR_SIZE) + self._attr() + struct.pack("<I", 0) + string(b"cpu-clock")
        return features

    def finish(self, machine):
        """A table of where the features are follows the data, then they do; then the start is known."""
        features = sorted(self._features(machine).items())
        at, table, bits = self.data_at + self.size + SECTION.size * len(features), b"", 0
        for number, data in features:
            table += SECTION.pack(at, len(data))
            at += len(data)
            bits |= 1 << number
        self.out.write(table + b"".join(data for _, data in features))
        self.out.seek(0)
        self.out.write(HEADER.pack(MAGIC, HEADER.size, ATTR_SIZE + SECTION.size, HEADER.size, ATTR_SIZE + SECTION.size,
                                   self.data_at, self.size, 0, 0, bits, 0, 0, 0))
        self.out.write(self._attr() + SECTION.pack(0, 0))
