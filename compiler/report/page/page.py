"""The report of a profile: one file, which opens everywhere and asks nobody for anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files

from compiler.report.page import bars, flame, memory, roofline, schedule, table, timeline
from compiler.report.page.markup import element, text
from compiler.report.profile import Profile
from compiler.report.tables import milliseconds, size_text

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(profile: Profile, core: int | None = None) -> str:
    """The report, with the timeline and the memories of one core: by default of the one that works most."""
    chosen = timeline.busiest_core(profile) if core is None else core
    found = timeline.timeline(profile, chosen)
    data = timeline.script_data(found, profile)
    data["shares"] = [bars.layer_shares(layer) for layer in profile.layers]
    data["reasons"] = ["busy", *bars.REASONS[:-1]]
    text_of_data = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    title = f"{profile.model.name} on {profile.chip.name}"
    return "".join([
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        element("title", text(title)),
        f"<style>{_asset('style.css')}</style></head><body><main>",
        *_sections(profile, title, found),
        "</main>",
        f'<script type="application/json" id="data">{text_of_data}</script>',
        f"<script>{_asset('page.js')}</script></body></html>\n",
    ])  # fmt: skip


def timeline_alone(profile: Profile, core: int | None = None) -> str:
    """The timeline as an SVG file."""
    chosen = timeline.busiest_core(profile) if core is None else core
    return timeline.alone(timeline.timeline(profile, chosen), profile, _asset("style.css"))


def _asset(name: str) -> str:
    return files("compiler.report.page").joinpath(name).read_text(encoding="utf-8")


def _sections(profile: Profile, title: str, found: timeline.Timeline) -> Iterator[str]:
    yield element("header", element("h1", text(title)), element("p", text(_subtitle(profile)), class_="note"))
    yield element("div", *_cards(profile), class_="cards")
    if profile.host_kernels:
        names = ", ".join(segment.operator or segment.name for segment in profile.host_kernels)
        yield element("p", text(f"On the host, and in no figure here: {names}"), class_="warn")
    if profile.advice:
        yield _section("What to try", element("ol", *_advice(profile), class_="advice"))
    yield _section(
        f"Timeline of core {found.core}",
        '<p class="tools"><button type="button" data-zoom="in">+</button><button type="button" data-zoom="out">&minus;'
        '</button><button type="button" data-zoom="all">all</button><span id="where"></span></p>',
        timeline.picture(found, profile),
        element("p", id="hover", class_="hover"),
        element("div", id="layer"),
        _how(
            "One row per queue; height is how busy it was in that stretch of time. Red: a copy that waits for DDR or "
            "LLB, which others use too. Amber: the queue waits for a flag. DDR is the chip's. Stripes are layers, each "
            "from the end of all before it to its own end. Wheel or buttons zoom, dragging moves, a layer of the "
            "table zooms to it. What is finer than this resolution is in the file that --trace writes."
        ),
    )
    yield _section(
        "Where the cycles of the queues went",
        bars.picture(profile),
        _how(
            "Over all cores. A queue that is busy nearly all the time is what bounds the model. Empty: nothing was "
            "dispatched to it. Flag: another queue or core had to be done first. Queue full: S had to wait because "
            "another queue had no room. Done: after its last instruction."
        ),
    )
    if profile.layers:
        yield _section("Schedule", schedule.picture(profile), schedule.stages(profile), _how(_SCHEDULE))
        yield _section("Through DDR between kernels", schedule.round_trips(profile), _how(_ROUND_TRIPS))
    yield _section("Layers", table.table(profile), _how(_LAYERS))
    yield _section(
        "Roofline",
        roofline.picture(profile),
        _how(
            "Each dot is a layer with products, larger where it takes more of the time. Far left, under the slope, DDR "
            "is the roof: moving fewer bytes shifts a dot to the right. Right of the ridge the cube is. A dot far "
            "below both waits for something else; its colour says for what it was busy."
        ),
    )
    yield _section(
        "DDR traffic",
        flame.picture(profile),
        _how("From top to bottom: all bytes, by layer, by tensor, by queue; in whole lines, as DDR moves them."),
    )
    maps = list(memory.pictures(profile, found.core))
    if maps:
        yield _section(
            "Memories over time",
            *maps,
            _how(
                "Addresses upwards, time to the right. Coloured is what will still be read: from the instruction that "
                "writes it to the last that reads it; a colour per layer in which it was written."
            ),
        )


_SCHEDULE = (
    "A row per layer, from the input at the top to the output, and a block for each time that a kernel of it ran; its "
    "colour is the layer's limit. Where a layer runs in pieces of the batch or image, depth first, blocks go down and "
    "start again. Stages, grey and light, are consecutive layers with as many pieces. The table says for what part of "
    "a stage's cycles the queues M, V, MTE2 and MTE3 of all cores were at work."
)
_ROUND_TRIPS = (
    "What a kernel wrote to DDR for other kernels to read, in whole lines; and why LLB could not hold it, which only "
    "the compiler knows: profile the ONNX file instead of the compiled one."
)
_LAYERS = (
    "Cycles: by how much a layer put off the end of all before it; they add up to the total. Bound: what no program "
    "can beat that brings the layer's inputs from DDR and its results there; from the ONNX model and the chip's rates "
    "alone. Ratio: one to the other; kernels that overlap, or whose tensors stay on the chip, may be below 1. Limit: "
    "what was busy for most of its cycles. Queues: MTE2, MTE1, M, FIX, V, MTE3, S of the busiest core, and DDR."
)


def _section(title: str, *content: str) -> str:
    return element("section", element("h2", text(title)), *content)


def _how(words: str) -> str:
    return element("details", element("summary", "how to read it"), element("p", text(words)))


def _subtitle(profile: Profile) -> str:
    precision = profile.model.options.get("precision") or "as the model says"
    return (
        f"precision {precision}; {profile.cores} cores at {profile.chip.clock_mhz:,} MHz; {len(profile.order)} kernels"
    )


def _cards(profile: Profile) -> Iterator[str]:
    yield _card("time", milliseconds(profile.seconds), f"{profile.cycles:,} cycles")
    if profile.bound is not None and profile.ratio is not None:
        bound = profile.bound
        yield _card("to the lower bound", f"{profile.ratio:.2f} x", f"{bound.cycles:,} cycles, by {bound.by}")
    total = max(1, profile.core_cycles)
    yield _card("cube busy", f"{100 * profile.busy['M'] / total:.1f} %", _cube_note(profile))
    moved = f"{size_text(profile.ddr_bytes)}"
    must = f"{size_text(profile.work.ddr_bytes)} must be" if profile.work is not None else "in whole lines"
    yield _card("DDR traffic", moved, must)
    rate = profile.chip.bandwidth.ddr_bytes_per_kilocycle
    used = profile.ddr_bytes * 1000 / max(1, profile.cycles * rate)
    yield _card("DDR busy", f"{100 * used:.1f} %", f"of {rate / 1000 * profile.chip.clock_mhz / 1000:,.1f} GB/s")
    conflicts = sum(layer.conflict_cycles for layer in profile.layers)
    share = conflicts / profile.busy["V"] if profile.busy["V"] else 0.0
    yield _card("bank conflicts", f"{100 * share:.1f} %", f"of {profile.busy['V']:,} vector cycles")


def _cube_note(profile: Profile) -> str:
    chip = profile.chip
    macs = profile.to_dict()["macs"]
    peak = sum(count / chip.macs_per_cycle(dtype) for dtype, count in macs.items()) / max(1, chip.cores)
    return f"{100 * peak / max(1, profile.cycles):.1f} % of the chip's peak"


def _card(name: str, figure: str, note: str) -> str:
    return element(
        "div", element("span", text(name)), element("b", text(figure)), element("small", text(note)), class_="card"
    )


def _advice(profile: Profile) -> Iterator[str]:
    for one in profile.advice:
        head = element("b", text(one.title))
        yield element("li", head, f" {one.lost_cycles:,} cycles above the bound", element("p", text(one.text)))
