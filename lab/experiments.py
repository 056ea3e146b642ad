# SPDX-License-Identifier: MIT
"""The experiments: each a function that runs guests and returns a Result. docs/lab.md says where they come from."""

import glob
import json
import os
import re
import shlex
import socket
import threading

from guest import VPMU, on_host, perf_counts, program


class Result:
    """Published and measured figures side by side, and whether ours meet what they must."""

    def __init__(self):
        self.tables, self.criteria, self.notes, self.figures, self.plots = [], [], [], {}, []

    def table(self, title, head, rows):
        self.tables.append({"title": title, "head": [str(cell) for cell in head], "rows": [[str(cell) for cell in row] for row in rows]})

    def plot(self, title, unit, bars):
        self.plots.append({"title": title, "unit": unit, "bars": [[name, float(value)] for name, value in bars]})

    def must(self, text, holds):
        self.criteria.append({"text": text, "holds": bool(holds)})

    def note(self, text):
        self.notes.append(text)

    @property
    def holds(self):
        return bool(self.criteria) and all(c["holds"] for c in self.criteria)


EXPERIMENTS = {}


def experiment(name, source, published, quick=False):
    def register(function):
        EXPERIMENTS[name] = {"run": function, "source": source, "published": published, "quick": quick,
                             "title": function.__doc__.strip().split("\n")[0]}
        return function
    return register


# --- contention ---

CONTENTION = "setarch -R perf stat -e cycles:u,instructions:u,branches:u,cache-misses:u sleep 1"
EVENTS = ["cycles", "instructions", "branches", "cache-misses"]
PUBLISHED_CONTENTION = {
    "alone": [377066, 311251, 69108, 6206], "event": [375834, 311372, 0, 0], "mediated": [375852, 311497, 69157, 6233],
}


def count_sleep(guest):
    counts = perf_counts(guest.run(CONTENTION))
    return [counts.get(f"{event}:u") for event in EVENTS]


@experiment("contention", "AMD 2026", "event mode loses branches and cache-misses, mediated loses nothing", quick=True)
def contention(lab):
    """A guest counts while the host holds pinned events"""
    result, measured = Result(), {}
    guest = lab.guests.get("genoa", "event")
    count_sleep(guest)  # once, so that files are cached
    measured["alone"], before = count_sleep(guest), guest.stat()["starvations"]
    with guest.hold(",".join(["instructions:D"] * 4)):
        measured["event"] = count_sleep(guest)
    starved = guest.stat()["starvations"] - before
    lab.progress("event mode: done")
    guest = lab.guests.get("genoa", "mediated")
    alone = count_sleep(guest)
    with guest.hold(",".join(["instructions:HD"] * 4 + ["cycles:HD"] * 2)) as holder:
        measured["mediated"] = count_sleep(guest)
    rest = holder.said
    host = [json.loads(line) for line in rest.splitlines() if line.startswith("{")]
    running = [event for look in host for event in look["events"]]
    lost = [e for e in running if e["state"] == "error" or e["running"] != e["enabled"]]
    result.table("user-space counts of `sleep 1`", ["", *EVENTS, "published"],
                 [[name, *measured[name], " / ".join(f"{n:,}" for n in PUBLISHED_CONTENTION[name])] for name in measured])
    result.figures = {"measured": measured, "starvations": starved, "mediated alone": alone}
    result.must("event mode: branches and cache-misses read 0, cycles and instructions do not",
                all(measured["event"][:2]) and not any(measured["event"][2:]))
    result.must(f"event mode says that counters starved ({starved} times)", starved >= 2)
    for i in (1, 2):
        result.must(f"mediated, contended: {EVENTS[i]} within 0.1 % of uncontended",
                    alone[i] and measured["mediated"][i] and abs(measured["mediated"][i] - alone[i]) <= alone[i] / 1000)
    result.must("the host's exclude_guest events had their counters all of the host's time", running and not lost)
    result.plot("branches:u counted", "", [[name, measured[name][2] or 0] for name in measured])
    return result


# --- exits ---

# The events of perf's metric group PipelineL1 on Zen 4 (PPR 55901): perf 6.1 does not know the group.
PIPELINE = ("cpu/event=0x1a0,umask=0x1e/,cpu/event=0x1a0,umask=0x01/,cpu/event=0x1a0,umask=0x60/,"
            "cpu/event=0xaa,umask=0x07/,cpu/event=0xc1/,cpu/event=0x76/")


# What AMD's own count of exits looked at: the counters, their selects and the four global registers.
def is_counted(msr):
    if msr == "-":
        return False
    index = int(msr, 16)
    return (0xc0010000 <= index <= 0xc0010007 or 0xc0010200 <= index <= 0xc001020b or 0xc0000300 <= index <= 0xc0000303)


def split(grown):
    """(MSR exits, RDPMC exits, accesses that passed) of what Guest.exits() found."""
    msr = sum(exits for (_, index), (exits, _) in grown.items() if is_counted(index))
    rdpmc = sum(exits for (name, _), (exits, _) in grown.items() if name == "RDPMC")
    passed = sum(p for (name, index), (_, p) in grown.items() if is_counted(index) or name == "RDPMC")
    return msr, rdpmc, passed


def compare_exits(lab, command, published, most):
    result, grown, sums = Result(), {}, {}
    for mode in ("event", "mediated"):
        _, grown[mode] = lab.guests.get("genoa", mode).exits(command)
        sums[mode] = split(grown[mode])
        lab.progress(f"{mode} mode: {sums[mode][0]} MSR exits, {sums[mode][1]} RDPMC exits")
    names = sorted(set(grown["event"]) | set(grown["mediated"]), key=lambda k: (k[1] == "-", k[1]))
    result.table("accesses by register", ["register", "MSR", "event: exits", "mediated: exits", "mediated: passed"],
                 [[name, msr, grown["event"].get((name, msr), (0, 0))[0], *grown["mediated"].get((name, msr), (0, 0))]
                  for name, msr in names])
    result.table("exits", ["", "MSR", "RDPMC", "sum", "published"],
                 [[mode, sums[mode][0], sums[mode][1], sum(sums[mode][:2]), published[mode]] for mode in sums])
    result.plot("PMU exits", "", [[f"{mode}, {kind}", n] for mode in sums
                                  for kind, n in (("ours", sum(sums[mode][:2])), ("published", published[mode]))])
    result.figures = {mode: {"msr": sums[mode][0], "rdpmc": sums[mode][1], "passed": sums[mode][2]} for mode in sums}
    result.must(f"mediated: at most {most} exits", sum(sums["mediated"][:2]) <= most)
    result.must("mediated: no RDPMC exit", sums["mediated"][1] == 0)
    result.must("event mode: every access exits", sums["event"][2] == 0 and sums["event"][0] > 0)
    result.must("mediated: the guest did access its PMU", sums["mediated"][2] > 0)
    return result


@experiment("exits-topdown", "AMD 2026", "63 MSR + 11 RDPMC = 74 exits in event mode, 22 mediated", quick=True)
def exits_topdown(lab):
    """PMU exits of a top-down analysis of `true`"""
    return compare_exits(lab, f"perf stat -e {PIPELINE} true", {"event": 74, "mediated": 22}, 22)


@experiment("exits-dashboard", "AMD 2026", "49 exits in event mode, 6 mediated", quick=True)
def exits_dashboard(lab):
    """PMU exits of ten system-wide intervals"""
    milliseconds = 300 if lab.quick else 1000
    command = f"perf stat -e cycles,instructions --interval-print {milliseconds} -a sleep {milliseconds / 100:g}"
    return compare_exits(lab, command, {"event": 49, "mediated": 6}, 6)


# --- PerfMonV2 ---

TURNS = 1000
SWITCHES = 0.1  # writes of each register in a turn, at most, that are of context switches, which come by themselves


def toggling(guest, toggle, k):
    """Writes of (selects, the global control) for a stop and a start of k counters."""
    counts = {}
    for turns in (0, TURNS):
        grown = guest.writes(f"{toggle} {k} {turns}")
        counts[turns] = [sum(n for name, n in grown.items() if name.startswith(start))
                         for start in (("PERF_CTL", "PerfEvtSel"), "PerfCntrGlobalCtl")]
    return [(counts[TURNS][i] - counts[0][i]) / TURNS for i in (0, 1)]


@experiment("perfmon-v2", "Tencent 2023", "enabling k counters: k selector writes become one write of the global control",
            quick=True)
def perfmon_v2(lab):
    """Register writes to stop and start k counters, without and with PerfMonV2"""
    result, figures = Result(), {}
    for model in ("milan", "genoa"):
        guest, toggle = lab.guests.get(model, "event"), program(lab, "toggle")
        guest.run(f"{toggle} 1 1")
        figures[model] = {k: toggling(guest, toggle, k) for k in ((1, 6) if lab.quick else range(1, 7))}
        lab.progress(f"{model}: done")
    result.table("writes for a stop and a start of k counters",
                 ["k", "without: selects", "without: control", "with: selects", "with: control"],
                 [[k, *(f"{n:.1f}" for n in figures["milan"][k] + figures["genoa"][k])] for k in figures["milan"]])
    result.figures = figures
    result.plot("selector writes for six counters", "", [["without PerfMonV2", figures["milan"][6][0]],
                                                          ["with PerfMonV2", figures["genoa"][6][0]]])
    result.must("without PerfMonV2 every counter more takes two selector writes more",
                all(abs(selects - (figures["milan"][1][0] + 2 * (k - 1))) < SWITCHES * k for k, (selects, _) in figures["milan"].items()))
    genoa = figures["genoa"].values()
    result.must("with PerfMonV2 selector writes do not grow",
                all(0 < selects < figures["genoa"][1][0] + 6 * SWITCHES for selects, _ in genoa))
    result.must("with PerfMonV2 one write of the global control stops all counters and one starts them",
                all(1 <= control <= 2 + SWITCHES for _, control in genoa))
    return result


# --- accounting ---

# What exits in this guest: the driver of the 8139, and the interrupt controller with its timer. Of MSRs that is all that
# native_write_msr writes here, since the PMU's pass.
DEVICE = re.compile(r"^(cp_|rtl8139|io(read|write)|.*apic|lapic|ack_|native_write_msr)")
# What handles packets and never exits.
COMPUTING = re.compile(r"^(csum_|skb_|__skb_|.*gro_receive|tcp_|memcpy|copy_user|rep_movs|_copy_to_iter|__check_object_size|dma_)")
# Longer than what any exit is charged but a few: an overflow is one sample, however many periods a charge is. With 50,000 a
# third of what was charged to the driver was in no sample.
PERIOD = 200_000


def full_kernel():
    """A folder with a kernel that has drivers, and its modules: of the build tree, or the one that vpmu exec keeps, which it
    fetches if need be."""
    for folder in sorted(glob.glob(os.path.join(os.path.dirname(os.path.realpath(VPMU)), "kernels/*-full"))):
        if os.path.exists(folder + "/.complete"):
            return os.path.realpath(folder)
    said = shlex.split(on_host(VPMU, "exec", "--kernel", "full", "--dry-run", "--", "true", stderr=None))
    return os.path.dirname(said[said.index("-kernel") + 1])


class Sender:
    """Sends a number of bytes to each client that connects."""

    def __init__(self, size):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, args=(size,), daemon=True).start()

    def serve(self, size):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            with peer:
                peer.sendall(bytes(size))


NETWORK = """for m in mii ethernet/realtek/8139cp; do
f=$(ls {folder}/lib/modules/*/kernel/drivers/net/$m.ko*); case $f in *.xz) xz -dc $f >/tmp/m.ko; f=/tmp/m.ko;; esac; insmod $f; done
ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0"""


def profile(guest, port, period):
    """{function: samples} of the guest's kernel while it receives."""
    guest.run(f"perf record -q -a -e instructions:k -c {period} -o /tmp/lab.data -- "
              f"bash -c 'cat </dev/tcp/10.0.2.2/{port} >/dev/null'")
    text = guest.run("perf report -i /tmp/lab.data --stdio -n --sort symbol 2>/dev/null")
    rows = re.findall(r"^\s*[\d.]+%\s+(\d+)\s+\[k\] (\S+)", text, re.M)
    return {name: int(samples) for samples, name in rows}


@experiment("accounting", "EPFL 2010", "driver and APIC 2.9 % under CPU switch, 74.5 % under domain switch; 6.15 times the overflows",
            quick=True)
def accounting(lab):
    """Packets into a guest with an emulated rtl8139: what the device's cost is charged to"""
    result, samples, share = Result(), {}, {}
    folder, sender = full_kernel(), Sender(20_000_000 if lab.quick else 60_000_000)
    options = ["--machine", "q35", "--kernel", folder, "--qemu", "-netdev user,id=lab -device rtl8139,netdev=lab"]
    guest = lab.guests.get("genoa", options=options)
    guest.run(NETWORK.format(folder=folder))
    profile(guest, sender.port, 10 * PERIOD)  # once, so that files are cached
    for mode in ("guest", "vcpu"):
        guest.vpmu("set", f"accounting={mode}")
        samples[mode] = profile(guest, sender.port, PERIOD)
        total = sum(samples[mode].values())
        share[mode] = 100 * sum(n for name, n in samples[mode].items() if DEVICE.search(name)) / max(total, 1)
        lab.progress(f"{mode}: {total} overflows, driver and APIC {share[mode]:.1f} %")
    guest.vpmu("set", "accounting=guest")
    totals = {mode: sum(samples[mode].values()) for mode in samples}
    computing = {mode: sum(n for name, n in samples[mode].items() if COMPUTING.search(name)) for mode in samples}
    first = sorted(set(samples["guest"]) | set(samples["vcpu"]), key=lambda n: -samples["vcpu"].get(n, 0))[:12]
    result.table("overflows by function", ["function", "guest", "vcpu"],
                 [[name, samples["guest"].get(name, 0), samples["vcpu"].get(name, 0)] for name in first])
    result.table("summary", ["", "overflows", "driver and APIC", "computing", "published"],
                 [["guest (CPU switch)", totals["guest"], f"{share['guest']:.1f} %", computing["guest"], "1184, 2.9 %"],
                  ["vcpu (domain switch)", totals["vcpu"], f"{share['vcpu']:.1f} %", computing["vcpu"], "7286, 74.5 %"]])
    result.figures = {"share": share, "overflows": totals, "computing": computing}
    result.plot("driver and APIC", " %", [["guest, ours", share["guest"]], ["guest, published", 2.9],
                                            ["vcpu, ours", share["vcpu"]], ["vcpu, published", 74.5]])
    result.must("guest: driver and APIC below 10 %", totals["guest"] > 50 and share["guest"] < 10)
    result.must("vcpu: driver and APIC above 50 %", share["vcpu"] > 50)
    result.must("computing functions are charged about the same", computing["guest"] > 50 and
                0.5 < computing["vcpu"] / computing["guest"] < 2)
    result.note("What the host did is estimated from CPU time (docs/ownership.md): these shares depend on the machine.")
    return result
