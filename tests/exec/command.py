# SPDX-License-Identifier: MIT
"""`vpmu exec` as a user runs it, for the tests of this folder. Each program has one cache for all its tests, so that a guest
boots once per kind of machine and is resumed after that; programs run side by side."""

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

sys.dont_write_bytecode = True
TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.path.join(TOP, "build")
VPMU = os.environ.get("VPMU", os.path.join(BUILD, "vpmu"))
KERNEL = os.path.join(BUILD, "kernels/6.12-cloud")
CACHE = os.path.join(BUILD, "results/exec-cache", os.path.basename(sys.argv[0]))
SECONDS = 240  # for machines that are busy: no test measures with it


NOBODY = 65534
STRANGER = 64321  # a user that nothing on this machine belongs to
PARTS = ["vpmu", "libvpmu-kvm.so", "vpmu-init", "vpmu-kernel", "vpmu-release"]
is_root = os.geteuid() == 0

# Some tests read what programs say, on the host and in guests.
os.environ["LC_ALL"] = "C.UTF-8"
os.environ.pop("LANGUAGE", None)


def hear_interrupts():
    """Shells have what they start in the background ignore them, and vpmu leaves it so."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def as_user(number, command, **keywords):
    """Runs a command with no privileges: as another user if we are root, else as ourselves."""
    change = [shutil.which("setpriv"), f"--reuid={number}", f"--regid={number}", "--clear-groups", "--inh-caps=-all",
              "--bounding-set=-all", "--no-new-privs"]
    return subprocess.run((change if is_root else []) + command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=SECONDS, **keywords)


def as_nobody(command, **keywords):
    return as_user(NOBODY, command, **keywords)


def make_cache(folder):
    """A cache folder that has its kernel already."""
    os.makedirs(folder + "/vpmu", exist_ok=True)
    link = folder + "/vpmu/6.12-cloud"
    if not os.path.lexists(link):
        os.symlink(os.path.realpath(KERNEL), link)
    return folder


def environment(**changes):
    variables = dict(os.environ, XDG_CACHE_HOME=make_cache(CACHE))
    variables.update(changes)
    return {name: value for name, value in variables.items() if value is not None}


def vpmu(*arguments, **keywords):
    """Runs `vpmu arguments`; the result has returncode, stdout and stderr, as text unless input is bytes."""
    keywords.setdefault("env", environment())
    keywords.setdefault("timeout", SECONDS)
    if "input" not in keywords and "stdin" not in keywords:
        keywords["stdin"] = subprocess.DEVNULL
    keywords.setdefault("text", not isinstance(keywords.get("input"), bytes))
    return subprocess.run([keywords.pop("vpmu", VPMU), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **keywords)


def run(*arguments, **keywords):
    """vpmu exec."""
    return vpmu("exec", *arguments, **keywords)


class Terminal:
    """`vpmu exec`, or another command, on a pseudo-terminal."""

    def __init__(self, *arguments, rows=24, columns=80, stdout=None, vpmu=VPMU, command=None, **changes):
        self.said = b""
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(command or [vpmu, "exec", *arguments], stdin=slave, stdout=stdout or slave,
                                        stderr=slave, env=environment(**changes), start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text):
        os.write(self.master, text.encode())

    def read(self, wait):
        if select.select([self.master], [], [], wait)[0]:
            self.said += os.read(self.master, 65536)

    def expect(self, text):
        """Waits until the terminal shows a text, and forgets everything up to it."""
        end = time.monotonic() + SECONDS
        while text.encode() not in self.said:
            before, ended = len(self.said), self.process.poll() is not None
            self.read(0.1)  # what a process has said before its end may not have been read yet
            if time.monotonic() > end or ended and len(self.said) == before:
                raise AssertionError(f"the terminal never showed {text!r}, but {self.said!r}")
        self.said = self.said.split(text.encode(), 1)[1]

    def wait(self):
        end = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.05)
        return self.process.wait(1)


def children(pid):
    """All processes below one, by number."""
    found, parents = [], {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass
    wanted = [pid]
    while wanted:
        parent = wanted.pop()
        below = [child for child, its in parents.items() if its == parent]
        found += below
        wanted += below
    return found


class Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


class Runner(unittest.TextTestRunner):
    resultclass = Result


def main():
    """Runs the tests of the program. If none has run but some are skipped, so is the program."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result = unittest.main(verbosity=2, testRunner=Runner, exit=False).result
    if result.wasSuccessful() and result.skipped and not result.passed:
        print("SKIP: " + "; ".join(sorted({reason for _, reason in result.skipped})))
        sys.exit(4)
    sys.exit(0 if result.wasSuccessful() and result.passed else 1)
