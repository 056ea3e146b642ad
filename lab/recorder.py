# SPDX-License-Identifier: MIT
"""vpmu record: asks the control socket of a VM (docs/control.md) for samples and writes them down, with what the guest's Linux says of
the processes that they are of (linux_guest.py), as samples.py describes."""

import errno
import os
import socket
import struct
import time

import build_ids
import linux_guest
import samples
from kernel_symbols import UNREADABLE

SEARCHES = 0, 2, 8, 30  # seconds after the start: a guest that boots is no Linux yet
SECONDS = 10  # for an answer
PEER = struct.Struct("iII")  # struct ucred
MAX_ANSWER = 16 << 20  # characters
MAX_FUNCTIONS = 100_000
MAX_PROCESSES = 256  # that are remembered; one that was forgotten is written down again
MAX_THREADS, MAX_MAPS = 1024, 4096  # of one of them
MAX_DESCRIBED = 256 << 20  # bytes of lines that describe processes: the guest chooses how many there are
REQUESTS = 7000  # bytes: the library has a buffer of 8 KiB for lines that wait


class Silent(Exception):
    """The VM does not answer. No OSError, which is what a VM that has ended is."""


class Socket:
    """A control socket. ValueError: vm is no name of one. Questions: EOFError, OSError if the VM has ended, Silent."""

    def __init__(self, vm):
        pid, _, number = vm.partition(".")
        self.number = number or "0"
        if not pid.isdigit() or not self.number.isdigit():
            raise ValueError(f"'{vm}' is no VM: vpmu ps lists them")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        try:
            self.socket.connect(b"\0vpmu/%d/%d" % (os.getuid(), int(pid)))
        except ConnectionRefusedError:
            raise ValueError(f"there is no VM in process {pid}: vpmu ps lists them") from None
        self._check_peer()
        self.file = self.socket.makefile("r", encoding="ascii", errors="replace", newline="\n")

    def _check_peer(self):
        """Abstract names have no owner: every user can listen at this one."""
        _, uid, _ = PEER.unpack(self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        if uid != os.getuid():
            self.socket.close()
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    @staticmethod
    def _in_time(function, *arguments):
        try:
            return function(*arguments)
        except TimeoutError:
            raise Silent(f"the VM does not answer for {SECONDS} s") from None

    def _answer(self):
        lines, left = [], MAX_ANSWER
        while True:
            line = self._in_time(self.file.readline, left)
            if not line.endswith("\n"):  # the end, or more than a VM says
                raise EOFError
            if line == ".\n":
                return lines
            left -= len(line)
            lines.append(line.rstrip("\n"))

    def ask(self, command):
        return self.ask_all([command])[0]

    def ask_all(self, commands):
        """The answers to several commands, which are sent together, as many as the library keeps."""
        waiting, answers = [f"{self.number} {command}\n".encode() for command in commands], []
        while len(answers) < len(waiting):
            sent, size = 0, 0
            while len(answers) + sent < len(waiting) and (not sent or size + len(waiting[len(answers) + sent]) <= REQUESTS):
                size += len(waiting[len(answers) + sent])
                sent += 1
            self._in_time(self.socket.sendall, b"".join(waiting[len(answers): len(answers) + sent]))
            answers += [self._answer() for _ in range(sent)]
        return answers


class Raw:
    """A guest's sample as the socket gives it."""

    def __init__(self, line, is_linux):
        words = line.split()
        stack = words.index("stack") if "stack" in words else len(words)
        self.rip, self.cr3, self.cpl = int(words[4], 16), int(words[6], 16), int(words[8])
        if is_linux:  # which has its kernel in the upper half: a sample may be of the middle of SYSRET or SYSCALL
            self.cpl = 0 if linux_guest.is_kernel(self.rip) else 3
        self.head, self.callers = " ".join([*words[:8], str(self.cpl)]), words[stack:]
        self.task = [int(word, 16) for word in words[10:12]] if words[9:10] == ["percpu"] else None

    def addresses(self):
        """The instruction's, and of each call."""
        return [self.rip] + [int(word, 16) - 1 for word in self.callers[1:]]

    def text(self, task):
        who = [f"pid {task.pid} tid {task.tid}"] if task else []
        return " ".join([self.head, *who, *self.callers])


class Unwritable(Exception):
    """Lines cannot be written, for this reason. No OSError, which is what a VM that has ended is."""


class Process:
    """What was written down of one: names by TID, maps by address. identity: as Task.process."""

    def __init__(self, identity):
        self.identity, self.comms, self.maps = identity, {}, {}

    def is_of(self, task):
        """One that ends has no memory any longer; one that has other memory executes another program now."""
        return self.identity[:2] == task.process[:2] and task.mm in (0, self.identity[2])


def remember(table, key, value, most):
    """A table that is full begins again: what is not in it is written down again."""
    if len(table) >= most:
        table.clear()
    table[key] = value


class Recorder:
    def __init__(self, control, out, stacks, frequency):
        self.control, self.out, self.stacks = control, out, stacks
        self.begun = time.monotonic()
        self.linux, self.searches, self.why = None, list(SEARCHES), None
        self.processes, self.functions = {}, {}  # by PID, those that were sampled last at the end; by address
        self.count, self.described = 0, 0
        self._line(f"{samples.HEADER}{samples.VERSIONS[-1]} frequency {frequency}")

    def now(self):
        return time.monotonic() - self.begun

    def start(self):
        """Time begins when the guest's kernel has been looked at, which takes a moment."""
        self._search()
        self.begun = time.monotonic()

    def _line(self, *words):
        try:
            print(*words, file=self.out)
        except OSError as error:
            raise Unwritable(error.strerror) from None

    def _write(self, when, *words):
        self._line(f"{when:.6f}", *words)

    def _describe(self, when, *words):
        """A line about a process."""
        self.described += sum(len(str(word)) + 1 for word in words)
        if self.described <= MAX_DESCRIBED:
            self._write(when, *words)

    def _search(self):
        if self.linux or not self.searches or self.now() < self.searches[0]:
            return
        self.searches.pop(0)
        try:
            self.linux = linux_guest.find(self.control)
        except UNREADABLE as error:
            self.why = error  # not yet, or never: processes stay without names
            return
        start, end = self.linux.symbols["_text"], self.linux.symbols["_end"]
        self._write(0, "kernel", f"{start:#x}", f"{end:#x}", self.linux.build_id)

    def _command(self):
        words = ["sample"] + ["stacks"] * self.stacks
        if self.linux:
            words += ["percpu", f"{self.linux.cr3:#x}", f"{self.linux.current:#x}"]
        return " ".join(words)

    def sample(self):
        """One of each vCPU. EOFError, OSError: the VM has ended. Silent. Unwritable."""
        self._search()
        lines = self.control.ask(self._command())
        when = self.now()
        guests = {i: Raw(line, self.linux) for i, line in enumerate(lines) if line.split()[2:3] == ["guest"]}
        tasks = self._tasks(when, guests)
        for raw in guests.values():
            self._note_functions(raw)
        for i, line in enumerate(lines):
            self.count += 1
            self._write(when, guests[i].text(tasks.get(i)) if i in guests else line)

    def _tasks(self, when, guests):
        known = {i: raw for i, raw in guests.items() if self.linux and raw.task}
        if not known:
            return {}
        try:
            found = self.linux.tasks([(*raw.task, raw.cr3, raw.cpl) for raw in known.values()])
        except UNREADABLE:
            return {}
        tasks = {i: task for i, task in zip(known, found) if task}
        for i, task in tasks.items():
            self._introduce(when, task)
            self._locate(when, task, known[i])
        return tasks

    def _process(self, task):
        """(what is known of its process, is it new?)"""
        known = self.processes.pop(task.pid, None)
        new = not known or not known.is_of(task)
        self.processes[task.pid] = process = Process(task.process) if new else known
        if len(self.processes) > MAX_PROCESSES:
            del self.processes[next(iter(self.processes))]
        return process, new

    def _introduce(self, when, task):
        """The names of a thread and its process, if they are new."""
        process, new = self._process(task)
        for tid, comm in {task.pid: task.leader_comm, task.tid: task.comm}.items():
            if process.comms.get(tid) != comm:
                remember(process.comms, tid, comm, MAX_THREADS)
                self._describe(when, "comm", task.pid, tid, samples.quote(comm) or "%20", "new" if new and tid == task.pid else "same")

    def _note_functions(self, raw):
        """Functions of the kernel, for finish()."""
        for address in raw.addresses() if self.linux and raw.cpl == 0 else []:
            found = self._function(address)
            if found and len(self.functions) < MAX_FUNCTIONS:
                self.functions[found[0]] = found

    def _function(self, address):
        try:
            return self.linux.function(address)
        except UNREADABLE:
            return None

    def _areas(self, task, raw):
        try:
            return self.linux.maps(task, raw.addresses()[:1]) or []
        except UNREADABLE:
            return []

    def _locate(self, when, task, raw):
        """The maps of its process that are new."""
        known = self.processes[task.pid].maps
        for area in self._areas(task, raw) if raw.cpl else []:
            if known.get(area.start) != area.key():
                remember(known, area.start, area.key(), MAX_MAPS)
                self._describe(when, "map", task.pid, f"{area.start:#x} {area.end:#x} {area.offset:#x}", area.identity,
                               samples.quote(area.name))

    def finish(self):
        """Functions of the kernel; perf has a cache for all of them. OSError: it cannot be written."""
        for start, end, name in sorted(self.functions.values()):
            self._write(self.now(), "symbol", f"{start:#x} {end:#x}", samples.quote(name))
        if self.linux:
            build_ids.keep_kernel(self.linux.build_id, self.linux.symbols.rows)
