# SPDX-License-Identifier: MIT
"""Experiments that sample in the guest: mispredictions, branch records, PEBS, top-down, overhead, and the view from outside."""

import collections
import json
import os
import re
import tempfile
import time

from experiments import Result, experiment
from guest import VPMU, Failure, difference, on_host, perf_counts, program, recorded


def shares(guest, data="/tmp/lab.data", options=""):
    """{symbol: percent} of a recording in the guest."""
    text = guest.run(f"perf report -i {data} --stdio --no-children --sort symbol {options} 2>/dev/null")
    return {name: float(percent) for percent, name in re.findall(r"^\s*([\d.]+)%\s+\[[.k]\] (\S+)", text, re.M)}


ELSEWHERE = 1  # percent of samples, at most, in other functions: the program's start and end


def only(found, names):
    """Shares among these alone, and of all samples the share that is elsewhere."""
    total = sum(found.get(name, 0) for name in names)
    if not total:
        raise Failure("there are no samples of the program")
    return {name: 100 * found.get(name, 0) / total for name in names}, max(0, 100 - total)


def must_be_in(result, names, elsewhere):
    """elsewhere: {recording: percent}."""
    said = ", ".join(f"{name} {share:.2f} %" for name, share in elsewhere.items())
    result.must(f"at most {ELSEWHERE} % of samples are outside of {', '.join(names)} ({said})",
                all(share <= ELSEWHERE for share in elsewhere.values()))


# --- branch-miss ---

FUNCTIONS = ["main", "bar", "foo", "qux"]
TURNS = 2400  # thousand, with some ten million mispredictions


def count_misses(lab, guest):
    """{function: mispredictions} that the program itself has counted (ftest_counted.c)."""
    text = guest.run(f"{program(lab, 'ftest_counted')} {TURNS}")
    counts = {name: int(count) for name, count in re.findall(r"^(\w+) (\d+)$", text, re.M)}
    if sorted(counts) != sorted(FUNCTIONS) or not sum(counts.values()):
        raise Failure(f"the program counted nothing: {text[:200]}")
    return counts


@experiment("branch-miss", "Intel 2019", "host: main 48.19, bar 21.21, foo 18.44, qux 11.64 %; guest: 46.18, 22.29, 20.29, 10.47 %")
def branch_miss(lab):
    """Where mispredictions are, sampled in a guest"""
    result, found, elsewhere = Result(), {}, {}
    ftest, guest = program(lab, "ftest"), lab.guests.get("icelake", "mediated")
    counts = count_misses(lab, guest)
    total = sum(counts.values())
    found["exact"] = {name: 100 * counts[name] / total for name in FUNCTIONS}
    unchanged = perf_counts(guest.run(f"perf stat -e branch-misses:u {ftest} {TURNS}")).get("branch-misses:u")
    lab.progress("exact: done")
    # Some twenty thousand samples each: 2 points are then five times what chance makes of a share.
    for mode in ("mediated", "event"):
        guest = lab.guests.get("icelake", mode)
        guest.run(f"perf record -q -e branch-misses:u -c 499 -o /tmp/lab.data {ftest} {TURNS}")
        found[mode], elsewhere[mode] = only(shares(guest), FUNCTIONS)
        lab.progress(f"{mode}: done")
    published = {"main": 48.19, "bar": 21.21, "foo": 18.44, "qux": 11.64}
    result.table("shares of mispredictions, %", ["function", *found, "published host"],
                 [[f, *(f"{found[n][f]:.2f}" for n in found), published[f]] for f in FUNCTIONS])
    result.note("The program is our own of the described shape. Exact: not sampled, but counted by the program, which reads the counter with "
                "RDPMC wherever control leaves a function.")
    result.figures = {**found, "counted": counts, "elsewhere": elsewhere}
    result.plot("mediated", " %", [[f, found["mediated"][f]] for f in FUNCTIONS])
    result.must("event and mediated mode within 2 points of each other",
                all(abs(found["event"][f] - found["mediated"][f]) <= 2 for f in FUNCTIONS))
    result.must("both within 2 points of the exact shares",
                all(abs(found[n][f] - found["exact"][f]) <= 2 for n in ("event", "mediated") for f in FUNCTIONS))
    result.must(f"the program that counts mispredicts as often as the one that is sampled, within 1 % ({total} and {unchanged})",
                unchanged and abs(total - unchanged) <= unchanged / 100)
    must_be_in(result, FUNCTIONS, elsewhere)
    return result


# --- branch records ---

def count_instructions(path, argument):
    """{function of the program: instructions}, exact: vpmu check counts what retires in each translation block of a guest of its own."""
    name = os.path.basename(path)
    with tempfile.TemporaryDirectory(prefix="check-", dir=os.path.dirname(path)) as folder:
        with open(folder + "/suite.toml", "w") as out:
            out.write(f'models = ["icelake"]\nevents = ["instructions:u"]\n'
                      f'[[benchmark]]\nname = "{name}"\ncommand = ["{path}", "{argument}"]\n')
        on_host(VPMU, "check", "--update", folder + "/suite.toml")
        with open(folder + "/suite.baseline") as baseline:
            return functions_of(baseline.read(), name)


def functions_of(baseline, name):
    found = {function: int(count) for function, count in re.findall(rf'^"(?:\S*/)?{name}:(\S+)" = (\d+)$', baseline, re.M)}
    if not found:
        raise Failure(f"vpmu check counted nothing in {name}")
    return found


@experiment("lbr-callgraph", "Intel 2019", "full call chains from _start; self main 13.23, qux 37.26, bar 12.28, foo 16.57 % in the guest")
def lbr_callgraph(lab):
    """Call chains from branch records"""
    result = Result()
    guest = lab.guests.get("icelake", "mediated")
    ftest = program(lab, "ftest")
    names = FUNCTIONS + ["next"]
    guest.run(f"perf record -q -e instructions:u -c 10007 --call-graph lbr -o /tmp/lab.data {ftest} 1200")
    sampled, elsewhere = only(shares(guest, options="-g none"), names)
    chains = guest.run("perf script -i /tmp/lab.data -F ip,sym 2>/dev/null").split("\n\n")
    stacks = [re.findall(r"^\s*[0-9a-f]+ (\S+)", chain, re.M) for chain in chains if chain.strip()]
    inner = [stack for stack in stacks if stack and stack[0] in ("qux", "bar", "foo", "next")]
    good = [stack for stack in inner if "main" in stack and stack[-1] == "_start"]
    counts = count_instructions(ftest, 200)
    exact = {f: 100 * counts.get(f, 0) / sum(counts.get(f, 0) for f in names) for f in names}
    result.table("self, % of instructions", ["function", "with call graph", "exact"],
                 [[f, f"{sampled[f]:.2f}", f"{exact[f]:.2f}"] for f in names])
    deep = collections.Counter(len(stack) for stack in inner)
    result.table("depth of chains", ["frames", "samples"], sorted(deep.items()))
    result.note("Exact: not sampled, but counted by vpmu check, block by block, in a guest of its own.")
    result.figures = {"sampled": sampled, "exact": exact, "elsewhere": elsewhere, "chains": len(inner), "complete": len(good)}
    result.must("self shares within 2 points of the exact ones", all(exact[f] and abs(sampled[f] - exact[f]) <= 2 for f in names))
    must_be_in(result, names, {"sampled": elsewhere})
    result.must(f"chains lead from _start through main ({len(good)} of {len(inner)})", inner and len(good) >= 0.95 * len(inner))
    return result


def branch_pairs(text):
    """{(function, function): records} of what perf script printed of branch stacks; a place without a name is a function of its own."""
    found = collections.Counter()
    for word in text.split():
        places = word.split("/")
        if len(places) > 2:
            found[tuple(re.sub(r"\+0x[0-9a-f]+$", "", place) for place in places[:2])] += 1
    return found


@experiment("lbr-branches", "Intel LBR v14", "12.12/12.03, 11.05/11.09, 8.81/8.57 % host/guest: shares agree")
def lbr_branches(lab):
    """Shares of taken branches in branch records"""
    result = Result()
    guest = lab.guests.get("icelake", "mediated")
    guest.run(f"perf record -q -e instructions:u -c 10007 -b -o /tmp/lab.data {program(lab, 'br_instr')} 20")
    text = guest.run("perf script -i /tmp/lab.data -F brstacksym 2>/dev/null")
    found = branch_pairs(text)
    # Of a turn: 59 of hot, 39 of warm, two calls, two returns, one back in main.
    per_turn = {("hot", "hot"): 59, ("warm", "warm"): 39, ("main", "hot"): 1, ("main", "warm"): 1, ("hot", "main"): 1,
                ("warm", "main"): 1, ("main", "main"): 1}
    total, all_of = sum(found.values()), sum(per_turn.values())
    if not total:
        raise Failure("there are no branch records")
    other = 100 * (1 - sum(found[k] for k in per_turn) / total)
    rows = [[f"{a} to {b}", 100 * found[(a, b)] / total, 100 * n / all_of] for (a, b), n in per_turn.items()]
    result.table("shares of branches, %", ["branch", "measured", "exact"], [[n, f"{m:.2f}", f"{e:.2f}"] for n, m, e in rows])
    result.figures = {name: [measured, exact] for name, measured, exact in [*rows, ["others", other, 0]]}
    result.plot("measured", " %", [[name, measured] for name, measured, _ in rows])
    result.must("all within 1 point of the exact ones", all(abs(measured - exact) <= 1 for _, measured, exact in rows))
    # Of a class with a hundredth of the branches there are some 600 records: a fifth is five times what chance makes of that.
    result.must("each within a fifth of its exact share", all(abs(measured - exact) <= exact / 5 for _, measured, exact in rows))
    result.must(f"at most {ELSEWHERE} % of records are of other branches ({other:.2f} %)", other <= ELSEWHERE)
    return result


# --- PEBS ---

OTHER = "other"  # a skid of no number of instructions


class Loop:
    """A function of br_instr.c, by its listing: where its instructions are."""

    def __init__(self, listing):
        at = [int(a, 16) for a in re.findall(r"^\s*([0-9a-f]+):\t", listing, re.M)]
        ends = [int(a, 16) for a in re.findall(r"^\s*([0-9a-f]+):\t(?:jne|ret)", listing, re.M)]
        self.order = {address - at[0]: i for i, address in enumerate(at)}
        self.jump, self.ret = self.order[ends[0] - at[0]], len(at) - 1

    def skid(self, offset):
        """Instructions between a sample and the last branch before it."""
        place = self.order.get(offset)
        if place is None:
            return OTHER  # in the middle of an instruction
        if place in (self.jump, self.ret):
            return 0
        # After the jump is the loop's first instruction, the function's second, or what follows the loop.
        return place if place < self.jump else place - self.jump


def skids(text, loops):
    """{skid: samples} of what perf script printed: those in the loops, and in no function of the program. Calls of main have no skid to
    be seen."""
    histogram = collections.Counter()
    for line in text.splitlines():
        match = re.search(r"\s(\S+)\+0x([0-9a-f]+)\s*$", line)
        if match and match[1] in loops:
            histogram[loops[match[1]].skid(int(match[2], 16))] += 1
        elif line.strip() and not match:
            histogram[OTHER] += 1
    return histogram


@experiment("pebs-precision", "Tencent 2022", "instructions:ppp: 57.74 / 41.40 % in the guest, 57.90 / 41.95 % on the host")
def pebs_precision(lab):
    """Which instruction a sample names, by precision"""
    result, histograms = Result(), {}
    path = program(lab, "br_instr")
    guest = lab.guests.get("icelake", "mediated")
    loops = {name: Loop(on_host("objdump", "-d", "--no-show-raw-insn", f"--disassemble={name}", path)) for name in ("hot", "warm")}
    for event in ("branches:u", "branches:up", "branches:upp", "branches:uppp"):
        histogram = collections.Counter()
        try:
            guest.run(f"perf record -q -e {event} -c 1009 -o /tmp/lab.data {path} 20")
            histogram = skids(guest.run("perf script -i /tmp/lab.data -F ip,sym,symoff 2>/dev/null"), loops)
        except Failure as failure:
            result.note(f"{event}: {failure}")
        histograms[event] = histogram
        lab.progress(f"{event}: {sum(histogram.values())} samples")
    kinds = sorted({skid for h in histograms.values() for skid in h}, key=lambda skid: (skid == OTHER, skid))
    result.table("samples by skid, in instructions", ["event", *kinds], [[e, *(h[k] for k in kinds)] for e, h in histograms.items()])
    result.note("With :p Linux asks for the instruction after the one that overflowed.")
    guest.run(f"perf record -q -e instructions:uppp -c 10007 -o /tmp/lab.data {path} 50")
    measured, elsewhere = only(shares(guest), ["hot", "warm"])
    exact = {"hot": 100 * 603 / 1006, "warm": 100 * 403 / 1006}
    result.table("shares of instructions, %", ["function", "measured", "exact"],
                 [[f, f"{measured[f]:.2f}", f"{exact[f]:.2f}"] for f in exact])
    result.figures = {"skid": {e: dict(h) for e, h in histograms.items()}, "shares": measured, "elsewhere": elsewhere}
    for event in ("branches:upp", "branches:uppp"):
        h = histograms[event]
        result.must(f"{event}: no skid", h[0] > 100 and h[0] == sum(h.values()))
    result.must("shares within 0.5 point of the exact ones", all(abs(measured[f] - exact[f]) <= 0.5 for f in exact))
    must_be_in(result, exact, {"sampled": elsewhere})
    return result


@experiment("pebs-cost", "Tencent 2022", "about 200 ns a record; one PMI for a buffer instead of one for each sample")
def pebs_cost(lab):
    """PMIs and time of samples, one by one and by the buffer"""
    result, rows, taken, period = Result(), [], [], 20_011
    guest, work = lab.guests.get("icelake", "mediated"), program(lab, "br_instr") + " 100000000"
    counted = Pace(guest, "perf stat -e instructions:u", work)
    for name, event in (("one by one", "instructions:u"), ("large PEBS", "instructions:uppp")):
        # perf stat counts the program that perf record samples: how many samples there should be.
        sampled = Pace(guest, f"perf record -e {event} -c {period} --no-timestamp -o /tmp/lab.data perf stat -x, -o /tmp/counted -e instructions:u",
                       work)
        found, lost = recorded(guest, "br_instr")
        due = int(re.search(r"^(\d+),", guest.run("cat /tmp/counted"), re.M)[1]) / period
        taken.append([name, found, due, lost])
        samples = sampled.rate / period * found / due
        rows.append([name, samples, sampled.pmis, 1000 * sampled.pmis / samples, 1e9 * (1 - sampled.rate / counted.rate) / samples])
        lab.progress(f"{name}: {samples:.0f} samples, {sampled.pmis:.0f} PMIs in a second")
    result.table("in a second of CPU time", ["", "samples", "PMIs", "PMIs per 1000", "ns per sample beside counting"],
                 [[n, f"{s:.0f}", f"{p:.0f}", f"{k:.1f}", f"{ns:.0f}"] for n, s, p, k, ns in rows])
    result.note("A sample's time has in it what perf does with it, and for large PEBS the way to the very instruction.")
    result.table("samples of the whole run", ["", "in the file", "instructions / period", "lost"],
                 [[n, found, f"{due:.0f}", lost] for n, found, due, lost in taken])
    result.figures = {n: {"samples": s, "pmis": p, "ns": ns} for n, s, p, _, ns in rows}
    for name, found, due, lost in taken:
        result.must(f"{name}: a sample for each period of what was counted, within 1 %, and none lost",
                    found > 1000 and abs(found - due) <= due / 100 and not lost)
    result.plot("PMIs per 1000 samples", "", [[n, k] for n, _, _, k, _ in rows])
    result.must("one by one: a PMI for each sample", 900 < rows[0][3] < 1100)
    result.must("large PEBS: at most one PMI for ten samples", rows[1][1] > 100 and rows[1][3] <= 100)
    result.must("a record costs less than a PMI", rows[1][4] < rows[0][4])
    return result


# --- the view from outside ---

@experiment("system-wide", "EPFL 2010", "the host's view of a guest is one line: 98.55 % vmx_vcpu_run")
def system_wide(lab):
    """One profile of guest user, guest kernel, hypervisor and VMM"""
    result = Result()
    guest, path = lab.guests.get("genoa", "mediated"), program(lab, "ftest")
    with tempfile.TemporaryDirectory(prefix="vpmu-lab-") as folder:
        with open(folder + "/kallsyms", "w") as out:
            out.write(guest.run("cat /proc/kallsyms"))
        guest.start(f"timeout 8 sh -c 'while :; do {path} 300; find /usr/share -maxdepth 2 >/dev/null; done' || true")
        on_host(VPMU, "record", str(guest.pid), "--for", "6", "-o", folder + "/data")
        guest.finish()
        text = on_host(VPMU, "report", "-i", folder + "/data", "--kallsyms", folder + "/kallsyms", "--elf", path)
    rows = re.findall(r"^\s*([\d.]+) %\s+(\d+)\s+(guest user|guest kernel|hypervisor|VMM)\s+(.*)$", text, re.M)
    worlds = collections.Counter()
    for _, count, world, _ in rows:
        worlds[world] += int(count)
    total = sum(worlds.values())
    named = sum(int(c) for _, c, world, what in rows if world == "guest kernel" and not what.startswith("0x"))
    user = [what for _, _, world, what in rows if world == "guest user"]
    result.table("samples", ["share, %", "where", "what"], [[share, world, what] for share, _, world, what in rows[:20]])
    result.plot("where", " %", [[world, 100 * n / max(total, 1)] for world, n in worlds.most_common()])
    result.figures = dict(worlds)
    result.must("guest user, guest kernel and hypervisor are told apart", all(worlds[w] for w in ("guest user", "guest kernel", "hypervisor")))
    result.must("nearly all of the guest's kernel has names", worlds["guest kernel"] and named > 0.9 * worlds["guest kernel"])
    result.must("the program's functions have names", any(what.startswith("ftest ") for what in user))
    return result


# --- cost ---

# Cycles, instructions, branches, taken ones, loads, stores; conditional branches, returns, read-modify-writes, uops.
SIX = "cycles,instructions,branches,r00c4,r0129,r0229"
TEN = SIX + ",r00d1,r00c8,r0429,r00c1"
MODELLED = "cycles,instructions,branches,branch-misses,cache-references,cache-misses"
MODES = ("event", "mediated")
COUNTERS = 6  # of genoa: more events take turns
# What latency.c measures, by the registers that a Linux guest accesses.
COSTS = {"RDPMC": "RDPMC, counters run", "PerfCntrGlobalStatusClr": "WRMSR global status clear",
         "PerfCntrGlobalStatus": "RDMSR global status, counters run", "PerfCntrGlobalCtl": "WRMSR global control",
         "PERF_CTL": "WRMSR event select", "PERF_CTR": "WRMSR counter"}
PMI = "PMI, without the handler's accesses"


def measure_latencies(lab, mode):
    """{access or PMI: (ns, cycles)} in a guest that does nothing else."""
    text = on_host(VPMU, "kvm", "--cpu", "genoa", "--pmu", mode, program(lab, "latency", flags=()))
    rows = [line.split(" ", 2) for line in text.splitlines()]
    return {name: (float(ns), float(cycles)) for ns, cycles, name in rows}


def latencies(lab, mode):
    """The same, the best of three in turns with the other mode."""
    if not hasattr(lab, "latencies"):
        runs = [{each: measure_latencies(lab, each) for each in MODES} for _ in range(3)]
        lab.latencies = {each: {name: min(run[each][name] for run in runs) for name in runs[0][each]} for each in MODES}
    return lab.latencies[mode]


def set_going(guest, under, work):
    """Starts a program and gives it a second, of the guest: perf finds its periods."""
    guest.background(f"{under} sh -c 'echo $$ >/tmp/begun; exec {work}'")
    guest.run("sleep 1")


class Pace:
    """A program in full swing: its user instructions in a second of QEMU's CPU time, PMIs and accesses to the PMU in that."""

    SECONDS, MOST = 1.5, 60  # of CPU time, and of any

    def __init__(self, guest, under, work):
        set_going(guest, under, work)
        before, begun, end = guest.stat(), guest.cpu_seconds(), time.monotonic() + self.MOST
        while guest.cpu_seconds() - begun < self.SECONDS and time.monotonic() < end:
            time.sleep(0.1)
        after, seconds = guest.stat(), guest.cpu_seconds() - begun
        guest.end()
        self.rate, self.pmis = ((after["stats"][name] - before["stats"][name]) / seconds for name in
                                ("instructions_user", "nmi_injections"))
        self.accesses = {name: sum(both) / seconds for (name, _), both in difference(before, after).items()}

    def virtualization(self, costs):
        """The share of CPU time that accesses and PMIs take, at what one costs by itself."""
        ns = self.pmis * costs[PMI][0]
        for name, often in self.accesses.items():
            known = next((COSTS[start] for start in COSTS if name.startswith(start)), None)
            ns += often * costs[known][0] if known else 0
        return ns / 1e9


def paces(work, *which, rounds=2):
    """The best of each, taken in turns: on a busy machine speed changes from minute to minute."""
    found = [[Pace(guest, under, work) for guest, under in which] for _ in range(rounds)]
    return [max(runs, key=lambda pace: pace.rate) for runs in zip(*found)]


class OwnTime:
    """A program in full swing, in the time of the modelled processor, which executes guests at its own speed and not at ours: cycles
    of the program, and all others, of the guest's kernel and of the hypervisor. The host's own view counts them, whatever the guest
    counts."""

    SECONDS, ROUNDS = 2, 3
    ALL, GUEST, PROGRAM = "cycles", "cycles:G", "cycles:uG"

    def __init__(self, guest, under, work):
        guest.vpmu("set", "host-view=on")
        before = guest.stat()["stats"]["nmi_injections"]
        set_going(guest, under, work)
        with guest.hold(f"{self.ALL},{self.GUEST},{self.PROGRAM}") as holder:
            time.sleep(self.SECONDS)
        guest.end()
        guest.vpmu("set", "host-view=off")
        lines = [json.loads(line) for line in holder.said.splitlines()]
        total = collections.Counter()
        for line in lines:
            total.update({event["name"]: event["value"] for event in line["events"]})
        if not total[self.PROGRAM]:
            raise Failure("the host's view counts nothing")
        self.program, self.kernel = total[self.PROGRAM], total[self.GUEST] - total[self.PROGRAM]
        self.hypervisor = total[self.ALL] - total[self.GUEST]
        self.seconds = lines[-1]["seconds"]  # since the first look, of every line
        # A PMI may be of several counters: samples are those of the file, as many for each PMI as in the whole recording.
        pmis, of_all = sum(line["stats"]["nmi_injections"] for line in lines), guest.stat()["stats"]["nmi_injections"] - before
        self.samples = pmis * recorded(guest, os.path.basename(work.split()[0]))[0] / max(of_all, 1) if under else 0

    def slower(self, off):
        """By which part of the program's cycles, for the kernel's sake and for the hypervisor's; what comes with time (ticks, turns of
        the run loop) with the PMU off, too, is taken off."""
        return [max(0, mine - its * self.seconds / off.seconds) / self.program
                for mine, its in ((self.kernel, off.kernel), (self.hypervisor, off.hypervisor))]


def periods(guest, names, work):
    """The events, each with a period of a millisecond in the time of the modelled processor."""
    hertz = 1e6 * float(re.search(r"([\d.]+)", guest.run("grep -m1 MHz /proc/cpuinfo"))[1])
    counts = {}
    for name in names.split(","):  # one by one, so that nothing takes turns
        text = guest.run(f"perf stat -x, -e cycles:u,{name}:u {work} 300")
        cycles, count = (int(line.split(",")[0]) for line in text.splitlines() if re.match(r"\d+,", line))
        counts[name] = count / cycles
    return ",".join(f"{name}/period={max(1000, int(per_cycle * hertz / 1000))}/" for name, per_cycle in counts.items()), hertz


def must_have_sampled(result, name, counters, found):
    """Sampling that takes no samples is cheap. found: samples in a second of each run, sorted."""
    due = 1000 * counters
    result.must(f"{name}: {due} samples in a second of the guest's time, within 15 %, in each run ({found[0]:.0f} to {found[-1]:.0f})",
                0.85 * due <= found[0] and found[-1] <= 1.15 * due)


def own_time(lab, result, published):
    """{mode and events: percent} that sampling takes of the modelled processor's time. Medians, since other things happen as well."""
    path = program(lab, "ftest")
    work, rows, figures = path + " 100000000", [], {}
    for events, names in (("6 events", SIX), ("10 events", TEN)):
        sampled, hertz = periods(lab.guests.get("genoa", "mediated"), names, path)
        runs = {mode: [] for mode in MODES}
        for _ in range(OwnTime.ROUNDS):
            off = OwnTime(lab.guests.get("genoa", "off"), "", work)
            for mode in MODES:
                run = OwnTime(lab.guests.get("genoa", mode), f"perf record -e {sampled} -o /tmp/lab.data", work)
                kernel, hypervisor = run.slower(off)
                runs[mode].append((100 * (kernel + hypervisor), 100 * kernel, 100 * hypervisor,
                                   run.samples * hertz / (run.program + run.kernel)))
        for mode in MODES:
            name, median = f"{mode}, {events}", sorted(runs[mode])[OwnTime.ROUNDS // 2]
            figures[name] = median[0]
            must_have_sampled(result, name, min(COUNTERS, names.count(",") + 1), sorted(run[3] for run in runs[mode]))
            rows.append([name, *(f"{part:.1f}" for part in median[1:3]), f"{median[0]:.1f}", published[mode][events], f"{median[3]:.0f}"])
            lab.progress(f"{name}: {median[0]:.1f} % of the modelled processor's time")
    result.table("in the modelled processor's time: slower than with the PMU off, %",
                 ["", "the guest's kernel", "the hypervisor", "both", "published", "samples a second"], rows)
    result.note("The modelled processor's time is its cycles (docs/model.md) and, at the rate of its TSC, the time that the hypervisor spends outside "
                "of the guest: the host's own view of cycles. There a handler takes as long as on silicon and an exit as long as it takes "
                "us; what our translation makes slower is not in it. Periods are a millisecond of the guest's part of that time.")
    return figures


@experiment("overhead", "mediated RFC 2024", "6 events at 1000 Hz: 33.6 % to 6.2 %; 10 events, multiplexed: 79.3 % to 10.5 %")
def overhead(lab):
    """What sampling costs, in both modes, against PMU off"""
    result, rows, sample, figures = Result(), [], [], {}
    work = program(lab, "ftest") + " 100000000"
    published = {"event": {"6 events": 33.6, "10 events": 79.3}, "mediated": {"6 events": 6.2, "10 events": 10.5}}
    for events, names in (("6 events", SIX), ("10 events", TEN), ("6 modelled", MODELLED)):
        for mode in MODES:
            guest, costs = lab.guests.get("genoa", mode), latencies(lab, mode)
            without, counted, sampled = paces(work, (lab.guests.get("genoa", "off"), ""), (guest, f"perf stat -e {names}"),
                                              (guest, f"perf record -F 1000 -e {names} -o /tmp/lab.data"))
            off = without.rate
            spent, virtual = 1 - sampled.rate / counted.rate, sampled.virtualization(costs)
            each = [1e6 * part / max(sampled.pmis, 1) for part in (spent, virtual)]
            cost = {"counting": 100 * (off / counted.rate - 1), "sampling": 100 * (off / sampled.rate - 1),
                    "us a sample": each[0], "us of virtualization": each[1],
                    "accesses a sample": sum(sampled.accesses.values()) / max(sampled.pmis, 1)}
            figures[f"{mode}, {events}"] = cost
            rows.append([f"{mode}, {events}", f"{cost['counting']:.0f}", f"{cost['sampling']:.0f}", published[mode].get(events, "")])
            sample.append([f"{mode}, {events}", f"{cost['accesses a sample']:.1f}", f"{each[0]:.1f}", f"{each[1]:.1f}",
                           f"{each[1] * COUNTERS / 10:.1f}"])
            lab.progress(f"{mode}, {events}: counting {cost['counting']:.0f} %, sampling {cost['sampling']:.0f} %, "
                         f"{each[1]:.1f} us of virtualization a sample")
    result.table("by the clock: slower than with the PMU off, % of CPU time", ["", "counting them", "sampling them at 1000 Hz", "published"], rows)
    result.table("a sample", ["", "accesses to the PMU", "us beside counting", "us of virtualization", "% at 1000 Hz"], sample)
    result.note("The clock is shown and is no criterion: translated handler code costs the same in both modes.")
    result.note("Modelled events are mispredictions and misses of caches: they switch the timing model on, which silicon has for nothing.")
    result.note("Most of a sample is the guest's own handler, some 3000 instructions that are translated as all others. "
                "Virtualization: what PMIs and accesses to the PMU cost where a guest does nothing else (pmi-latency), times how many there were.")
    own = own_time(lab, result, published)
    for name, cost in own.items():
        figures[name]["of the modelled processor's time"] = cost
    result.plot("virtualization", " us a sample", [[name, cost["us of virtualization"]] for name, cost in figures.items()])
    result.plot("slower than with the PMU off", " %", [[name, cost["sampling"]] for name, cost in figures.items()])
    result.figures = figures
    for events in ("6 events", "10 events"):
        event, mediated = (figures[f"{mode}, {events}"] for mode in MODES)
        result.must(f"{events}: virtualization is at least 3 times cheaper mediated",
                    event["us of virtualization"] >= 3 * mediated["us of virtualization"] > 0)
        result.must(f"{events}: in the modelled processor's time sampling is at least 3 times cheaper mediated",
                    own[f"event, {events}"] >= 3 * own[f"mediated, {events}"] > 0)
        result.must(f"{events}: in the modelled processor's time sampling costs mediated at most the published {published['mediated'][events]} %",
                    own[f"mediated, {events}"] <= published["mediated"][events])
    return result


@experiment("pmi-latency", "Intel 2018/2019", "2,500,000 ns to 300-400 ns for a PMI or a change of control")
def pmi_latency(lab):
    """Time of a write, a read and a PMI, in both modes"""
    result = Result()
    event, mediated = (latencies(lab, mode) for mode in MODES)
    result.table("CPU time of the vCPU's thread", ["", "event: ns", "cycles", "mediated: ns", "cycles", "times cheaper"],
                 [[name, *(f"{n:.0f}" for n in event[name] + mediated[name]), f"{event[name][0] / mediated[name][0]:.1f}"] for name in event])
    result.note("A bare guest with four counters on an AMD model with PerfMonV2; cycles are the guest's TSC's in that time.")
    result.plot("ns", "", [[f"{mode}: {name}", ns] for mode, costs in (("event", event), ("mediated", mediated))
                           for name, (ns, _) in costs.items()])
    result.figures = {"event": event, "mediated": mediated}
    result.must("every access is at least 3 times cheaper mediated",
                all(0 < 3 * mediated[name][0] <= event[name][0] for name in event if name != PMI))
    result.must("a PMI, which takes the same way in both, is no dearer mediated (by more than a fifth)",
                0 < mediated[PMI][0] <= 1.2 * event[PMI][0])
    result.must("a change of control and a PMI take less than the published 2,500,000 ns",
                all(costs[name][0] < 2_500_000 for costs in (event, mediated) for name in costs))
    return result


# Programs of topdown.c: the category of level 1 that leads, and the one of level 2 that is most of it.
BOUND = {"front": ("front end", "latency"), "branches": ("bad speculation", "mispredictions"),
         "memory": ("back end", "memory"), "core": ("back end", "core")}
LEVEL2 = {"retiring": ("light", "heavy"), "bad speculation": ("mispredictions", "clears"),
          "front end": ("latency", "bandwidth"), "back end": ("memory", "core")}


def count_slots(guest, events, command):
    """What each event of a group counted in user mode."""
    text = guest.run(f"perf stat -x, -e '{{{events}}}:u' {command}")
    numbers = [int(line.split(",")[0]) for line in text.splitlines() if re.match(r"\d+,", line)]
    if len(numbers) != events.count(",") + 1:
        raise Failure(f"perf did not count {events}: {text[:200]}")
    return numbers


def slots_of_intel(guest, command):
    """PERF_METRICS: all slots, the four categories, and the first part of each by LEVEL2."""
    slots, *level1 = count_slots(guest, "slots,topdown-retiring,topdown-bad-spec,topdown-fe-bound,topdown-be-bound", command)
    other, heavy, *rest = count_slots(guest, "slots,topdown-heavy-ops,topdown-br-mispredict,topdown-fetch-lat,topdown-mem-bound", command)
    scale = slots / other
    return slots, level1, [level1[0] - heavy * scale, *(n * scale for n in rest)]


def slots_of_amd(guest, command):
    """The events of perf's PipelineL1 and PipelineL2."""
    cycles, retired, dispatched, front, back = count_slots(guest, "r76,rc1,r7aa,r1000001a0,r100001ea0", command)
    latency, microcode, mispredicted, resyncs = count_slots(guest, "r1060001a0,r1000000c2,rc3,r96", command)
    unfinished, loads = count_slots(guest, "r2d6,ra2d6", command)
    bad, clears = dispatched - retired, mispredicted + resyncs
    # What was not counted at all is no part: a program that is made for it must not have the whole by default.
    return 6 * cycles, [retired, bad, front, back], [retired - microcode, bad * mispredicted / clears if clears else 0, 6 * latency,
                                                     back * loads / unfinished if unfinished else 0]


@experiment("topdown", "Intel 2026", "host/guest: frontend 32.0/34.0, bad speculation 5.2/4.6, retiring 13.8/11.7, backend 49.0/49.7 %")
def topdown(lab):
    """Top-down levels 1 and 2 of four programs, with full timing"""
    result = Result()
    result.figures = {}
    path = program(lab, "topdown")
    for model, count in (("sapphirerapids", slots_of_intel), ("genoa", slots_of_amd)):
        guest = lab.guests.get(model, "mediated", options=["--timing", "full"])
        rows = []
        for name, (leader, part) in BOUND.items():
            slots, level1, level2 = count(guest, f"{path} {name}")
            share = dict(zip(LEVEL2, (100 * n / slots for n in level1)))
            first = dict(zip(LEVEL2, (100 * n / slots for n in level2)))
            larger = LEVEL2[leader][first[leader] < share[leader] / 2]
            rows.append([name, *(f"{share[c]:.1f} ({first[c]:.1f})" for c in LEVEL2)])
            result.figures.update({f"{model} {name} {category}": s for category, s in share.items()})
            result.must(f"{model}: slots of {name} sum to 100 %", abs(sum(share.values()) - 100) < 2)
            result.must(f"{model}: {name} is bound by {leader}, most of it {part}", max(share, key=share.get) == leader and larger == part)
        result.table(f"{model}, % of slots (of them {', '.join(parts[0] for parts in LEVEL2.values())})", ["", *LEVEL2], rows)
    return result

