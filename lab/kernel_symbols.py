# SPDX-License-Identifier: MIT
"""The symbols of a Linux kernel from its memory: the tables that scripts/kallsyms.c of Linux 4.20 to 6.12 writes into .rodata.

The tables are found by their shape, since nothing points to them: first the 256 tokens of the compressed names, by those of the digits
and by the index that must follow; then the names, by their number, which precedes them, and by the offsets of every 256th name, which
follow; then the addresses, which are before the names up to Linux 6.3 and after the tokens' index from 6.4 on. The memory is the guest's
and may hold anything: every number is bounded by the memory that was read, and what does not fit together is no table."""

import array
import bisect
import struct

import symbols

MAX_SYMBOLS = 1 << 20
DIGITS = b"".join(b"%d\0" % digit for digit in range(10))
FIRST_DIGIT = ord("0")
TOKENS = 256
LONGEST_TOKEN = 128
MARKED = 256  # names from one marker to the next
LEAST_SYMBOLS = 1000
LONGEST_NAME = 512  # KSYM_NAME_LEN: with the type or with the 0 that ends it
MAX_TEXT = 32 << 20  # bytes of all names
MAX_STEPS = 8 * MAX_SYMBOLS  # names looked at in all tries to find the tables; a large kernel needs two for each symbol
TABLE_STEPS = 300  # what a try to find the tokens costs
LONGEST_MEAN = 32  # bytes of a name, its marker and its place in the order by name, in the mean


class Malformed(ValueError):
    """Memory that is not what it should be."""


# What reading a guest's memory may end in. Numbers are checked where they are read; one that was overlooked costs names, not a recording.
UNREADABLE = Malformed, struct.error, ArithmeticError


class Budget:
    """Steps of a search. A guest can make memory in which each step has a bound, and all of them together would take hours."""

    def __init__(self, steps=MAX_STEPS):
        self.left = steps

    def spend(self, steps=1):
        self.left -= steps
        if self.left < 0:
            raise Malformed("the search in the kernel's memory takes too long")


def aligned(offset):
    return (offset + 7) & ~7


def words(code, data, at, count):
    """Numbers of the kernel's byte order, which is that of the only hosts there are."""
    size = struct.calcsize(code)
    if at < 0 or at + size * count > len(data):
        raise Malformed("a table ends behind the kernel's memory")
    return array.array(code, bytes(data[at: at + size * count]))


def token_table(image, digits):
    """(start, end, tokens) of the table that has these digits, with the index behind it, or None. Nothing marks the first token's
    start but that the table is aligned."""
    second = digits
    for _ in range(FIRST_DIGIT - 1):
        second = image.rfind(b"\0", max(0, second - LONGEST_TOKEN), second - 1) + 1
        if not second:
            return None
    ends, at = [second], second
    for _ in range(TOKENS - 1):
        at = image.find(b"\0", at, at + LONGEST_TOKEN) + 1
        if not at:
            return None
        ends.append(at)
    for start in range((second - 2) & ~7, second - LONGEST_TOKEN, -8):
        index = array.array("H", [place - start for place in [start, *ends[:-1]]]).tobytes()
        if image[aligned(at): aligned(at) + len(index)] == index:
            tokens = [bytes(image[begin: end - 1]) for begin, end in zip([start, *ends], ends)]
            return start, aligned(at) + len(index), tokens
    return None


def find_tokens(image, budget):
    at = image.find(DIGITS)
    while at >= 0:
        budget.spend(TABLE_STEPS)
        found = token_table(image, at)
        if found:
            return found
        at = image.find(DIGITS, at + 1)
    raise Malformed("there are no symbols in the kernel's memory")


def name_lengths(image, at, end):
    """The end of each name's bytes, one by one. Names have 1 to 16383 bytes behind a length of one or two (ULEB128)."""
    while at < end:
        length = image[at]
        at += 1
        if length & 0x80 and at < end:
            length = length & 0x7F | image[at] << 7
            at += 1
        yield at, at + length
        at += length


def names_end(image, names, count, end, budget):
    """(the end of this many names, the offset of every 256th), or None."""
    markers, place = [], names
    for i, (start, stop) in enumerate(name_lengths(image, names, end)):
        budget.spend()
        if not start < stop <= min(start + LONGEST_NAME, end):
            return None
        if i % MARKED == 0:
            markers.append(place - names)
        place = stop
        if i + 1 == count:
            return place, markers
    return None


def fits(image, names, count, tokens_at, budget):
    """Are there this many names, their markers, and up to the tokens nothing but, in some versions, an order by name?"""
    found = names_end(image, names, count, tokens_at, budget)
    if not found:
        return False
    at, markers = aligned(found[0]), array.array("I", found[1]).tobytes()
    end = aligned(at + len(markers))
    return image[at: at + len(markers)] == markers and tokens_at in (end, aligned(end + 3 * count))


def find_names(image, tokens_at, budget):
    """(start, count) of the names: the count is in the word before them."""
    least = max(0, tokens_at - MAX_SYMBOLS * LONGEST_MEAN) & ~7
    numbers = words("Q", image, least, (tokens_at - least) // 8)
    budget.spend(len(numbers) // 4)  # a word is less than a name
    for i in range(len(numbers) - 1, -1, -1):
        count, names = numbers[i], least + 8 * i + 8
        if LEAST_SYMBOLS < count < MAX_SYMBOLS and 3 * count < tokens_at - names < LONGEST_MEAN * count and \
                fits(image, names, count, tokens_at, budget):
            return names, count
    raise Malformed("the kernel's symbols have no names")


def absolute(offset, base):
    """kernel/kallsyms.c, kallsyms_sym_address(), with CONFIG_KALLSYMS_ABSOLUTE_PERCPU, as x86-64 has it."""
    return offset if offset >= 0 else base - 1 - offset


def find_addresses(image, names, count, behind_index, is_kernel):
    """The two places where addresses can be: offsets, then the base that they are relative to."""
    size = aligned(4 * count)
    for at in (names - 16 - size, aligned(behind_index)):
        try:
            base = words("Q", image, at + size, 1)[0]
            offsets = words("i", image, at, count)
        except Malformed:
            continue
        addresses = [absolute(offset, base) for offset in offsets]
        if is_kernel(base) and addresses[-1] < 1 << 64 and all(a <= b for a, b in zip(addresses, addresses[1:])):
            return addresses
    raise Malformed("the kernel's symbols have no addresses")


def read(image, is_kernel, budget):
    """[(address, type, name)] by address. image: the kernel's memory from an address that is a multiple of 8; is_kernel(address)."""
    tokens_at, behind_index, tokens = find_tokens(image, budget)
    names, count = find_names(image, tokens_at, budget)
    budget.spend(count)
    addresses = find_addresses(image, names, count, behind_index, is_kernel)
    rows, size = [], 0
    for address, (start, stop) in zip(addresses, name_lengths(image, names, tokens_at)):
        text = b"".join([tokens[byte] for byte in image[start:stop]]).decode("ascii", "replace")
        size += len(text)
        if len(text) > LONGEST_NAME or size > MAX_TEXT:
            raise Malformed("the kernel's symbols have names that are too long")
        rows.append((address, text[:1], text[1:]))
    return rows


class Table:
    """Functions by address, and everything by name."""

    def __init__(self, rows):
        self.rows = rows
        self.by_name = {}
        for address, kind, name in rows:
            self.by_name.setdefault(name, address)
        self.functions = symbols.Symbols.of_kernel(rows)

    def __getitem__(self, name):
        if name not in self.by_name:
            raise Malformed(f"the kernel has no {name}")
        return self.by_name[name]

    def function(self, address):
        """(start, end, name): of the last function of the table there is no end."""
        starts = self.functions.addresses
        i = bisect.bisect_right(starts, address)
        if not i or i == len(starts):
            return None
        return starts[i - 1], starts[i], self.functions.names[i - 1]
