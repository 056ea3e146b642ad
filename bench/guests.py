# SPDX-License-Identifier: MIT
"""The machines of the benchmark: the host itself, and guests that wait for a word on their console and measure what it
names. All of them stay up for the whole run, idle but for the one that is asked, so that every round can ask each in turn."""

import contextlib
import dataclasses
import io
import os
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
sys.path.insert(0, os.path.join(TOP, "tests/linux"))

from machine import Failure, Machine  # noqa: E402

OUT = os.path.join(TOP, "build/bench")
WORK = os.path.join(OUT, "work")
ANSWER = re.compile(r"work: (\w+) (\w+) (?:(\d+) (\d+) (\d+) ([0-9a-f]{16})|failed)(.*)")
START_SECONDS = 120  # limit for a boot
ASK_SECONDS = 300  # limit for one measurement
# A guest's clock may differ from ours by what it takes to hand over a line, on a machine that may be busy.
CLOCK_SLACK = 0.5
CLOCK_ERROR = 0.01


@dataclasses.dataclass
class Sample:
    """One measurement: seconds of a unit of work, its checksum, what the kernel's perf counted meanwhile."""

    seconds: float
    checksum: str
    details: str = ""
    waited: float = 0.0  # share of the time that the host had no processor for it


def prepare():
    """Makes what the guests are made of."""
    subprocess.run(["make", "-s", "build/bench/work"], cwd=TOP, check=True)
    subprocess.run([os.path.join(TOP, "bench/initramfs")], check=True)


def workloads():
    """(name, group, CPUs) of each workload of the program."""
    lines = subprocess.check_output([WORK, "list"], text=True).splitlines()
    return [(name, group, int(cpus)) for name, group, cpus in map(str.split, lines)]


def tsc_khz():
    """Of the host, which vpmu and TCG show to guests. TCG has no clock to measure it by on microvm: Linux must be told."""
    with open("/proc/cpuinfo") as lines:
        return next(int(float(line.split(":")[1]) * 1000) for line in lines if line.startswith("cpu MHz"))


def microvm():
    return {"machine": "microvm,pit=on,pic=on,rtc=on", "loader": "vmlinux", "append": f"tsc_early_khz={tsc_khz()}"}


@contextlib.contextmanager
def silence():
    """Machine says what it starts: good for one, too much for a benchmark."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def parse(text):
    """A sample, the seconds it took, and those that the process waited."""
    match = ANSWER.search(text)
    if not match or not match[3]:
        raise Failure(text.strip() or "no answer")
    units, nanoseconds, waited = (int(match[i]) for i in (3, 4, 5))
    return Sample(nanoseconds / units / 1e9, match[6], match[7].strip()), nanoseconds / 1e9, waited / 1e9


class Native:
    """The host. What a workload waits for a processor is not its fault; of those that are several processes it is not
    known what they waited for."""

    TOGETHER = ("fork", "pipe", "pipe2", "compile1", "compile2")

    def ask(self, name, state, milliseconds):
        environment = dict(os.environ, COMPILE_FOLDER=os.path.join(OUT, "compile"))
        done = subprocess.run([WORK, "run", name, state, str(milliseconds)], capture_output=True, text=True,
                              env=environment, timeout=ASK_SECONDS)
        sample, timed, waited = parse(done.stdout + done.stderr)
        if name not in self.TOGETHER:
            sample.waited = min(waited / timed, 0.99)
            sample.seconds *= 1 - sample.waited
        return sample

    def check_clock(self):
        pass

    def close(self):
        pass


class Guest(Machine):
    """A Linux guest whose first process is the program of the workloads."""

    def __init__(self, name, cpus=1, vpmu=None, options=(), **arguments):
        arguments = microvm() | arguments
        arguments["append"] += " cryptomgr.notests norandmaps quiet loglevel=1 rdinit=/init"
        super().__init__(f"bench-{name}-{cpus}", cpus=cpus, extra=["-name", "bench,debug-threads=on"], **arguments)
        self.vpmu, self.options, self.began = vpmu, options, False

    def kernel_arguments(self):
        arguments = super().kernel_arguments()
        files = "work.cpio" if self.cpus == 1 else "compile.cpio"
        arguments[arguments.index("-initrd") + 1] = os.path.join(OUT, files)
        return [word.replace("ignore_loglevel ", "") for word in arguments]

    def command(self):
        command = super().command()
        if self.vpmu and self.accel == "kvm":
            command[0:2] = [self.vpmu, "kvm", *self.options]
        return command

    def start(self):
        with silence():
            self.__enter__()
            self.began = True
            self.expect("work: ready", START_SECONDS)
        self.clocks = self.read_clocks()

    def read_clocks(self):
        """Seconds: the host's clock and the guest's."""
        number = len(self.lines)
        self.send("now\n")
        _, _, match = self.expect(r"work: now (\d+)", ASK_SECONDS, number)
        return time.monotonic(), int(match[1]) / 1e9

    def check_clock(self):
        """Has as much time passed in the guest as on the host?"""
        host, guest = (now - then for now, then in zip(self.read_clocks(), self.clocks))
        if abs(host - guest) > CLOCK_SLACK + CLOCK_ERROR * host:
            raise Failure(f"{self.name}: {guest:.3f} s have passed in the guest, {host:.3f} s on the host")

    def close(self):
        with silence():
            if self.began:
                self.__exit__(None, None, None)

    def waited(self):
        """Seconds that the host's scheduler had the guest's processors waiting for one of its own."""
        total = 0
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            folder = f"/proc/{self.process.pid}/task/{task}"
            with open(folder + "/comm") as comm, open(folder + "/schedstat") as schedstat:
                if comm.read().startswith("CPU "):
                    total += int(schedstat.read().split()[1])
        return total / 1e9

    def ask(self, name, state, milliseconds):
        if not self.began:
            self.start()
        answer, number = rf"work: {name} {state} .*", len(self.lines)
        self.send(f"run {name} {state} {milliseconds}\n")
        number, _, match = self.expect(f"work: begun|{answer}", ASK_SECONDS, number)
        waited, begun = self.waited(), time.monotonic()
        if match[0] == "work: begun":
            _, _, match = self.expect(answer, ASK_SECONDS, number)
        waited, wall = self.waited() - waited, time.monotonic() - begun
        sample, timed, _ = parse(match[0])
        sample.waited = waited / max(timed, wall) / self.cpus
        sample.seconds *= 1 - sample.waited
        return sample


def boot_seconds(accel, vpmu=None, options=(), **arguments):
    """From start to user space, of a test guest as it comes."""

    class Boot(Guest):
        def __init__(self):
            Machine.__init__(self, f"bench-boot-{accel}", accel=accel, **arguments)
            self.vpmu, self.options = vpmu, options
            self.extra = ["-name", "bench,debug-threads=on"]

        kernel_arguments = Machine.kernel_arguments

    with silence():
        begun = time.monotonic()
        with Boot() as machine:
            machine.reached_user_space(START_SECONDS)
            wall = time.monotonic() - begun
            return Sample(wall - min(machine.waited(), wall / 2), "booted")
