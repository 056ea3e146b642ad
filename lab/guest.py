# SPDX-License-Identifier: MIT
"""A guest of `vpmu exec` with a shell in it, and the view of it from the host's side (`vpmu stat`)."""

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time


class Failure(Exception):
    """An experiment could not be run; says why."""


def on_host(*words, stderr=subprocess.PIPE):
    """What a command of the host prints. It must succeed. stderr None: the user sees its progress and complaints."""
    if not shutil.which(words[0]):
        raise Failure(f"there is no {words[0]}")
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=stderr)
    if done.returncode:
        raise Failure(f"'{' '.join(words)}' failed with exit code {done.returncode}: {(done.stderr or '').strip()[-400:]}")
    return done.stdout


VPMU = os.environ.get("VPMU", "vpmu")
HERE = os.path.dirname(os.path.realpath(__file__))


def _parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _descends(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        pid = _parent(pid)
    return False


class Guest:
    """One throw-away guest. Commands run in a shell in it, one after the other, each for so many seconds at most; the guest itself has no
    limit, since experiments share it, and ends with its standard input."""

    def __init__(self, model="genoa", pmu="mediated", accounting="guest", cpus=1, options=(), seconds=900):
        self.seconds = seconds
        # perf in the guest prints numbers as the locale has them, and the guest inherits the environment.
        self.environment = dict(os.environ, VPMU_PMU=pmu, VPMU_ACCOUNTING=accounting, LC_ALL="C")
        self.command = [VPMU, "exec", "--cpu", model, "--cpus", str(cpus), *options, "--", "sh"]
        self.commands = 0
        self.waiting = b""

    def __enter__(self):
        self.errors = tempfile.TemporaryFile() if not os.environ.get("LAB_VERBOSE") else None
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, env=self.environment)
        try:
            self.run("true")
            self.pid = self._find()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self._kill()
        self.process.stdout.close()
        if self.errors:
            self.errors.close()

    def _kill(self):
        """SIGTERM first, upon which vpmu exec ends its guest."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _find(self):
        """The process of the VM: its control socket is a descendant's of ours."""
        with open("/proc/net/unix") as names:
            for line in names:
                match = re.search(rf"@vpmu/{os.getuid()}/(\d+)", line)
                if match and _descends(int(match[1]), self.process.pid):
                    return int(match[1])
        raise Failure("the VM has no control socket: is VPMU_CONTROL off?")

    def start(self, command):
        """Starts a command; finish() waits for it."""
        self.commands += 1
        mark = f"lab-mark-{self.commands}"
        text = f"{{ {command}\n}} 2>&1; echo {mark} $?\n"
        with contextlib.suppress(BrokenPipeError):  # finish() says why
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()
        self.mark, self.command_text = mark, command

    def finish(self):
        """What the command printed. It must have succeeded."""
        end, pattern = time.monotonic() + self.seconds, re.compile(rb"(?:^|\n)" + self.mark.encode() + rb" (\d+)\n")
        while True:
            match = pattern.search(self.waiting)
            if match:
                output = self.waiting[: match.start()].decode(errors="replace")
                self.waiting = self.waiting[match.end():]
                if int(match[1]):
                    raise Failure(f"in the guest, '{self.command_text}' failed with exit code {int(match[1])}: "
                                  f"{output.strip()[-400:]}")
                return output
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise Failure("the guest does not answer")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                words = self.last_words()
                raise Failure(f"'{' '.join(self.command)}' ended: {words}")
            self.waiting += more

    def last_words(self):
        """What it said before it ended, or, if that is nothing, what vpmu said."""
        said = self.waiting
        if not said.strip() and self.errors:
            self.process.wait(30)
            self.errors.seek(0)
            said = self.errors.read()
        return said.decode(errors="replace").strip()[-400:]

    def run(self, command):
        self.start(command)
        return self.finish()

    def background(self, command):
        """Starts a command that runs until end() and writes its process's number to /tmp/begun when it is under way."""
        self.run(f"rm -f /tmp/begun; {command} >/dev/null 2>&1 &")
        self.run("until [ -s /tmp/begun ]; do kill -0 $! || exit 1; sleep 0.1; done")

    def end(self):
        self.run("kill $(cat /tmp/begun); wait")

    # --- from the host's side ---

    def vpmu(self, *words):
        return on_host(VPMU, words[0], str(self.pid), *words[1:])

    def stat(self):
        return json.loads(self.vpmu("stat", "--json"))

    def cpu_seconds(self):
        """CPU time of all threads of the VM's process."""
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            try:
                with open(f"/proc/{self.pid}/task/{task}/schedstat") as times:
                    total += int(times.read().split()[0])
            except FileNotFoundError:
                pass  # it has just ended
        return total / 1e9

    def hold(self, events):
        """Events of the host, while the with-statement lasts."""
        return Holder(self.pid, events)

    def exits(self, command):
        """PMU accesses of a command, by name: (exits, passed)."""
        before = self.stat()
        output = self.run(command)
        return output, difference(before, self.stat())

    def writes(self, command):
        """Writes of PMU registers of a command, by name, whether they exit or pass."""
        before = self.stat()
        self.run(command)
        grown = difference(before, self.stat(), slice(1, 2))
        return {name: sum(sum(both) for (of, _), both in grown.items() if of == name) for name, _ in grown}


class Holder:
    """A `vpmu stat` that holds events of the host; what it said is in .said, as JSON lines."""

    def __init__(self, pid, events):
        self.command = [VPMU, "stat", str(pid), "-e", events, "-I", "100", "--json"]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said = self.process.stdout.readline()  # they count by now
        if not self.said:
            raise Failure(self.process.stderr.read().strip())
        return self

    def __exit__(self, *_):
        self.process.terminate()
        with self.process:
            self.said += self.process.stdout.read()  # communicate() would not see what readline() has read ahead


class Guests:
    """Guests that experiments share, since booting is most of the time: one for each model and set of options. Who asks for
    one says which mode it is to be in."""

    def __init__(self):
        self.running = {}

    def get(self, model="genoa", pmu="mediated", accounting="guest", cpus=1, options=()):
        if pmu == "off":
            options = [*options, "--pmu", "off"]
        key = (model, cpus, tuple(options))
        if key not in self.running:
            self.running[key] = Guest(model, cpus=cpus, options=options).__enter__()
            self.running[key].run("perf stat -e instructions true")  # whatever happens only once
            # Linux samples less when samples take long, as here: an experiment wants the periods that it asked for.
            self.running[key].run("cd /proc/sys/kernel; echo 99 >perf_cpu_time_max_percent; echo 1000000 >perf_event_max_sample_rate; "
                                  "echo 0 >perf_cpu_time_max_percent")
        guest = self.running[key]
        if pmu != "off":
            guest.vpmu("set", f"pmu={pmu}", f"accounting={accounting}")
        return guest

    def close(self):
        while self.running:
            self.running.popitem()[1].__exit__()


BOTH = slice(0, 2)  # reads and writes


def accesses(stat, kinds=BOTH):
    return {(row["name"], row["msr"]): (sum(row["exits"][kinds]), sum(row["passed"][kinds])) for row in stat["msrs"] if row["pmu"]}


def difference(before, after, kinds=BOTH):
    then = accesses(before, kinds)
    grown = {}
    for key, (exits, passed) in accesses(after, kinds).items():
        was = then.get(key, (0, 0))
        if (exits, passed) != was:
            grown[key] = (exits - was[0], passed - was[1])
    return grown


def recorded(guest, comm, data="/tmp/lab.data"):
    """(samples of a program, of all events, and lost samples) that perf finds in a recording in the guest."""
    text = guest.run(f"perf report -i {data} --stdio -n --sort comm 2>/dev/null")
    samples = re.findall(rf"^\s*[\d.]+%\s+(\d+)\s+{comm}\s*$", text, re.M)
    lost = re.search(r"^# Total Lost Samples: (\d+)$", text, re.M)
    if not samples or not lost:
        raise Failure(f"there are no samples of {comm}: {text[:200]}")
    return sum(int(count) for count in samples), int(lost[1])


def perf_counts(text):
    """{event: count} of what perf stat printed; None: not counted."""
    counts = {}
    for line in text.splitlines():
        match = re.match(r"\s*([\d,.]+|<not counted>|<not supported>)\s+([\w./=:,-]+)", line)
        if match and "seconds" not in line:
            number = match[1].replace(",", "")
            counts.setdefault(match[2], int(number) if number.isdigit() else None)
    return counts


def program(lab, name, flags=("-static", "-no-pie", "-fno-pie")):
    """A program of this folder, built for the guest, which sees the host's files."""
    if not hasattr(lab, "built"):
        if not shutil.which("cc"):
            raise Failure("there is no C compiler: run 'apt install gcc libc6-dev'")
        lab.built = tempfile.mkdtemp(prefix="vpmu-lab-", dir="/var/tmp")
    path = f"{lab.built}/{name}"
    if not os.path.exists(path):
        on_host("cc", "-O1", "-g", *flags, "-fno-omit-frame-pointer", "-I", os.path.dirname(HERE), "-o", path, f"{HERE}/{name}.c")
    return path
