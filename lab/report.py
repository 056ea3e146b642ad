# SPDX-License-Identifier: MIT
"""Results as text for a terminal and as one HTML file."""

import html as escape
import json


def text_table(table):
    rows = [table["head"], *table["rows"]]
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(table["head"]))]
    lines = ["  " + table["title"]]
    for row in rows:
        cells = [cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        lines.append("    " + "  ".join(cells).rstrip())
    return lines


def text(outcome):
    lines = [f"{outcome['name']}: {outcome['title']} ({outcome['source']}; {outcome['seconds']} s)",
             f"  published: {outcome['published']}"]
    for table in outcome["tables"]:
        lines += text_table(table)
    lines += ["  " + note for note in outcome["notes"]]
    lines += [f"  {'holds ' if c['holds'] else 'SHORT '} {c['text']}" for c in outcome["criteria"]]
    return "\n".join(lines) + "\n"


STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:70em;padding:1em;color:#222;background:#fff}
h2{margin-top:2em;border-top:1px solid #ccc;padding-top:.5em;cursor:pointer}
table{border-collapse:collapse;margin:.5em 0;font-variant-numeric:tabular-nums}
th,td{border:1px solid #ddd;padding:.15em .6em;text-align:right}th:first-child,td:first-child{text-align:left}
.holds{color:#176b2c}.short{color:#b3261e;font-weight:bold}.closed>:not(h2){display:none}
input{font:inherit;padding:.2em .5em;width:20em}svg text{font:12px system-ui,sans-serif}
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}th,td{border-color:#444}.holds{color:#6fce84}.short{color:#ff8a80}svg text{fill:#ddd}}
"""

SCRIPT = """
const sections=[...document.querySelectorAll('section')];
sections.forEach(s=>s.querySelector('h2').addEventListener('click',()=>s.classList.toggle('closed')));
document.getElementById('search').addEventListener('input',e=>{
  const wanted=e.target.value.toLowerCase();
  sections.forEach(s=>s.hidden=!s.textContent.toLowerCase().includes(wanted));
});
"""


def svg(plot):
    bars = plot["bars"]
    most = max((value for _, value in bars), default=0) or 1
    rows = []
    for i, (name, value) in enumerate(bars):
        y, width = 22 * i, 420 * value / most
        rows.append(f'<text x="215" y="{y + 15}" text-anchor="end">{escape.escape(name)}</text>'
                    f'<rect x="225" y="{y + 3}" width="{width:.1f}" height="15" fill="{"#4c78a8" if i % 2 == 0 else "#9ecae9"}"/>'
                    f'<text x="{230 + width:.1f}" y="{y + 15}">{value:,.4g}{escape.escape(plot["unit"])}</text>')
    return (f"<h4>{escape.escape(plot['title'])}</h4>"
            f'<svg width="740" height="{22 * len(bars) + 6}" role="img">{"".join(rows)}</svg>')


def html_table(table):
    head = "".join(f"<th>{escape.escape(cell)}</th>" for cell in table["head"])
    rows = "".join("<tr>" + "".join(f"<td>{escape.escape(cell)}</td>" for cell in row) + "</tr>" for row in table["rows"])
    return f"<h4>{escape.escape(table['title'])}</h4><table><tr>{head}</tr>{rows}</table>"


def section(outcome):
    verdict = "holds" if outcome["holds"] else "short"
    parts = [f"<h2>{escape.escape(outcome['name'])} <small class={verdict}>{verdict}</small></h2>",
             f"<p>{escape.escape(outcome['title'])}. {escape.escape(outcome['source'])}, published: {escape.escape(outcome['published'])}."
             f" {outcome['seconds']} s.</p>"]
    parts += [html_table(table) for table in outcome["tables"]]
    parts += [svg(plot) for plot in outcome["plots"]]
    parts += [f"<p>{escape.escape(note)}</p>" for note in outcome["notes"]]
    parts.append("<ul>" + "".join(f"<li class={'holds' if c['holds'] else 'short'}>{escape.escape(c['text'])}</li>"
                                  for c in outcome["criteria"]) + "</ul>")
    return f"<section id={outcome['name']}>{''.join(parts)}</section>"


def html(outcomes):
    met = sum(o["holds"] for o in outcomes)
    figures = json.dumps({o["name"]: o["figures"] for o in outcomes}).replace("<", "\\u003c")
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>vpmu lab</title><style>{STYLE}</style>"
            f"<h1>vpmu lab</h1><p>{met} of {len(outcomes)} experiments meet what they must. "
            f"<input id=search type=search placeholder='search' aria-label=search></p>"
            f"{''.join(section(o) for o in outcomes)}<script type='application/json' id=figures>{figures}</script>"
            f"<script>{SCRIPT}</script></html>\n")
