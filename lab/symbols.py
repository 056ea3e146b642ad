# SPDX-License-Identifier: MIT
"""Addresses to names: kallsyms or System.map of a guest's kernel, and ELF files that are not position-independent."""

import bisect
import struct


class Symbols:
    def __init__(self):
        self.addresses, self.names, self.sizes = [], [], []

    @classmethod
    def of(cls, rows):
        """rows: (address, name, size or None)."""
        table = cls()
        for address, name, size in sorted(rows, key=lambda row: row[0]):
            table.addresses.append(address)
            table.names.append(name)
            table.sizes.append(size)
        return table

    def find(self, address):
        i = bisect.bisect_right(self.addresses, address) - 1
        if i < 0 or (self.sizes[i] is not None and address >= self.addresses[i] + self.sizes[i]):
            return None
        return self.names[i]


def kernel_map(path):
    """The text of /proc/kallsyms, of System.map or of nm."""
    rows = []
    with open(path, errors="replace") as lines:
        for line in lines:
            words = line.split()
            if len(words) >= 3 and words[1] in "tTwW":
                rows.append((int(words[0], 16), words[2], None))
    if not rows or not rows[-1][0]:
        raise ValueError(f"{path}: there are no addresses in it; was it read by root?")
    return Symbols.of(rows)


def elf(path):
    """Functions of an ELF file, where it says they are."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a 64-bit ELF file")
    offset, size, count = (*struct.unpack_from("<Q", data, 0x28), *struct.unpack_from("<HH", data, 0x3A))
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    rows = []
    for section in sections:
        if section[1] not in (2, 11):  # SYMTAB, DYNSYM
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, info, _, _, value, length = struct.unpack_from("<IBBHQQ", data, at)
            if info & 15 == 2 and value and length:
                end = data.index(b"\0", strings + name)
                rows.append((value, data[strings + name: end].decode(errors="replace"), length))
    return Symbols.of(rows)
