# SPDX-License-Identifier: MIT
"""Counts over commits as one HTML file that needs no network: a table of changes, and a plot for each benchmark and event, with a
line for each model."""

import html
import itertools

import history_store

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 160, 8, 8, 22, 40  # of a plot, in pixels: counts are above and below the lines
COLOURS = 5  # of lines, in STYLE
SHOWN = 3  # changes under a plot

STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#222;--dim:#666;--line:#ccc;--c0:#1565c0;--c1:#c75300;--c2:#2e7d32;--c3:#8e24aa;--c4:#00838f;--up:#b3261e;
--down:#176b2c}
@media(prefers-color-scheme:dark){:root{color-scheme:light dark;--back:#161616;--text:#ddd;--dim:#999;--line:#444;--c0:#64b5f6;--c1:#ffb074;--c2:#81c784;
--c3:#ce93d8;--c4:#4dd0e1;--up:#ff8a80;--down:#6fce84}}
body{font:14px/1.5 system-ui,sans-serif;margin:1em;color:var(--text);background:var(--back)}
h1{font-size:1.4em}h2{font-size:1.15em;margin:1.5em 0 .5em}h3{font-size:1em;margin:0;overflow-wrap:anywhere}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{border-bottom:1px solid var(--line);padding:.15em .7em;text-align:left;
vertical-align:top}td.n,th.n{text-align:right;white-space:nowrap}td.s{overflow-wrap:anywhere}code{font:13px ui-monospace,monospace}
.wide{overflow-x:auto}.up{color:var(--up)}.down{color:var(--down)}.dim{color:var(--dim)}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(440px,1fr));gap:1em}
article{border:1px solid var(--line);border-radius:6px;padding:.6em .8em;min-width:0}article p{margin:.2em 0;font-size:13px}
svg{display:block;width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--dim)}
polyline{fill:none;stroke-width:1.8;vector-effect:non-scaling-stroke}.axis{stroke:var(--line)}
.key{display:inline-block;width:.8em;height:.8em;margin:0 .35em 0 .9em;vertical-align:-1px;border-radius:2px}.key:first-child{margin-left:0}
input[type=search]{font:inherit;padding:.2em .5em;width:20em}
"""

SCRIPT = """
const plots=[...document.querySelectorAll('article')],search=document.getElementById('search'),only=document.getElementById('only');
function show(){
  const wanted=search.value.toLowerCase();
  plots.forEach(p=>p.hidden=only.checked&&!('changed' in p.dataset)||!p.dataset.name.toLowerCase().includes(wanted));
}
search.addEventListener('input',show);only.addEventListener('change',show);
"""


def short(commit):
    name = commit.name[:12] if len(commit.name) == 40 else commit.name
    return name + ("+" if commit.dirty else "")


def percent(before, after):
    return f"{100 * (after - before) / before:+.4f} %" if before else ""


def direction(before, after):
    return "up" if after > before else "down"


def change_cells(change):
    before, after = change.before.count, change.after.count
    return (f'<td class=n>{before:,}<td class=n>{after:,}<td class="n {direction(before, after)}">{after - before:+,}'
            f'<td class="n {direction(before, after)}">{percent(before, after)}')


def change_table(changes):
    if not changes:
        return "<p>No count has changed.</p>"
    rows = "".join(f"<tr><td><code>{html.escape(short(c.after.commit))}</code><td class=s>{html.escape(c.after.commit.subject)}"
                   f"<td class=s>{html.escape(c.series.benchmark)}@{html.escape(c.series.model)}<td class=s>{html.escape(c.series.event)}"
                   f"{change_cells(c)}" for c in reversed(changes))
    return ("<div class=wide><table id=changes><tr><th>commit<th><th>benchmark<th>event<th class=n>from<th class=n>to<th class=n>change<th>" + rows +
            "</table></div>")


def scale(counts):
    """From a count to a height. One that never changes is in the middle."""
    least, most = min(counts), max(counts)
    room = HEIGHT - TOP - BOTTOM
    return lambda count: TOP + (room * (most - count) / (most - least) if most > least else room / 2)


def line(points, at, y, colour):
    """A step at each commit, and a circle where the count changed."""
    path, marks = [], []
    for before, point in zip([None, *points], points):
        x = at[point.commit[:2]]
        if before and before.count != point.count:
            path.append(f"{x:.1f},{y(before.count):.1f}")
            text = f"{short(point.commit)} {point.commit.subject}\n{before.count:,} -> {point.count:,}"
            marks.append(f'<circle cx="{x:.1f}" cy="{y(point.count):.1f}" r="4" fill="var(--c{colour})"><title>{html.escape(text)}'
                         "</title></circle>")
        path.append(f"{x:.1f},{y(point.count):.1f}")
    if len(points) == 1:
        marks.append(f'<circle cx="{x:.1f}" cy="{y(points[0].count):.1f}" r="4" fill="var(--c{colour})"/>')
    return f'<polyline points="{" ".join(path)}" stroke="var(--c{colour})"/>' + "".join(marks)


def plot(commits, lines):
    """Lines of models, over all commits of the suite."""
    room = WIDTH - LEFT - RIGHT
    at = {commit[:2]: LEFT + (room * i / (len(commits) - 1) if len(commits) > 1 else room / 2) for i, commit in enumerate(commits)}
    counts = [point.count for _, points in lines for point in points]
    y, least, most = scale(counts), min(counts), max(counts)
    texts = [(LEFT, TOP - 8, "start", f"{most:,}")]
    if least < most:
        texts.append((LEFT, HEIGHT - BOTTOM + 15, "start", f"{least:,}"))
    texts.append((LEFT, HEIGHT - 5, "start", short(commits[0])))
    if len(commits) > 1:
        texts.append((WIDTH - RIGHT, HEIGHT - 5, "end", short(commits[-1])))
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><line class=axis x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - 20}" y2="{HEIGHT - 20}"/>' +
            "".join(line(points, at, y, i % COLOURS) for i, (_, points) in enumerate(lines)) +
            "".join(f'<text x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(text[:40])}</text>' for x, y, anchor, text in texts) +
            "</svg>")


def article(name, commits, lines, changes):
    legend = "".join(f'<span class=key style="background:var(--c{i % COLOURS})"></span>{html.escape(model)}'
                     for i, (model, _) in enumerate(lines))
    listed = "".join(f"<p><code>{html.escape(short(c.after.commit))}</code> {c.before.count:,} → {c.after.count:,} "
                     f'<span class="{direction(c.before.count, c.after.count)}">{percent(c.before.count, c.after.count)}</span> '
                     f"{html.escape(c.series.model)}</p>" for c in changes[:-SHOWN - 1:-1])
    if len(changes) > SHOWN:
        listed += f"<p class=dim>and {len(changes) - SHOWN} before</p>"
    return (f'<article data-name="{html.escape(name)}"{" data-changed" if changes else ""}><h3>{html.escape(name)}</h3>'
            f"<p>{legend}</p>{plot(commits, lines)}{listed}</article>")


def suite_articles(suite, history, changes):
    """Those that have changed first."""
    of_suite = {series: points for series, points in history.items() if series.suite == suite}
    commits = history_store.commits(of_suite)
    articles = []
    for (benchmark, event), group in itertools.groupby(sorted(of_suite, key=lambda s: (s.benchmark, s.event, s.model)),
                                                       key=lambda s: (s.benchmark, s.event)):
        group = list(group)
        mine = [change for change in changes if change.series in group]
        articles.append((not mine, article(f"{benchmark} {event}", commits, [(s.model, of_suite[s]) for s in group], mine)))
    return "".join(text for _, text in sorted(articles, key=lambda pair: pair[0]))


def page(title, history, changes):
    suites = sorted({series.suite for series in history})
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
             f"<title>{html.escape(title)}</title><style>{STYLE}</style><h1>{html.escape(title)}</h1>",
             f"<p>{html.escape(history_store.summary(history, changes))}</p><h2>Changes</h2>{change_table(changes)}",
             "<h2>Counts</h2><p><input id=search type=search placeholder='benchmark or event' aria-label=search> "
             "<label><input id=only type=checkbox> only what has changed</label></p>"]
    for suite in suites:
        heading = f"<h2>{html.escape(suite)}</h2>" if len(suites) > 1 else ""
        parts.append(f"{heading}<div class=plots>{suite_articles(suite, history, changes)}</div>")
    return "".join(parts) + f"<script>{SCRIPT}</script></html>\n"
