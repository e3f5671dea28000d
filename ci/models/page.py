"""The outcomes as one page that needs no other file and no network: funnel, cases, what they took before, timelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ci.models import record
from ci.models.outcome import Outcome, funnel, wrong

RUNS = 40  # shown of a case's history
WIDTH, HEIGHT = 120, 22
STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1b1f26; --soft: #667080; --rule: #dfe3e8;
  --bar: #3b7dd8; --red: #c93a3a; --green: #2f8f55; --amber: #a36f00; }
@media (prefers-color-scheme: dark) { :root { --page: #12151a; --card: #1a1e25; --ink: #e4e8ee; --soft: #97a1b0;
  --rule: #2c323c; --bar: #5b98ea; --red: #ef7a7a; --green: #5cc98a; --amber: #e0b050; } }
body { margin: 0; background: var(--page); color: var(--ink); }
body, input { font: 14px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1260px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 16px; margin: 0 0 10px; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 14px 18px; }
section { margin-top: 16px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--soft); font-weight: 500; }
td, th { padding: 3px 10px 3px 0; border-bottom: 1px solid var(--rule); white-space: nowrap; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } 
td.text { white-space: pre-wrap; min-width: 320px; }
.bar { background: var(--bar); height: 14px; border-radius: 3px; min-width: 1px; } .soft { color: var(--soft); }
.bad { color: var(--red); } .good { color: var(--green); } .known { color: var(--amber); }
input { padding: 2px 10px; min-width: 280px; margin-bottom: 8px; }
a { color: var(--bar); } polyline { fill: none; stroke: var(--bar); stroke-width: 1.5; } circle { fill: var(--red); }
"""
SCRIPT = """
const field = document.getElementById('filter');
field.addEventListener('input', () => {
  for (const row of document.querySelectorAll('tbody.cases tr'))
    row.hidden = !row.textContent.toLowerCase().includes(field.value.toLowerCase());
});
"""


def html(outcomes: Sequence[Outcome], past: Sequence[Mapping[str, Any]], folder: Path = record.FOLDER) -> str:
    """``past`` are the runs of the history, with this one at their end."""
    failures = wrong(outcomes)
    now = past[-1] if past else {}
    about = " · ".join(filter(None, (str(now.get("commit", "")), str(now.get("when", "")), str(now.get("tier", "")))))
    verdict = f'<span class="bad">{len(failures)} failed</span>' if failures else '<span class="good">all right</span>'
    parts = [
        f"<h1>Model regression: {len(outcomes)} cases, {verdict}</h1><p class='soft'>{escape(about)}</p>",
        f"<section><h2>Funnel</h2>{_funnel(outcomes)}</section>",
        f"<section><h2>Failures</h2>{_failures(failures)}</section>" if failures else "",
        f"<section><h2>Cases</h2>{_cases(outcomes, past, folder)}</section>",
        f"<section><h2>Runs</h2>{_runs(past)}</section>" if past else "",
    ]
    head = f"<meta charset='utf-8'><title>Model regression</title><style>{STYLE}</style>"
    body = f"<main>{''.join(parts)}</main><script>{SCRIPT}</script>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"


def _funnel(outcomes: Sequence[Outcome]) -> str:
    total, before, rows = len(outcomes) or 1, len(outcomes), []
    for stage, count in funnel(outcomes).items():
        share = f"{100 * count / total:.1f} % of all, {100 * count / (before or 1):.1f} % of those that came here"
        bar = f"<div class='bar' style='width:{100 * count / total:.1f}%'></div>"
        rows.append(
            f"<tr><td>{stage}</td><td class='n'>{count}</td><td style='width:50%'>{bar}</td><td>{share}</td></tr>"
        )
        before = count
    return f"<table>{''.join(rows)}</table>"


def _failures(failures: Sequence[Outcome]) -> str:
    rows = (
        f"<tr><td>{escape(str(each.case))}</td><td class='bad'>{escape(each.failed or 'end')}</td>"
        f"<td>{escape(each.culprit)}</td><td class='text'>{escape(each.error[-2000:])}</td></tr>"
        for each in failures
    )
    return f"<table><tr><th>case</th><th>stage</th><th>first to differ</th><th>why</th></tr>{''.join(rows)}</table>"


def _cases(outcomes: Sequence[Outcome], past: Sequence[Mapping[str, Any]], folder: Path) -> str:
    names = ("cycles", "recorded", "instructions", "program bytes", "seconds")
    head = "".join(f"<th class='n'>{name}</th>" for name in names)
    rows = "".join(_case(each, past, folder) for each in outcomes)
    return (
        "<input id='filter' placeholder='filter: a model, a chip, failed ...'>"
        f"<table><thead><tr><th>case</th><th>verdict</th>{head}<th>outputs</th><th>history</th><th>timeline</th></tr>"
        f"</thead><tbody class='cases'>{rows}</tbody></table>"
    )


def _case(each: Outcome, past: Sequence[Mapping[str, Any]], folder: Path) -> str:
    verdict, kind = ("as expected", "good") if not each.error else (f"failed: {each.failed or 'end'}", "bad")
    if each.expected:
        verdict, kind = f"known failure: {each.failed}", "known"
    before = (record.recorded(each.case, folder) or {}).get("cycles")
    now = each.facts.get("cycles")
    change = f" ({100 * (now - before) / before:+.1f} %)" if now and before and now != before else ""
    numbers = (now, before, each.facts.get("instructions"), each.facts.get("program_bytes"))
    cells = [f"{value:,}" if isinstance(value, int) else "-" for value in numbers]
    cells[0] += change
    matched = next((passed.found for passed in each.passed if passed.stage == "match"), {})
    links = (
        f"<a href='traces/{quote(name)}'>{escape(name.rpartition('.trace')[0])}</a>"
        for name in each.facts.get("traces", ())
    )
    columns = "".join(f"<td class='n'>{cell}</td>" for cell in (*cells, f"{each.total_seconds:.1f}"))
    return (
        f"<tr><td>{escape(str(each.case))}</td>"
        f"<td class='{kind}' title='{escape(each.expected)}'>{escape(verdict)}</td>{columns}"
        f"<td>{escape(', '.join(f'{k}: {v}' for k, v in matched.items()))}</td>"
        f"<td>{_sparkline(str(each.case), past)}</td><td>{' '.join(links)}</td></tr>"
    )


def _sparkline(case: str, past: Sequence[Mapping[str, Any]]) -> str:
    """Cycles over the runs, the least at the bottom; a number where they never changed."""
    values = [run["cycles"][case] for run in past if case in run.get("cycles", {})][-RUNS:]
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    if low == high:
        return f"<span class='soft'>{len(values)} runs the same</span>"
    step = WIDTH / (len(values) - 1)
    points = [(index * step, HEIGHT - 2 - (HEIGHT - 4) * (v - low) / (high - low)) for index, v in enumerate(values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    title = f"{values[0]:,} to {values[-1]:,} cycles in {len(values)} runs"
    return (
        f"<svg width='{WIDTH}' height='{HEIGHT}'><title>{title}</title><polyline points='{line}'/>"
        f"<circle cx='{points[-1][0]:.1f}' cy='{points[-1][1]:.1f}' r='2'/></svg>"
    )


def _runs(past: Sequence[Mapping[str, Any]]) -> str:
    rows = (
        f"<tr><td>{escape(str(run.get('when', '')))}</td><td>{escape(str(run.get('commit', '')))}</td>"
        f"<td>{escape(str(run.get('tier', '')))}</td><td>{escape(_counts(run))}</td>"
        f"<td class='text'>{escape(', '.join(run.get('failures', ())[:8]))}</td></tr>"
        for run in reversed(past[-RUNS:])
    )
    head = "".join(f"<th>{name}</th>" for name in ("when", "commit", "tier", "passed", "failed"))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _counts(run: Mapping[str, Any]) -> str:
    return ", ".join(f"{stage} {count}" for stage, count in run.get("funnel", {}).items())
