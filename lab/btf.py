# SPDX-License-Identifier: MIT
"""Offsets of members of a kernel's structures, from its BTF (Documentation/bpf/btf.rst of Linux). The bytes are a guest's: ids and
lengths are checked, and all searches together have a bound."""

import struct

from kernel_symbols import Budget, Malformed

MAGIC = 0xEB9F
HEADER = struct.Struct("<HBBIIIII")
TYPE = struct.Struct("<III")
STRUCT, UNION = 4, 5
SYNONYMS = 8, 9, 10, 11, 18  # typedef, volatile, const, restrict, type tag
# Bytes behind a type of each kind, fixed and for each of its elements.
BEHIND = {0: (0, 0), 1: (4, 0), 2: (0, 0), 3: (12, 0), 4: (0, 12), 5: (0, 12), 6: (0, 8), 7: (0, 0), 8: (0, 0), 9: (0, 0), 10: (0, 0),
          11: (0, 0), 12: (0, 0), 13: (0, 8), 14: (4, 0), 15: (0, 12), 16: (0, 0), 17: (4, 0), 18: (0, 0), 19: (0, 12)}
MAX_DEPTH = 8  # of typedefs and qualifiers
MAX_TYPES = 1 << 19
MAX_STEPS = 1 << 20  # members looked at, for all offsets
LONGEST_NAME = 128


class Btf:
    def __init__(self, data, budget=None):
        if len(data) < HEADER.size:
            raise Malformed("the kernel has no BTF")
        magic, _, _, length, types, types_length, strings, strings_length = HEADER.unpack_from(data)
        if magic != MAGIC:
            raise Malformed("the kernel's BTF has another magic number")
        self.types = bytes(data[length + types: length + types + types_length])
        self.strings = bytes(data[length + strings: length + strings + strings_length])
        self.at, self.named = [None], {}  # by id: where it is; structures by name
        self.budget = budget or Budget(MAX_STEPS)
        self._index()

    def _index(self):
        at = 0
        while at + TYPE.size <= len(self.types):
            name, info, _ = TYPE.unpack_from(self.types, at)
            kind = info >> 24 & 31
            if kind not in BEHIND:
                raise Malformed("the kernel's BTF has a type of an unknown kind")
            if len(self.at) > MAX_TYPES:
                raise Malformed("the kernel's BTF has too many types")
            if kind == STRUCT and name:
                self.named.setdefault(name, len(self.at))
            self.at.append(at)
            fixed, each = BEHIND[kind]
            at += TYPE.size + fixed + each * (info & 0xFFFF)
        self.names = {self._string(offset): number for offset, number in self.named.items()}

    def _string(self, offset):
        """A name. One that has no end is no name that is looked for, but it is one."""
        end = self.strings.find(b"\0", offset, offset + LONGEST_NAME)
        return self.strings[offset:end].decode("ascii", "replace") if end >= 0 else "?"

    def _members(self, number):
        """(name, type, offset in bytes) of a structure or union; nothing of other types."""
        if not 0 < number < len(self.at):
            return
        at = self.at[number]
        _, info, _ = TYPE.unpack_from(self.types, at)
        if info >> 24 & 31 not in (STRUCT, UNION):
            return
        for i in range(info & 0xFFFF):
            place = at + TYPE.size + 12 * i
            if place + 12 > len(self.types):
                return
            name, kind, bits = TYPE.unpack_from(self.types, place)
            yield self._string(name), kind, (bits & 0xFFFFFF if info >> 31 else bits) // 8

    def _plain(self, number):
        """The type that typedefs and qualifiers stand for."""
        for _ in range(MAX_DEPTH):
            if not 0 < number < len(self.at):
                return 0
            _, info, inner = TYPE.unpack_from(self.types, self.at[number])
            if info >> 24 & 31 not in SYNONYMS:
                return number
            number = inner
        return 0

    def _find(self, number, member):
        """(offset, type) of a member, which may be in a structure without a name. Each type is searched once, however many members have
        it: a guest's structure may be its own member."""
        waiting, seen = [(number, 0)], set()
        while waiting:
            number, base = waiting.pop()
            number = self._plain(number)
            for name, kind, offset in self._members(number) if number not in seen else []:
                self.budget.spend()
                if name == member:
                    return base + offset, kind
                if not name:
                    waiting.append((kind, base + offset))
            seen.add(number)
        return None

    def offset(self, path):
        """Of "structure.member" or of "structure.member.member"."""
        structure, *members = path.split(".")
        kind, offset = self.names.get(structure, 0), 0
        for member in members:
            found = self._find(kind, member)
            if not found:
                raise Malformed(f"the kernel's BTF has no {path}")
            offset, kind = offset + found[0], found[1]
        return offset

    def size(self, structure):
        number = self.names.get(structure, 0)
        if not number:
            raise Malformed(f"the kernel's BTF has no {structure}")
        return TYPE.unpack_from(self.types, self.at[number])[2]

    def has(self, structure):
        return structure in self.names
