# SPDX-License-Identifier: MIT
"""Addresses to names: kallsyms or System.map of a guest's kernel, and ELF files."""

import bisect
import hashlib
import mmap
import os
import stat
import struct

from samples import printable

GLOBAL, WEAK = 1, 2  # bindings of ELF
FUNCTIONS = 2, 10  # STT_FUNC, STT_GNU_IFUNC
MAX_HEADERS = 4096
LONGEST_NAME = 16384


def rank(name, size, binding):
    """Of several names of an address the one that perf chooses: with a size, not weak, global, with few underscores before it, long."""
    return size != 0, binding != WEAK, binding == GLOBAL, len(name.lstrip("_")) - len(name), len(name)


class Symbols:
    def __init__(self):
        self.addresses, self.names, self.sizes = [], [], []

    @classmethod
    def of(cls, rows):
        """rows: (address, name, size or None, binding)."""
        best = {}
        for address, name, size, binding in rows:
            if address not in best or rank(name, size, binding) > rank(*best[address]):
                best[address] = name, size, binding
        table = cls()
        for address in sorted(best):
            table.addresses.append(address)
            table.names.append(best[address][0])
            table.sizes.append(best[address][1])
        return table

    @classmethod
    def of_kernel(cls, rows):
        """rows: (address, letter of nm, name), as kallsyms has them. They have no sizes: of several names perf takes the last."""
        last = {address: (address, name, None, GLOBAL) for address, kind, name in rows if kind in "tTwW"}
        return cls.of(last.values())

    def range(self, address):
        """(start, size, name) of what is there, or None; there may be no size."""
        i = bisect.bisect_right(self.addresses, address) - 1
        if i < 0 or (self.sizes[i] is not None and address >= self.addresses[i] + self.sizes[i]):
            return None
        return self.addresses[i], self.sizes[i], self.names[i]

    def find(self, address):
        found = self.range(address)
        return found[2] if found else None


def kernel_map(path):
    """The text of /proc/kallsyms, of System.map or of nm."""
    rows = []
    with open(path, errors="replace") as lines:
        for line in lines:
            words = line.split()
            if len(words) >= 3 and words[1] in "tTwW":
                rows.append((int(words[0], 16), words[1], printable(words[2])))
    if not rows or not rows[-1][0]:
        raise ValueError(f"{path}: there are no addresses in it; was it read by root?")
    return Symbols.of_kernel(rows)


def open_file(path):
    """The bytes of a regular file. A guest may have chosen its name: no device is opened, nothing is waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError(f"{path} is not a file")
        return mmap.mmap(fd, 0, prot=mmap.PROT_READ) if os.fstat(fd).st_size else b""
    finally:
        os.close(fd)


def build_id(notes):
    """The build id of ELF notes (type 3 of GNU), in hex, or None."""
    at = 0
    while at + 12 <= len(notes):
        name, length, kind = struct.unpack_from("<III", notes, at)
        data = at + 12 + (name + 3 & ~3)
        if kind == 3 and notes[at + 12: at + 16] == b"GNU\0" and 1 <= length <= 20 and data + length <= len(notes):
            return notes[data: data + length].hex()
        at = data + (length + 3 & ~3)
    return None


def identity(header, programs, notes):
    """How a file is known again: by its build id or, without one, by its headers."""
    for data in notes:
        found = build_id(data)
        if found:
            return found
    return "elf-" + hashlib.sha1(header + programs).hexdigest()


class Elf:
    """Functions of an ELF file, by the addresses that it gives them, and where its segments are in the file."""

    def __init__(self, path):
        self.path, self.data = os.path.abspath(path), open_file(path)  # objdump would take "-x" and "@x" as options
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is not a 64-bit ELF file")
        try:
            self._read()
        except (struct.error, OverflowError):
            raise ValueError(f"{path} is not a whole ELF file") from None

    def _read(self):
        header = self.data[:64]
        programs, sections = struct.unpack_from("<QQ", header, 32)
        size, count, section_size, section_count = struct.unpack_from("<HHHH", header, 54)
        rows = [struct.unpack_from("<IIQQQQQQ", self.data, programs + size * i) for i in range(min(count, MAX_HEADERS))]
        self.loads = [(row[2], row[3], row[5]) for row in rows if row[0] == 1]  # offset, address, size
        notes = [self.data[row[2]: row[2] + row[5]] for row in rows if row[0] == 4]
        self.identity = identity(header, self.data[programs: programs + size * count], notes)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", self.data, sections + i * section_size) for i in range(section_count)]
        self.symbols = Symbols.of(self._functions())

    def _functions(self):
        """A function of assembly code may have no size: it lasts to the next one, at most to the end of its section."""
        rows = list(self._rows())
        starts = sorted({row[0] for row in rows})
        for value, name, size, binding, end in rows:
            if not size:
                after = bisect.bisect_right(starts, value)
                size = (min(starts[after], end) if after < len(starts) else end) - value
            if size > 0:
                yield value, name, size, binding

    def _rows(self):
        for section in self.sections:
            if section[1] not in (2, 11) or section[6] >= len(self.sections):  # SYMTAB, DYNSYM
                continue
            strings = self.sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                name, info, _, part, value, length = struct.unpack_from("<IBBHQQ", self.data, at)
                if info & 15 in FUNCTIONS and part and value and part < len(self.sections):
                    text = self.data[strings + name: strings + name + LONGEST_NAME].partition(b"\0")[0].decode(errors="replace")
                    yield value, printable(text), length, info >> 4, self.sections[part][3] + self.sections[part][5]

    def use_symbols_of(self, other):
        """Of the file with debugging information, which knows more names but not where segments are."""
        if other.symbols.names:
            self.symbols = other.symbols

    def address(self, offset):
        """The address that the file gives to what is there in it, or None."""
        return next((offset - start + address for start, address, size in self.loads if start <= offset < start + size), None)

    def at_offset(self, offset):
        """The name of what is there in the file."""
        address = self.address(offset)
        return self.symbols.find(address) if address is not None else None
