# SPDX-License-Identifier: MIT
"""What a guest's Linux knows of the task that a vCPU executes, read from its memory from outside: process, thread, names, and which
files are mapped where. No agent in the guest and no file of its kernel are needed: symbols (kernel_symbols.py) and BTF (btf.py) are in
the kernel's own memory.

The memory is the guest's, which goes on running meanwhile and may be hostile. Every walk has a bound, every pointer is used for one
bounded copy, what was copied is checked before it is used, and what does not fit together is unknown, never a guess: a process is
believed if its page tables are those that the vCPU executed with, and its maps if it still is the same process after they were read."""

import collections
import itertools
import struct
import time

import btf
import kernel_symbols
import linux_modules
import symbols
from kernel_symbols import Malformed, UNREADABLE

KERNEL_MAP = 0xFFFFFFFF80000000  # __START_KERNEL_map
PHYSICAL = "physical"
CR4_LA57 = 1 << 12
MAX_IMAGE, STEP = 64 << 20, 4 << 20
MAX_BTF = 32 << 20
MAX_CPUS = 512
MAX_ENTRIES = 4  # of SYSCALL, each of which may be another kernel's
MAX_PID = 1 << 22
NODE = 256  # bytes of a node of a maple tree
MAX_NODES, MAX_DEPTH, MAX_AREAS = 8192, 8, 65536
MAX_NAMES, MAX_NAME, MAX_MOUNTS = 64, 255, 16
MAX_CODE, MAX_PATHS = 2048, 512 << 10  # of a process: executable mappings, and bytes of their files' names
MAX_PROCESSES = 256  # whose maps are remembered
MAX_HEADERS, MAX_NOTES = 64, 4096
PIECE, PIECES, ANSWER = 32768, 150, 49152  # of a request to the control socket
PAGE, PAGE_SHIFT = 4096, 12
USER_END = 1 << 56
ADDRESS_BITS = 0x000FFFFFFFFFF000  # of CR3
VM_EXEC = 4
FMODE_BACKING = 1 << 25  # a file of overlayfs below the one that the program has opened
LEAF, RANGE, ARANGE = 1, 2, 3  # enum maple_type
REFRESH = 1.0  # seconds after which maps are looked at again, though nothing says that they have changed

OFFSETS = """task_struct.mm task_struct.pid task_struct.tgid task_struct.comm task_struct.group_leader task_struct.start_time
    mm_struct.pgd mm_struct.mm_mt mm_struct.exec_vm mm_struct.context.vdso vm_area_struct.vm_start vm_area_struct.vm_end
    vm_area_struct.vm_mm vm_area_struct.vm_flags vm_area_struct.vm_pgoff vm_area_struct.vm_file file.f_path file.f_mode path.mnt
    file.f_mapping address_space.i_pages xarray.xa_head xa_node.slots
    path.dentry dentry.d_parent dentry.d_name qstr.len qstr.name mount.mnt mount.mnt_parent mount.mnt_mountpoint vfsmount.mnt_root
    maple_tree.ma_root maple_range_64.pivot maple_range_64.slot maple_arange_64.pivot maple_arange_64.slot""".split()


def is_kernel(address):
    return address >> 63 == 1


def copied(data):
    """The bytes that were copied. There are none where the guest's pointer leads nowhere."""
    if data is None:
        raise Malformed("a pointer of the guest leads nowhere")
    return data


def number(data):
    return int.from_bytes(copied(data), "little")


def printable(data):
    """A name of the guest's without bytes that would break lines."""
    return bytes(byte if 32 <= byte != 127 else ord("?") for byte in data)


def check_layouts(at, page_size):
    """Offsets in a node of a maple tree, which is copied as a whole: pivots, then one more slots. And what addresses are divided by."""
    for layout in "maple_range_64", "maple_arange_64":
        pivot, slot = at[layout + ".pivot"], at[layout + ".slot"]
        if not 0 <= pivot < slot or slot + (slot - pivot) + 8 > NODE:
            raise Malformed("the kernel's trees have nodes of another size")
    if page_size <= 0:
        raise Malformed("the kernel's pages have no size")


def check_text(table):
    if not is_kernel(table["_text"]) or table["_text"] >= table["_end"]:
        raise Malformed("the kernel has no text")


class Memory:
    """Guest memory, many pieces in one request. control.ask(): a request to the control socket."""

    def __init__(self, control):
        self.control = control

    def read(self, space, pieces):
        """The bytes of each (address, size), or None. space: CR3, or PHYSICAL."""
        batches, size = [], ANSWER
        for piece in pieces:
            if size + piece[1] > ANSWER or len(batches[-1]) == PIECES:
                batches.append([])
                size = 0
            batches[-1].append(piece)
            size += piece[1]
        answers = self.control.ask_all([self._command(space, batch) for batch in batches])
        return [data for batch, lines in zip(batches, answers) for data in self._bytes(batch, lines)]

    @staticmethod
    def _command(space, batch):
        words = " ".join(f"{address & (1 << 64) - 1:#x} {size}" for address, size in batch)
        return f"peek {space if space == PHYSICAL else hex(space)} {words}"

    @staticmethod
    def _bytes(batch, lines):
        if len(lines) != len(batch) or lines[0].startswith("error"):
            raise Malformed("guest memory cannot be read")
        return [None if line == "-" else bytes.fromhex(line) for line in lines]

    def block(self, space, address, size):
        """A large range; pages that are not there are zeroes."""
        parts = [(at, min(PIECE, address + size - at)) for at in range(address, address + size, PIECE)]
        out = bytearray()
        for (at, length), data in zip(parts, self.read(space, parts)):
            out += data if data is not None else self._pages(space, at, length)
        return out

    def _pages(self, space, address, size):
        pages = [(at, min(PAGE, address + size - at)) for at in range(address, address + size, PAGE)]
        return b"".join(data or bytes(length) for (_, length), data in zip(pages, self.read(space, pages)))

    def physical(self, cr3, levels, address):
        """The physical address of a linear one: the page walk of 4 or 5 levels (SDM 3A 4.5)."""
        entry = cr3
        for shift in range(PAGE_SHIFT + 9 * (levels - 1), 0, -9):
            entry = number(self.read(PHYSICAL, [((entry & ADDRESS_BITS) + 8 * (address >> shift & 511), 8)])[0])
            if not entry & 1:
                raise Malformed("an address is not mapped")
            if shift == PAGE_SHIFT or shift <= 30 and entry & 0x80:
                return entry & ADDRESS_BITS & ~((1 << shift) - 1) | address & (1 << shift) - 1
        raise Malformed("an address is not mapped")

    def together(self, space, readers):
        """Runs generators that yield lists of pieces and are sent their bytes, all in the same requests. Their results; None of those
        that found something malformed."""
        results, waiting = [None] * len(readers), {}

        def step(i, value):
            try:
                waiting[i] = readers[i].send(value)
            except StopIteration as end:
                results[i] = end.value
            except UNREADABLE:
                pass
        for i in range(len(readers)):
            step(i, None)
        while waiting:
            asked, waiting = waiting, {}
            answers = iter(self.read(space, [piece for pieces in asked.values() for piece in pieces]))
            for i, pieces in asked.items():
                step(i, list(itertools.islice(answers, len(pieces))))
        return results


class Task:
    """What was current: numbers, names, and the process's address space (mm is 0 for a thread of the kernel)."""

    def __init__(self, pid, tid, comm, leader_comm, started, mm, pgd, exec_vm):
        self.pid, self.tid, self.comm, self.leader_comm = pid, tid, comm, leader_comm
        self.mm, self.pgd, self.exec_vm = mm, pgd, exec_vm
        self.process = pid, started, mm  # the same as long as the program is


class Area:
    """A mapping of a process. name: bytes; identity: the file's build id, or '-'."""

    def __init__(self, start, end, offset, flags, file):
        self.start, self.end, self.offset, self.flags, self.file = start, end, offset, flags, file
        self.name, self.identity = b"//anon", "-"

    def key(self):
        return self.start, self.end, self.offset, self.name, self.identity


class LinuxGuest:
    def __init__(self, memory, text, physical, budget):
        """text: an address in the kernel, and the physical one of it. Malformed: it is no Linux, or one that is not understood."""
        self.memory = memory
        self.moved = physical - (text - KERNEL_MAP)  # the kernel's phys_base
        self.symbols = self._symbols(text, budget)
        check_text(self.symbols)
        self.cr3 = self._page_tables()
        self.build_id = symbols.build_id(self._between("__start_notes", "__stop_notes", PAGE)) or "-"
        types = btf.Btf(self._between("__start_BTF", "__stop_BTF", MAX_BTF))
        self.at = {path: types.offset(path) for path in OFFSETS}
        self.user_path = types.offset("backing_file.user_path") if types.has("backing_file") else None
        self.current = self._current(types)
        self.direct_map, self.pages = self._word("page_offset_base"), self._word("vmemmap_base")
        self.page_size = types.size("page")  # of what describes one
        check_layouts(self.at, self.page_size)
        cpus = memory.block(self.cr3, self.symbols["__per_cpu_offset"], 8 * MAX_CPUS)
        self.cpus = set(struct.unpack(f"<{MAX_CPUS}Q", cpus))
        self.modules = linux_modules.Modules(memory, self.cr3, self.symbols["modules"], types)
        self.areas = {}  # by process: when they were read, exec_vm, and its areas; the last ones that were read are at the end

    # --- the kernel ---

    def _symbols(self, text, budget):
        """They are in .rodata, somewhere after the kernel's text. Its memory is contiguous, so that physical addresses will do: the
        process whose page tables led here may end meanwhile."""
        start = (text & ~(PAGE - 1)) - KERNEL_MAP + self.moved
        image, why = bytearray(), Malformed("there is no kernel")
        while len(image) < MAX_IMAGE:
            image += self.memory.block(PHYSICAL, start + len(image), STEP)
            try:
                return kernel_symbols.Table(kernel_symbols.read(bytes(image), is_kernel, budget))
            except Malformed as error:
                why = error
        raise why

    def _page_tables(self):
        """The kernel's own ones: those of a process end with it."""
        own = self.symbols["init_top_pgt"] - KERNEL_MAP + self.moved
        moved, banner = self.memory.read(own, [(self.symbols["phys_base"], 8), (self.symbols["linux_banner"], 14)])
        if number(moved) != self.moved or banner != b"Linux version ":
            raise Malformed("the guest's kernel has no page tables of its own")
        return own

    def _word(self, name):
        return number(self.memory.read(self.cr3, [(self.symbols[name], 8)])[0])

    def _between(self, start, end, most):
        size = self.symbols[end] - self.symbols[start]
        if not 0 < size <= most:
            raise Malformed(f"the kernel has nothing at {start}")
        return bytes(self.memory.block(self.cr3, self.symbols[start], size))

    def _current(self, types):
        """Where a CPU has its current task, from its GS base on."""
        if types.has("pcpu_hot"):  # Linux 6.2 to 6.14
            return self.symbols["pcpu_hot"] + types.offset("pcpu_hot.current_task")
        return self.symbols["current_task"]

    def function(self, address):
        """(start, end, name) of a function of the kernel or of a module, or None."""
        inside = self.symbols["_text"] <= address < self.symbols["_end"]
        return self.symbols.function(address) if inside else self.modules.function(address)

    # --- the current task ---

    def tasks(self, found):
        """The Task of each (GS base, address of the task_struct, CR3, CPL) of a sample, or None."""
        return self.memory.together(self.cr3, [self._task(*one) for one in found])

    def _task(self, gs, task, cr3, cpl):
        at = self.at
        if gs not in self.cpus or not is_kernel(task):
            raise Malformed("this is no task")
        pid, tgid, comm, leader, mm = yield [(task + at["task_struct.pid"], 4), (task + at["task_struct.tgid"], 4),
                                             (task + at["task_struct.comm"], 16), (task + at["task_struct.group_leader"], 8),
                                             (task + at["task_struct.mm"], 8)]
        tid, pid, leader, mm = number(pid), number(tgid), number(leader), number(mm)
        if tid >= MAX_PID or pid >= MAX_PID:
            raise Malformed("this is no task")
        wanted = [(leader + at["task_struct.comm"], 16), (leader + at["task_struct.start_time"], 8)]
        if mm:
            wanted += [(mm + at["mm_struct.pgd"], 8), (mm + at["mm_struct.exec_vm"], 8)]
        leader_comm, started, *space = yield wanted
        pgd, pages = (number(space[0]) - self.direct_map, number(space[1])) if mm else (0, 0)
        if pgd & ~ADDRESS_BITS:
            raise Malformed("the task's page tables are not in memory")
        if cpl == 3 and (not mm or cr3 & ADDRESS_BITS not in (pgd, pgd + PAGE)):  # the second with page table isolation
            raise Malformed("the task has another address space")
        if not pid:  # the idle task of each CPU, swapper/N, is one process for perf
            return Task(0, 0, b"swapper", b"swapper", 0, 0, 0, 0)
        names = [printable(copied(name).split(b"\0")[0]) for name in (comm, leader_comm)]
        return Task(pid, tid, *names, number(started), mm, pgd, pages)

    # --- its maps ---

    def maps(self, task, addresses):
        """Executable mappings of a task's process. They are read again if their size has changed, if one of the addresses is in none
        of them, and now and then. None: they cannot be read."""
        read, exec_vm, areas = self.areas.get(task.process, (0, None, []))
        now = time.monotonic()
        if exec_vm == task.exec_vm and now - read < REFRESH and \
                all(any(area.start <= address < area.end for area in areas) for address in addresses):
            return areas
        self.areas.pop(task.process, None)
        areas = self._read_maps(task)
        if areas is not None:
            self.areas[task.process] = now, task.exec_vm, areas
        if len(self.areas) > MAX_PROCESSES:
            del self.areas[next(iter(self.areas))]
        return areas

    def _read_maps(self, task):
        try:
            areas = self._areas(task.mm)
        except UNREADABLE:
            return None
        code = [area for area in areas if area.flags & VM_EXEC][:MAX_CODE]
        self._name(code)
        self._identify(task, areas, code)
        still, vdso = self.memory.read(self.cr3, [(task.mm + self.at["mm_struct.pgd"], 8),
                                                  (task.mm + self.at["mm_struct.context.vdso"], 8)])
        if still is None or vdso is None or number(still) - self.direct_map != task.pgd:
            return None  # it has ended, and its memory may be another's
        for area in code:
            if area.start == number(vdso) and not area.file:
                area.name = b"[vdso]"
        return code

    def _name(self, code):
        left = MAX_PATHS
        for area, name in zip(code, self.memory.together(self.cr3, [self._path(area.file) for area in code])):
            left -= len(name or b"")
            if name is not None and left >= 0:
                area.name = name

    def _areas(self, mm):
        """All mappings, by the maple tree (Documentation/core-api/maple_tree.rst), level by level."""
        root = self.memory.read(self.cr3, [(mm + self.at["mm_struct.mm_mt"] + self.at["maple_tree.ma_root"], 8)])[0]
        if number(root) & 3 != 2:
            raise Malformed("the guest's process has no tree of mappings")
        level, leaves, nodes = [(number(root), (1 << 64) - 1)], [], 0
        for _ in range(MAX_DEPTH):
            nodes += len(level)
            if not level or nodes > MAX_NODES:
                break
            answers = self.memory.read(self.cr3, [(entry & ~(NODE - 1), NODE) for entry, _ in level])
            level = [child for (entry, most), node in zip(level, answers) for child in self._children(entry, most, node, leaves)]
        if level or len(leaves) > MAX_AREAS:
            raise Malformed("the guest's process has too many mappings")
        return [area for area in self.memory.together(self.cr3, [self._area(mm, *leaf) for leaf in leaves]) if area]

    def _children(self, entry, most, node, leaves):
        """Slots of a node: (entry, last index) of other nodes. Those of a leaf are added to leaves."""
        kind = entry >> 3 & 15
        if not is_kernel(entry) or kind not in (LEAF, RANGE, ARANGE) or node is None:
            raise Malformed("the guest's process has no tree of mappings")
        layout = "maple_arange_64" if kind == ARANGE else "maple_range_64"
        pivot, slot = self.at[layout + ".pivot"], self.at[layout + ".slot"]
        count = (slot - pivot) // 8 + 1
        children = []
        for i in range(count):
            last = struct.unpack_from("<Q", node, pivot + 8 * i)[0] if i + 1 < count else most
            value = struct.unpack_from("<Q", node, slot + 8 * i)[0]
            if i and not last or last > most:
                break
            if is_kernel(value):
                (leaves if kind == LEAF else children).append((value, last))
            if last == most:
                break
        return children

    def _area(self, mm, vma, last):
        names = "vm_start", "vm_end", "vm_mm", "vm_flags", "vm_pgoff", "vm_file"
        values = yield [(vma + self.at["vm_area_struct." + name], 8) for name in names]
        start, end, owner, flags, page, file = (number(value) for value in values)
        if owner != mm or not start < end <= USER_END or (start | end) % PAGE or end - 1 != last or page >= 1 << 52:
            raise Malformed("this is no mapping")
        return Area(start, end, page * PAGE, flags, file)

    # --- names of files ---

    def _path(self, file):
        """The path of a mapped file as the process has it, by the chain of directory entries and mounts. None: it is no file's."""
        if not file:
            return None
        mode = yield [(file + self.at["file.f_mode"], 4)]
        below = self.user_path is not None and number(mode[0]) & FMODE_BACKING
        place = file + (self.user_path if below else self.at["file.f_path"])
        mnt, dentry = yield [(place + self.at["path.mnt"], 8), (place + self.at["path.dentry"], 8)]
        mnt, dentry, parts, mounts = number(mnt), number(dentry), [], 0
        root, mount_parent, mount_point = yield self._mount(mnt)
        for _ in range(MAX_NAMES + MAX_MOUNTS):
            parent, length, name = yield [(dentry + self.at["dentry.d_parent"], 8),
                                          (dentry + self.at["dentry.d_name"] + self.at["qstr.len"], 4),
                                          (dentry + self.at["dentry.d_name"] + self.at["qstr.name"], 8)]
            at_root = dentry == number(root)
            if at_root or dentry == number(parent):
                above = number(mount_parent) + self.at["mount.mnt"]
                if not at_root or above == mnt or not is_kernel(above):
                    return b"/" + b"/".join(reversed(parts))
                mounts += 1
                mnt, dentry = above, number(mount_point)
                if mounts > MAX_MOUNTS:
                    break
                root, mount_parent, mount_point = yield self._mount(mnt)
                continue
            if not 0 < number(length) <= MAX_NAME:
                break
            text = yield [(number(name), number(length))]
            parts.append(printable(copied(text[0])))
            dentry = number(parent)
        raise Malformed("a file has no path")

    def _mount(self, mnt):
        mount = mnt - self.at["mount.mnt"]
        return [(mnt + self.at["vfsmount.mnt_root"], 8), (mount + self.at["mount.mnt_parent"], 8),
                (mount + self.at["mount.mnt_mountpoint"], 8)]

    # --- build ids ---

    def _identify(self, task, areas, code):
        """Build ids, from ELF headers and notes: as the process has them mapped, from its file's start on, or, if it has not touched
        that page, as they are in the page cache."""
        starts = {}
        for area in areas:
            if not area.offset:
                starts.setdefault(area.file or area.start, area)
        keys = [area.file or area.start for area in code]
        wanted = [starts[key] for key in dict.fromkeys(keys) if key in starts]
        found = self.memory.together(task.pgd, [self._elf(area.start, area.end - area.start) for area in wanted])
        identities = {area.file or area.start: identity for area, identity in zip(wanted, found) if identity}
        files = [key for key in dict.fromkeys(keys) if key not in identities and is_kernel(key)]
        pages = self.memory.together(self.cr3, [self._first_page(file) for file in files])
        cached = {file: page for file, page in zip(files, pages) if page is not None}
        found = self.memory.together(PHYSICAL, [self._elf(page, PAGE) for page in cached.values()])
        identities.update({file: identity for file, identity in zip(cached, found) if identity})
        for area, key in zip(code, keys):
            area.identity = identities.get(key, "-")

    def _first_page(self, file):
        """Where the first page of a file is in memory: the first entry of the tree of its pages (Documentation/core-api/xarray.rst)."""
        mapping = number((yield [(file + self.at["file.f_mapping"], 8)])[0])
        entry = number((yield [(mapping + self.at["address_space.i_pages"] + self.at["xarray.xa_head"], 8)])[0])
        for _ in range(MAX_DEPTH):
            if entry & 3 != 2:
                break
            entry = number((yield [((entry & ~3) + self.at["xa_node.slots"], 8)])[0])
        offset = entry - self.pages
        if entry & 3 or offset < 0 or offset % self.page_size:
            raise Malformed("the file's first page is not in memory")
        return offset // self.page_size * PAGE

    def _elf(self, start, size):
        """What identifies the ELF file at an address, of which so many bytes are there."""
        header = (yield [(start, 64)])[0]
        if header is None or header[:6] != b"\x7fELF\x02\x01":
            return None
        place, length, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
        if length != 56 or not 0 < count <= MAX_HEADERS or place + length * count > min(size, PAGE):
            return None
        headers = copied((yield [(start + place, length * count)])[0])
        rows = [struct.unpack_from("<IIQQQQQQ", headers, length * i) for i in range(count)]
        notes = [row for row in rows if row[0] == 4 and row[5]]  # offset is [2], size is [5]
        there = [row for row in notes if row[5] <= MAX_NOTES and row[2] + row[5] <= size]
        found = [data for data in (yield [(start + row[2], row[5]) for row in there]) if data is not None]
        build_id = next(filter(None, map(symbols.build_id, found)), None)
        # One that is not there may have the build id: newer linkers put the ABI's note after the code.
        return build_id or (symbols.identity(header, headers, found) if len(found) == len(notes) else None)


def entries(control, memory):
    """[(linear, physical)]: where SYSCALL enters the kernel. With page table isolation this is in the tables of user code too. All vCPUs of
    a Linux have the same; of those that differ the most frequent ones will do."""
    found = collections.Counter()
    for words in (line.split() for line in control.ask("registers") if line.startswith("vcpu")):
        cr3, cr4, lstar = int(words[3], 16), int(words[5], 16), int(words[9], 16)
        try:
            if is_kernel(lstar):
                found[lstar, memory.physical(cr3, 5 if cr4 & CR4_LA57 else 4, lstar)] += 1
        except Malformed:
            continue
    return [entry for entry, _ in found.most_common(MAX_ENTRIES)]


def find(control):
    """The guest's Linux. Malformed: there is none, or not yet."""
    memory, why = Memory(control), Malformed("no vCPU says where the kernel is")
    budget = kernel_symbols.Budget()
    for linear, physical in entries(control, memory):
        try:
            return LinuxGuest(memory, linear, physical, budget)
        except UNREADABLE as error:
            why = error
    raise why
