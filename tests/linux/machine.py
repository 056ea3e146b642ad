# SPDX-License-Identifier: MIT
"""A QEMU machine on vpmu, as the tests of this folder use it: start, listen to its console, talk to its monitor,
end it, judge what it said. Each runs in a process group of its own; nothing of it outlives the test."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
RESULTS = os.environ.get("RESULTS", os.path.join(TOP, "build/results")) + "/linux"
VPMU = os.environ.get("VPMU", os.path.join(TOP, "build/vpmu"))

# Some tests read what programs say.
os.environ["LC_ALL"] = "C.UTF-8"
os.environ.pop("LANGUAGE", None)

# Boots take seconds on a quiet machine. These limits are for machines that are not: a test never measures with them.
BOOT_SECONDS = int(os.environ.get("BOOT_SECONDS", 240))

# A process that ends with this one, even if this one is killed: it is in a session of its own, out of the reach of tests/run.
MORTAL = ["setpriv", "--pdeathsig", "KILL"]

# What a healthy guest never says, whatever the level.
TROUBLE = re.compile(
    r"WARNING: CPU|BUG: |Oops|Call Trace:|Kernel panic|general protection|soft lockup|hard LOCKUP|rcu.*stall"
    r"|rcu_.*detected|Clocksource .* skewed|[Cc]locksource.*unstable|Marking TSC unstable|TSC synchronization.*warp"
    r"|hung_task|blocked for more than|unchecked MSR access|MP-BIOS bug|spurious.*vector|Failed to access perfctr"
    r"|invalid opcode|stack guard|segfault|not responding|No irq handler|nobody cared|Unhandled"
)


class Failure(Exception):
    """The machine did not do what the test expects of it."""


def log(text):
    print(text, flush=True)


def allowed_warnings():
    """Kernel messages of level warning that are no fault of the machine: tests/linux/dmesg.allow."""
    with open(os.path.join(TOP, "tests/linux/dmesg.allow")) as lines:
        patterns = [line.split("#")[0].strip() for line in lines]
    return re.compile("|".join(p for p in patterns if p) or "(?!)")


def of_release(kind, name):
    """What the host's release of Debian has by this name (scripts/vpmu-release); skips the test where it has nothing."""
    script = os.path.join(TOP, "scripts/vpmu-release")
    found = subprocess.run([script, kind, name], text=True, stdout=subprocess.PIPE)
    if found.returncode:
        log(f"SKIP: there is no {kind} {name} in {subprocess.check_output([script], text=True).strip()} that can be used")
        sys.exit(4)
    return found.stdout.strip()


def program(name):
    return of_release("program", name)


def initramfs(kernel):
    return os.path.join(TOP, subprocess.check_output([os.path.join(TOP, "tests/linux/initramfs"), kernel], text=True).strip())


class Monitor:
    """QEMU's QMP socket."""

    def __init__(self, path, seconds=30):
        self.socket = socket.socket(socket.AF_UNIX)
        end = time.monotonic() + seconds
        while True:
            try:
                self.socket.connect(path)
                break
            except OSError:
                if time.monotonic() > end:
                    raise Failure("QEMU's monitor does not answer")
                time.sleep(0.05)
        self.socket.settimeout(seconds)
        self.stream = self.socket.makefile("r")
        self.events = []
        self.stream.readline()
        self.command("qmp_capabilities")

    def read(self):
        line = self.stream.readline()
        if not line:
            raise Failure("QEMU closed its monitor")
        return json.loads(line)

    def command(self, name, **arguments):
        request = {"execute": name}
        if arguments:
            request["arguments"] = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            answer = self.read()
            if "event" in answer:
                self.events.append(answer["event"])
            elif "error" in answer:
                raise Failure(f"monitor: {name}: {answer['error']['desc']}")
            else:
                return answer["return"]

    def human(self, line):
        """The answer of the human monitor to a line, for what QMP lacks."""
        return self.command("human-monitor-command", **{"command-line": line})

    def wait_migrated(self, seconds=120):
        """For the machine to have left."""
        end = time.monotonic() + seconds
        while (status := self.command("query-migrate").get("status")) != "completed":
            if status in ("failed", "cancelled") or time.monotonic() > end:
                raise Failure(f"migration: {status}")
            time.sleep(0.1)

    def wait_event(self, name):
        while name not in self.events:
            answer = self.read()
            if "event" in answer:
                self.events.append(answer["event"])
        self.events.remove(name)


class Machine:
    """One QEMU process. The arguments are those of tests/linux/boot; test names a script of tests/linux/guest, and
    variables are handed to it."""

    def __init__(self, name, kernel="6.12-cloud", machine="q35", cpus=1, model="icelake", loader="bzImage", irqchip="on",
                 memory=512, test=None, variables=None, append="", extra=(), accel="kvm", restarts=False, linux=True,
                 shared=False, cpu="host", stub=False, quiet=False):
        self.name, self.kernel, self.machine, self.cpus, self.model = name, kernel, machine, cpus, model
        self.loader, self.irqchip, self.memory, self.test = loader, irqchip, memory, test
        self.variables, self.append, self.extra, self.accel = variables or {}, append, list(extra), accel
        self.restarts, self.linux, self.shared, self.cpu, self.quiet = restarts, linux, shared, cpu, quiet
        self.temporary = tempfile.TemporaryDirectory(prefix="vpmu-linux-", ignore_cleanup_errors=True)
        self.folder = self.temporary.name
        if stub:
            self.extra += ["-gdb", f"unix:{self.stub},server=on,wait=off"]
        self.log_name = os.path.join(RESULTS, name.replace("/", "-") + ".serial")
        self.lines = []
        self.news = threading.Condition()
        self.ended = False
        self.process = None
        self.own_monitor = None

    @property
    def stub(self):
        """The socket of QEMU's gdb stub."""
        return self.folder + "/gdb"

    def kernel_arguments(self):
        if not self.linux:
            return []
        parts = ["console=ttyS0", "panic=-1", "loglevel=6" if self.quiet else "ignore_loglevel", self.append]
        if self.test:
            parts += [f"test={self.test}"]
        parts += [f"{key}={value}" for key, value in self.variables.items()]
        return ["-kernel", os.path.join(TOP, "build/kernels", self.kernel, self.loader), "-initrd", initramfs(self.kernel),
                "-append", " ".join(p for p in parts if p)]

    def memory_arguments(self):
        if not self.shared:
            return ["-m", str(self.memory)]
        return ["-m", str(self.memory), "-object", f"memory-backend-memfd,id=ram,size={self.memory}M,share=on"]

    def command(self):
        machine = f"{self.machine},accel={self.accel}"
        if self.accel == "kvm":
            machine += f",kernel-irqchip={self.irqchip}"
        if self.shared:
            machine += ",memory-backend=ram"
        vpmu = [VPMU, "kvm", "--cpu", self.model] if self.accel == "kvm" else []
        return vpmu + ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-M", machine,
                       "-cpu", self.cpu if self.accel == "kvm" else "max", "-smp", str(self.cpus), *self.memory_arguments(), "-chardev", "stdio,id=serial,signal=off",
                       "-serial", "chardev:serial", "-qmp", f"unix:{self.folder}/qmp,server=on,wait=off",
                       *([] if self.restarts else ["-no-reboot"]), *self.kernel_arguments(), *self.extra]

    def __enter__(self):
        command = self.command()
        os.makedirs(RESULTS, exist_ok=True)
        log("+ " + " ".join(repr(word) if " " in word else word for word in command))
        self.errors = open(self.log_name[: -len("serial")] + "qemu", "w+")
        self.process = subprocess.Popen(MORTAL + command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        cwd=TOP, start_new_session=True)
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        return self

    def __exit__(self, kind, error, trace):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.listener.join()
        self.temporary.cleanup()
        self.errors.seek(0)
        complaints = self.errors.read().strip()
        self.errors.close()
        if complaints:
            log("QEMU said:\n" + complaints)
        if kind:
            log(f"the console's last lines ({self.log_name}):")
            for _, line in self.lines[-15:]:
                log("  " + line)

    def listen(self):
        with open(self.log_name, "w", errors="replace") as copy:
            for line in self.process.stdout:
                now = time.time()
                text = line.decode(errors="replace").rstrip("\r\n")
                copy.write(text + "\n")
                copy.flush()
                with self.news:
                    self.lines.append((now, text))
                    self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def expect(self, pattern, seconds=BOOT_SECONDS, after=0):
        """Waits for a line of the console after line number `after`; returns its number, time and match."""
        wanted, end, number = re.compile(pattern), time.monotonic() + seconds, after
        with self.news:
            while True:
                while number < len(self.lines):
                    when, text = self.lines[number]
                    match = wanted.search(text)
                    number += 1
                    if match:
                        return number, when, match
                if self.ended:
                    raise Failure(f"QEMU ended; the console never said '{pattern}'")
                if time.monotonic() > end:
                    raise Failure(f"the console did not say '{pattern}' within {seconds} s")
                self.news.wait(1)

    def send(self, text):
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    @property
    def monitor(self):
        if not self.own_monitor:
            self.own_monitor = Monitor(self.folder + "/qmp")
        return self.own_monitor

    def wait_end(self, seconds=BOOT_SECONDS):
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"QEMU still runs after {seconds} s")
        self.listener.join()
        if code:
            raise Failure(f"QEMU ended with code {code}")

    def reached_user_space(self, seconds=BOOT_SECONDS, after=0):
        number, _, match = self.expect(r"vpmu-guest: reached user space with (\d+) CPUs", seconds, after)
        if int(match[1]) != self.cpus:
            raise Failure(f"the guest has {match[1]} of {self.cpus} CPUs")
        return number

    def verdict(self, seconds=BOOT_SECONDS, after=0):
        """Waits for the guest's own verdict."""
        number, _, match = self.expect(r"vpmu-guest: (pass|fail.*)", seconds, after)
        if match[1] != "pass":
            raise Failure(f"in the guest: {match[1]}")
        return number

    def check_messages(self):
        allowed, bad = allowed_warnings(), []
        for _, line in self.lines:
            warning = re.search(r"vpmu-guest: dmesg: (.*)", line)
            if warning and not allowed.search(warning[1]) or not warning and TROUBLE.search(line):
                bad.append(line)
        if bad:
            raise Failure("the guest complains:\n  " + "\n  ".join(bad[:20]))

    def run_through(self, seconds=BOOT_SECONDS):
        """From power on to power off."""
        self.reached_user_space()
        self.verdict(seconds)
        self.wait_end(60)
        self.check_messages()


def main(test):
    """Runs a test function; its outcome is the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        test()
    except Failure as failure:
        log(f"FAIL: {failure}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(1)
