# SPDX-License-Identifier: MIT
"""What the benchmark found, as a table and as a picture."""

import html
import math

GROUPS = ["integer", "vector", "system", "boot"]


def mean(values):
    """Geometric."""
    values = [v for v in values if v]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


class Results:
    """best[workload][column] is the shortest time, in seconds; wrong[workload] says why a row cannot be believed."""

    def __init__(self, columns):
        self.columns, self.groups, self.best, self.checksums, self.wrong = columns, {}, {}, {}, {}

    def add(self, workload, group, column, sample):
        self.groups[workload] = group
        best = self.best.setdefault(workload, {})
        best[column] = min(best.get(column, math.inf), sample.seconds)
        expected = self.checksums.setdefault(workload, sample.checksum)
        if sample.checksum != expected:
            self.fail(workload, f"{column}: checksum {sample.checksum}, not {expected}")

    def fail(self, workload, why):
        self.best.setdefault(workload, {})
        self.wrong.setdefault(workload, why)

    def ratio(self, workload, above, below):
        best = self.best[workload]
        if workload in self.wrong or above not in best or below not in best:
            return None
        return best[above] / best[below]

    def members(self, group):
        return [w for w in self.best if group in ("all", self.groups.get(w)) and self.groups.get(w) != "two"]

    def group_ratio(self, group, above, below):
        return mean([self.ratio(w, above, below) for w in self.members(group)])

    def scaling(self, column):
        """Throughput of a parallel compile on two CPUs, against the same on one of them."""
        one, two = self.best.get("compile1", {}).get(column), self.best.get("compile2", {}).get(column)
        return one / two if one and two else None


def ratios(columns):
    """(heading, above, below) of the ratios that can be made of these columns."""
    wanted = [("off/native", "off", "native"), ("tcg/native", "tcg", "native"), ("tcg/off", "tcg", "off"), ("tcg/kept", "tcg", "kept"),
              ("idle/off", "idle", "off"), ("count/off", "count", "off"), ("cycles/off", "cycles", "off"),
              ("sample/off", "sample", "off")]
    return [row for row in wanted if row[1] in columns and row[2] in columns]


def duration(seconds):
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


def number(value):
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def table(results):
    """Lines of text: time of a unit of work in each column, then ratios, then means."""
    shown = ratios(results.columns)
    times = [c for c in ("native", "off", "kept", "tcg") if c in results.columns]
    lines = [f"{'workload':<14}" + "".join(f"{c:>11}" for c in times) + "".join(f"{h:>12}" for h, _, _ in shown)]
    for workload, best in results.best.items():
        if workload in results.wrong:
            lines.append(f"{workload:<14} FAIL: {results.wrong[workload]}")
            continue
        lines.append(f"{workload:<14}" + "".join(f"{duration(best.get(c)):>11}" for c in times)
                     + "".join(f"{number(results.ratio(workload, a, b)):>12}" for _, a, b in shown))
    lines.append("")
    for group in GROUPS + ["all"]:
        if results.members(group):
            lines.append(f"{'mean, ' + group:<14}" + " " * 11 * len(times)
                         + "".join(f"{number(results.group_ratio(group, a, b)):>12}" for _, a, b in shown))
    lines += [f"two CPUs compile {number(results.scaling(c))} times as fast as one: {c}"
              for c in results.columns if results.scaling(c)]
    return lines


# --- the picture: a bar of times slower than native for each workload, on a logarithmic scale ---

BAR, LEFT, WIDTH = 12, 110, 820
COLOURS = {"off": "#2a6fbb", "tcg": "#c8553d"}


def picture(results):
    rows = [w for w in results.best if results.ratio(w, "off", "native") and results.ratio(w, "tcg", "native")]
    if not rows:
        return ""
    top = max(results.ratio(w, c, "native") for w in rows for c in COLOURS)
    scale = (WIDTH - LEFT - 60) / math.log(max(top, 2))

    def x(value):
        return LEFT + scale * math.log(max(value, 1))

    height = 40 + len(rows) * (2 * BAR + 8)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
             f'<text x="{LEFT}" y="14">times slower than native: <tspan fill="{COLOURS["off"]}">vpmu</tspan>, '
             f'<tspan fill="{COLOURS["tcg"]}">TCG</tspan> (logarithmic)</text>']
    for mark in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        if mark <= top:
            parts.append(f'<line x1="{x(mark):.0f}" x2="{x(mark):.0f}" y1="30" y2="{height}" stroke="#ddd"/>'
                         f'<text x="{x(mark):.0f}" y="28" text-anchor="middle" fill="#888">{mark}</text>')
    for i, workload in enumerate(rows):
        y = 36 + i * (2 * BAR + 8)
        parts.append(f'<text x="{LEFT - 8}" y="{y + BAR + 4}" text-anchor="end">{html.escape(workload)}</text>')
        for j, (column, colour) in enumerate(COLOURS.items()):
            value = results.ratio(workload, column, "native")
            parts.append(f'<rect x="{LEFT}" y="{y + j * BAR}" width="{max(x(value) - LEFT, 1):.1f}" height="{BAR - 1}" '
                         f'fill="{colour}"/><text x="{x(value) + 4:.0f}" y="{y + j * BAR + 10}">{number(value)}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"
