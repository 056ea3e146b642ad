# SPDX-License-Identifier: MIT
"""Programs of bench/truth: cycles natively and in a guest of the host's model with full timing."""

import dataclasses
import itertools
import os
import re
import shutil
import statistics
import sys

import silicon
from silicon import WORK

# Programs of bench/work, and the units of a round: some 30 ms natively.
UNITS = {"coremark": 10, "interp": 6, "chase": 2, "zlib": 2, "xz": 2, "sqlite": 20, "stream": 15, "memcpy": 10, "sse2mm": 30,
         "avx2mm": 50}

# Real ones: what they do, some tenths of a second natively.
TEXT = "/usr/bin/perl"
COMMANDS = {
    "xz -1": ["xz", "-1", "-T1", "-k", "-c", TEXT],
    "xz -d": ["sh", "-c", "exec xz -d -c \"$1\"", "sh", "@packed"],
    "gzip": ["gzip", "-c", TEXT],
    "gzip -9": ["gzip", "-9", "-c", TEXT],
    "sha256sum": ["sha256sum", TEXT, TEXT, TEXT, TEXT, TEXT, TEXT],
    "sort": ["sort", "@words"],
    "perl": ["perl", "-e", "for my $i (1..700000) { $h{$i % 1000} .= 'x' if $i =~ /[37]$/; $s += length($h{$i % 77} // '') } print $s"],
    "python3": ["@python", "-I", "-S", "-c",
                "d={}\nfor i in range(400000):\n k=(i*7919)%5003\n d[k]=d.get(k,0)+(i^k)\nprint(sum(d.values()))"],
    "sqlite3": ["sqlite3", ":memory:", "create table t(a integer primary key, b text); with recursive n(i) as (select 1 union all "
                "select i+1 from n where i<150000) insert into t select i, 'row '||(i*7919%10007) from n; "
                "select b, count(*), sum(a) from t group by b order by 2 desc limit 3;"],
}
PERF = 'exec 3>&1 >/dev/null; exec perf stat -x, -o /dev/fd/3 -e cycles:u,instructions:u -- "$@"'
KERNEL = 0.05  # a larger share of the kernel's time leaves a program without a bound,
SPREAD = 0.10  # and so does the median of native rounds that is so much above the best
APART = 4 / 3  # pairs whose native IPC differs by so much must be in the right order


@dataclasses.dataclass
class Row:
    name: str
    native: float  # cycles
    guest: float
    instructions: int
    kernel: float
    spread: float

    @property
    def error(self):
        return self.guest / self.native - 1

    @property
    def bounded(self):
        return self.kernel <= KERNEL and self.spread <= SPREAD

    def ipc(self, cycles):
        return self.instructions / cycles


def spread(rounds):
    return statistics.median(rounds) / min(rounds) - 1


def count(text, name):
    """Rounds of `work count`: (cycles, instructions) of each unit; share of the kernel."""
    rounds = re.findall(rf"work: {name} counted (\d+) (\d+) (\d+)", text)
    user, system = map(float, re.search(rf"work: {name} seconds (\S+) (\S+)", text).groups())
    return [(int(c) / int(n), int(i) / int(n)) for n, c, i in rounds], system / max(user + system, 1e-9)


def work_rows(model, names, rounds):
    natively = {name: [] for name in names}
    kernel = {}
    for turn in range(rounds):
        for name in names:
            counted, kernel[name] = count(silicon.output([WORK, "count", name, str(UNITS[name]), "5"]), name)
            natively[name] += [cycles * (1 - kernel[name]) for cycles, _ in counted]
    script = "; ".join(f"{WORK} count {name} {UNITS[name]} 1" for name in names)
    text = silicon.in_guest(model, ["sh", "-c", script]) if names else ""
    for name in names:
        [(cycles, instructions)], _ = count(text, name)
        yield Row(name, min(natively[name]), cycles, instructions, kernel[name], spread(natively[name]))


def prepare(folder):
    """What commands name with @."""
    words, packed = os.path.join(folder, "words"), os.path.join(folder, "packed.xz")
    with open(words, "w") as file:
        file.writelines(f"{(i * 2654435761) % 1000003:06} {i}\n" for i in range(100000))
    silicon.output(["sh", "-c", 'xz -1 -T1 -c "$1" >"$2"', "sh", TEXT, packed])
    return {"@words": words, "@packed": packed, "@python": os.path.realpath(sys.executable)}


def command_row(model, name, command, rounds):
    natively = [silicon.run_native(command) for _ in range(rounds)]
    cycles = [cycles for cycles, _ in natively]
    text = silicon.in_guest(model, ["sh", "-c", PERF, "sh", *command])
    values = {event: int(value) for value, event in re.findall(r"^(\d+),,(\w+):u", text, re.M)}
    return Row(name, min(cycles), values["cycles"], values["instructions"], min(share for _, share in natively), spread(cycles))


def in_order(rows):
    """Pairs whose IPC differs natively, and those of them in the right order."""
    pairs = [(a, b) for a, b in itertools.combinations(rows, 2)
             if max(a.ipc(a.native), b.ipc(b.native)) > APART * min(a.ipc(a.native), b.ipc(b.native))]
    right = [(a, b) for a, b in pairs if (a.ipc(a.native) > b.ipc(b.native)) == (a.ipc(a.guest) > b.ipc(b.guest))]
    return len(right), len(pairs)


def line(row):
    remark = "" if row.bounded else "  no bound"
    return (f"{row.name:<12}{row.native / 1e6:>10.2f}{row.guest / 1e6:>10.2f}{row.ipc(row.native):>8.2f}{row.ipc(row.guest):>8.2f}"
            f"{100 * row.error:>+8.0f} %{100 * row.kernel:>8.0f} %{100 * row.spread:>8.0f} %{remark}")


def summary(rows):
    bounded = [row for row in rows if row.bounded]
    for title, these in (("with a bound", bounded), ("all", rows)):
        if not these:
            continue
        errors = [abs(row.error) for row in these]
        right, pairs = in_order(these)
        print(f"{len(these)} programs, {title}: mean error {100 * statistics.mean(errors):.1f} %, worst {100 * max(errors):.0f} %; "
              f"{right} of {pairs} pairs of IPC in order")


def programs(model, pattern, rounds, folder):
    silicon.make("all", "build/bench/work")
    print(f"{'program':<12}{'native':>10}{model:>10}{'IPC':>8}{'IPC':>8}{'error':>10}{'kernel':>10}{'spread':>10}   "
          "(Mcycles; of bench/work: of a unit)")
    rows = []
    for row in work_rows(model, [name for name in UNITS if re.search(pattern, name)], rounds):
        rows.append(row)
        print(line(row), flush=True)
    names = prepare(folder)
    for name, command in COMMANDS.items():
        command = [names.get(word, word) for word in command]
        if not re.search(pattern, name) or not shutil.which(command[0]):
            continue
        rows.append(command_row(model, name, command, 2 * rounds))
        print(line(rows[-1]), flush=True)
    summary(rows)
