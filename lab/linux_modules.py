# SPDX-License-Identifier: MIT
"""Functions of the modules of a guest's Linux, which are loaded and unloaded while it runs: the kernel's list of modules, and of those
that samples lie in the symbols that they keep (kernel/module/kallsyms.c). As in linux_guest.py the memory is the guest's: lists and tables
have bounds, and what does not fit together has no names."""

import bisect
import struct
import time

from kernel_symbols import Malformed, UNREADABLE

MAX_MODULES, MAX_SYMBOLS, MAX_STRINGS, MAX_TEXT = 1024, 1 << 16, 4 << 20, 64 << 20
MAX_KEPT = 1 << 17  # functions of all modules
NAME = 56  # MODULE_NAME_LEN
REFRESH = 1.0  # seconds after which an address in no module is looked for again
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym


def number(data):
    if data is None:
        raise Malformed("a pointer of the guest leads nowhere")
    return int.from_bytes(data, "little")


class Modules:
    def __init__(self, memory, cr3, head, types):
        """head: the address of the list; types: BTF."""
        self.memory, self.cr3, self.head = memory, cr3, head
        self.list, self.kallsyms = types.offset("module.list"), types.offset("module.kallsyms")
        if types.has("module_memory"):  # since Linux 6.4
            text = types.offset("module.mem")
            self.base, self.size = text + types.offset("module_memory.base"), text + types.offset("module_memory.size")
        else:
            self.base, self.size = types.offset("module.core_layout.base"), types.offset("module.core_layout.text_size")
        self.tables = [types.offset("mod_kallsyms." + name) for name in ("symtab", "num_symtab", "strtab", "typetab")]
        self.loaded, self.looked, self.functions = [], None, {}

    def function(self, address):
        """(start, end, name), or None."""
        module = self._module(address)
        if not module:
            return None
        if module not in self.functions:
            self._keep(module, self._read_functions(module))
        rows = self.functions[module]
        i = bisect.bisect_right(rows, (address, 1 << 64)) - 1
        return (rows[i][0], rows[i][1], rows[i][2]) if i >= 0 and address < rows[i][1] else None

    def _keep(self, module, rows):
        """Modules are read again if there is no room for all of them."""
        if sum(map(len, self.functions.values())) + len(rows) > MAX_KEPT:
            self.functions = {}
        self.functions[module] = rows

    def _module(self, address):
        """(base, size, address of its symbols) of the module that an address is in. Known modules may have been replaced: all are
        looked at again now and then."""
        now = time.monotonic()
        if self.looked is None or now - self.looked > REFRESH:
            self.looked, self.loaded = now, self._read_list()
            self.functions = {module: self.functions[module] for module in self.loaded if module in self.functions}
        return next((module for module in self.loaded if module[0] <= address < module[0] + module[1]), None)

    def _read_list(self):
        found, at = [], self.head
        for _ in range(MAX_MODULES):
            following = self.memory.read(self.cr3, [(at, 8)])[0]
            if following is None or number(following) == self.head:
                break
            at = number(following)
            module = at - self.list
            base, size, kallsyms = self.memory.read(self.cr3, [(module + self.base, 8), (module + self.size, 4), (module + self.kallsyms, 8)])
            if None in (base, size, kallsyms):
                break
            if number(base) >> 63 and number(size) <= min(MAX_TEXT, (1 << 64) - number(base)):
                found.append((number(base), number(size), number(kallsyms)))
        return found

    def _read_functions(self, module):
        """[(start, end, name)]. A function of no size lasts to the next one."""
        try:
            rows = sorted(self._symbols(*module))
        except UNREADABLE:
            return []
        ends = [start for start, _, _ in rows[1:]] + [module[0] + module[1]]
        return [(start, min(start + size, end) if size else end, name) for (start, size, name), end in zip(rows, ends) if start < end]

    def _symbols(self, base, size, kallsyms):
        symtab, count, strtab, typetab = (number(data) for data in self.memory.read(self.cr3, [(kallsyms + at, 8) for at in self.tables]))
        count &= 0xFFFFFFFF
        if not 0 < count <= MAX_SYMBOLS:
            raise Malformed("a module has no symbols")
        symbols = self.memory.block(self.cr3, symtab, SYMBOL.size * count)
        kinds = self.memory.block(self.cr3, typetab, count)
        rows = [row for row, kind in zip(SYMBOL.iter_unpack(symbols), kinds) if kind in b"tT" and base <= row[4] < base + size]
        length = max((row[0] for row in rows), default=0) + 256
        if length > MAX_STRINGS:
            raise Malformed("a module has no strings")
        strings = self.memory.block(self.cr3, strtab, length)
        for row in rows:
            name = strings[row[0]: strings.find(b"\0", row[0], row[0] + 256)].decode("ascii", "replace")
            if name:
                yield row[4], row[5], name
