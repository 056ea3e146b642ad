# SPDX-License-Identifier: MIT
"""Addresses to names: kallsyms or System.map of a guest's kernel, and ELF files."""

import bisect
import hashlib
import os
import stat
import struct

from samples import printable

GLOBAL, WEAK = 1, 2  # bindings of ELF
FUNCTIONS = 2, 10  # STT_FUNC, STT_GNU_IFUNC
MAX_HEADERS = 4096
MAX_NOTES = 1 << 20  # bytes, of all of them
MAX_SYMBOLS = 4_000_000
MAX_TEXT = 1 << 30  # bytes of tables of names and of names
LONGEST_NAME = 16384
PROGRAM, SECTION, SYMBOL = struct.Struct("<IIQQQQQQ"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")


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


class File:
    """A regular file. A guest may have chosen its name: no device is opened, nothing is waited for. It may change the file, too: one that
    is mapped and shrinks ends the program by SIGBUS, so pieces of it are read."""

    def __init__(self, path):
        self.path, self.fd = path, os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def size(self):
        """ValueError: it is a device or a folder."""
        status = os.fstat(self.fd)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{self.path} is not a file")
        return status.st_size

    def piece(self, at, size):
        """As far as there is one."""
        size = min(size, self.size() - at)
        return os.pread(self.fd, size, at) if size > 0 else b""

    def whole(self, at, size):
        """All of a piece."""
        data = self.piece(at, size)
        if len(data) < size:
            raise ValueError(f"{self.path} is not a whole ELF file")
        return data


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
        self.path, self.left = os.path.abspath(path), MAX_TEXT  # objdump would take "-x" and "@x" as options
        with File(path) as file:
            header = file.piece(0, 64)
            if header[:6] != b"\x7fELF\x02\x01":
                raise ValueError(f"{path} is not a 64-bit ELF file")
            try:
                self._read(file, header)
            except (struct.error, OverflowError):
                raise ValueError(f"{path} is not a whole ELF file") from None

    def _read(self, file, header):
        programs, sections = struct.unpack_from("<QQ", header, 32)
        size, count, section_size, section_count = struct.unpack_from("<HHHH", header, 54)
        if count and size != PROGRAM.size or section_count and section_size != SECTION.size:
            raise ValueError(f"{file.path} has headers of another size than ELF")
        headers = file.whole(programs, size * count) if count else b""
        rows = list(PROGRAM.iter_unpack(headers[: MAX_HEADERS * PROGRAM.size]))
        self.loads = [(row[2], row[3], row[5]) for row in rows if row[0] == 1]  # offset, address, size
        self.identity = identity(header, headers, self._notes(file, rows))
        self.sections = list(SECTION.iter_unpack(file.whole(sections, section_size * section_count))) if section_count else []
        self.symbols = Symbols.of(self._functions(file))

    @staticmethod
    def _notes(file, rows):
        left = MAX_NOTES
        for row in rows:
            if row[0] == 4 and row[5] <= left:
                left -= row[5]
                yield file.piece(row[2], row[5])

    def _functions(self, file):
        """A function of assembly code may have no size: it lasts to the next one, at most to the end of its section."""
        rows = list(self._rows(file))
        starts = sorted({row[0] for row in rows})
        for value, name, size, binding, end in rows:
            if not size:
                after = bisect.bisect_right(starts, value)
                size = (min(starts[after], end) if after < len(starts) else end) - value
            if size > 0:
                yield value, name, size, binding

    def _tables(self):
        """(offset, number of symbols, section of their names). Several headers may name the same table."""
        known, left = set(), MAX_SYMBOLS
        for section in self.sections:
            if section[1] not in (2, 11) or section[6] >= len(self.sections) or section[4:6] in known:  # SYMTAB, DYNSYM
                continue
            known.add(section[4:6])
            left -= section[5] // SYMBOL.size
            if left < 0:
                raise ValueError(f"{self.path} has more than {MAX_SYMBOLS} symbols")
            yield section[4], section[5] // SYMBOL.size, self.sections[section[6]]

    def _take(self, text):
        """Names may overlap, and so may their tables."""
        self.left -= len(text)
        if self.left < 0:
            raise ValueError(f"{self.path}: the names of its symbols are too long")
        return text

    def _rows(self, file):
        strings = {}
        for at, count, names in self._tables():
            if names[4:6] not in strings:
                strings[names[4:6]] = self._take(file.piece(names[4], min(names[5], self.left + 1)))
            text = strings[names[4:6]]
            for name, info, _, part, value, length in SYMBOL.iter_unpack(file.whole(at, count * SYMBOL.size)):
                if info & 15 in FUNCTIONS and part and value and part < len(self.sections):
                    end = text.find(b"\0", name, name + LONGEST_NAME)
                    word = self._take(text[name: end if end >= 0 else name + LONGEST_NAME])
                    yield value, printable(word.decode(errors="replace")), length, info >> 4, self.sections[part][3] + self.sections[part][5]

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
