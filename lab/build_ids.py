# SPDX-License-Identifier: MIT
"""perf's cache of symbols by build id (~/.debug): of a guest's kernel, and of what has no file, the hypervisor and the VMM. What is in
the cache stays: a guest chooses the build id that its kernel says it has."""

import contextlib
import hashlib
import os
import struct

SLOT = 16  # bytes of code for each name of what has no file
TEXT = 0x1000
MAX_KALLSYMS = 32 << 20  # bytes


def cache():
    """Its folder, or None."""
    home = os.environ.get("HOME", "")
    return home + "/.debug" if home.startswith("/") else None


def keep(name, identity, file, content):
    """As perf record does: the file in a folder of the name and the build id, and a link to that by the build id. OSError."""
    top = cache()
    if not top or len(identity) != 40:
        return
    folder = f"{top}/{name}/{identity}"
    os.makedirs(folder, exist_ok=True)
    if not os.path.lexists(f"{folder}/{file}"):
        part = f"{folder}/.{file}.{os.getpid()}"
        with open(part, "wb") as out:
            out.write(content)
        os.rename(part, f"{folder}/{file}")
    os.makedirs(f"{top}/.build-id/{identity[:2]}", exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(f"../../{name}/{identity}", f"{top}/.build-id/{identity[:2]}/{identity[2:]}")


def is_word(text):
    return text.isascii() and text.isprintable() and text != "" and " " not in text


def keep_kernel(identity, rows):
    """rows: (address, type, name), as kernel_symbols.py has them. They are the guest's, and perf will believe every line."""
    lines = [f"{address:016x} {kind} {name}\n" for address, kind, name in rows if address >> 63 and is_word(kind) and is_word(name)]
    if sum(map(len, lines)) <= MAX_KALLSYMS:
        keep("[kernel.kallsyms]", identity, "kallsyms", "".join(lines).encode())


def section(name, kind, flags, address, offset, size, link=0, info=0, align=1, entry=0):
    return struct.pack("<IIQQQQIIQQ", name, kind, flags, address, offset, size, link, info, align, entry)


def image(names):
    """(build id, an ELF file) whose functions have these names: SLOT bytes each, from TEXT on."""
    strings, symbols = b"\0", bytes(24)
    for i, name in enumerate(names):
        symbols += struct.pack("<IBBHQQ", len(strings), 0x12, 0, 2, TEXT + SLOT * i, SLOT)  # a global function
        strings += name.encode() + b"\0"
    identity = hashlib.sha1(symbols + strings).digest()
    note = struct.pack("<III", 4, 20, 3) + b"GNU\0" + identity
    size = SLOT * max(1, len(names))
    titles = b"\0.note.gnu.build-id\0.text\0.symtab\0.strtab\0.shstrtab\0"
    at = [64 + 2 * 56, TEXT, TEXT + size, TEXT + size + len(symbols), TEXT + size + len(symbols) + len(strings)]
    end = at[4] + len(titles) + 7 & ~7
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, TEXT, 64, end, 0, 64, 56, 2, 64, 6, 5)
    programs = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, TEXT + size, TEXT + size, 0x1000)
    programs += struct.pack("<IIQQQQQQ", 4, 4, at[0], at[0], at[0], len(note), len(note), 4)
    sections = section(0, 0, 0, 0, 0, 0) + section(1, 7, 2, at[0], at[0], len(note), align=4)
    sections += section(titles.index(b".text"), 1, 6, TEXT, TEXT, size, align=16)
    sections += section(titles.index(b".symtab"), 2, 0, 0, at[2], len(symbols), link=4, info=1, align=8, entry=24)
    sections += section(titles.index(b".strtab"), 3, 0, 0, at[3], len(strings))
    sections += section(titles.index(b".shstrtab"), 3, 0, 0, at[4], len(titles))
    body = (header + programs + note).ljust(TEXT, b"\0") + b"\x90" * size + symbols + strings + titles
    return identity.hex(), body.ljust(end, b"\0") + sections
