"""The report: one file that needs no other, safe against names, readable and small for a thousand layers."""

import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import compiler
from compiler.report.model_bounds import ModelWork
from compiler.report.page import memory, series, timeline
from compiler.report.page.markup import short, tail, text, ticks
from compiler.report.page.page import page, timeline_alone
from compiler.report.profile import Profile, profile
from compiler.sim.occupancy import Lives, lives, occupancies
from models import zoo

ROOT = Path(__file__).parents[2]
NASTY = '</script><img src="http://evil.example/x">\x1b[2J'


@cache
def profiled() -> Profile:
    model = zoo.build("digits-cnn")
    loaded = compiler.load(compiler.compile(model, chip="tiny", precision="fp16"))
    return profile(loaded, work=ModelWork(model, "fp16"))


def pictures(html: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]  # noqa: S314


def test_pictures_are_well_formed_and_have_titles() -> None:
    found = pictures(page(profiled()))
    assert len(found) >= 6
    for picture in found:
        assert picture.find("{http://www.w3.org/2000/svg}title") is not None
        assert "NaN" not in ElementTree.tostring(picture, encoding="unicode")


def test_the_timeline_alone_is_a_picture_of_its_own() -> None:
    (alone,) = pictures(timeline_alone(profiled()))
    (inside,) = (one for one in pictures(page(profiled())) if one.get("id") == "timeline")
    space = "{http://www.w3.org/2000/svg}"
    assert [path.get("d") for path in alone.iter(f"{space}path")] == [
        path.get("d") for path in inside.iter(f"{space}path")
    ]
    assert alone.find(f"{space}style") is not None
    shown = (ROOT / "docs/timeline.svg").read_text(encoding="utf-8")
    assert pictures(shown) and "script" not in shown


def test_it_asks_nobody_for_anything() -> None:
    html = page(profiled())
    assert "default-src 'none'" in html
    addresses = set(re.findall(r"https?://[^\s\"'<]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|iframe|img|object)\b|@import|\bfetch\(", html)


def test_names_are_text() -> None:
    found = profiled()
    layers = tuple(replace(layer, name=NASTY, nodes=(NASTY,), tile=NASTY) for layer in found.layers)
    traffic = tuple(replace(each, layer=NASTY, tensor=NASTY) for each in found.traffic)
    html = page(replace(found, layers=layers, traffic=traffic, model=replace(found.model, name=NASTY)))
    assert "evil" in html
    assert "<img" not in html
    assert "\x1b" not in html
    assert html.count("</script>") == 2
    assert pictures(html)


def test_a_thousand_layers_are_a_small_file() -> None:
    found = profiled()
    times = range(1000 // len(found.layers))
    layers = tuple(replace(layer, name=f"{layer.name}_{i}") for i in times for layer in found.layers)
    traffic = tuple(replace(each, layer=f"{each.layer}_{i}") for i in times for each in found.traffic)
    order = tuple((i, found.cycles // 1000) for i in range(1000))
    html = page(replace(found, layers=layers, order=order, traffic=traffic))
    assert len(html) < 2_000_000
    assert html.count("<tr data-layer") == 1000
    assert "show all 1000" in html


def test_the_script_gets_what_the_picture_shows() -> None:
    html = page(profiled(), core=1)
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html)[1])  # type: ignore[index]
    assert data["cycles"] == profiled().cycles
    assert sum(cycles for _, cycles in data["order"]) == profiled().cycles
    assert [title for title, _, _ in data["layers"]] == [layer.title for layer in profiled().layers]
    assert [lane["name"] for lane in data["lanes"]] == [queue.name for queue in timeline.LANES] + ["DDR"]
    assert "Timeline of core 1" in html
    for lane in data["lanes"]:
        for kind, values in zip(data["kinds"], lane["series"], strict=False):
            assert f'id="lane-{lane["name"]}-{kind}"' in html
            assert len(b64decode(values)) in (0, data["bins"])
    assert data["bins"] == min(series.MAX_BINS, data["cycles"])


# ---- series -----------------------------------------------------------------------------------------------------


def test_busy_shares_add_up_to_busy_cycles() -> None:
    found = profiled()
    (run,) = found.runs
    shown = timeline.timeline(found, 0)
    width = np.diff(series.edges(found.cycles))
    for queue in timeline.LANES[:-1]:  # of S, what is not dispatched is in no stream
        busy = (shown.lanes[queue.name]["busy"] * width).sum()
        assert busy == pytest.approx(run.schedule.busy[0, queue], rel=0.01, abs=len(run.stream.klass) * 0.01)


def test_shares_of_stretches() -> None:
    found = series.covered(np.array([0, 6]), np.array([3, 8]), np.array([0, 2, 4, 8]))
    assert found.tolist() == [1.0, 0.5, 0.5]
    assert series.rebinned(np.array([1.0, 0, 1, 1]), 2).tolist() == [0.5, 1.0]
    assert series.rebinned(np.array([1.0]), 2).tolist() == [1.0]
    assert b64decode(series.packed(np.array([0, 0.001, 1, 9]))) == bytes([0, 1, 255, 255])


# ---- memories ---------------------------------------------------------------------------------------------------


def test_lives_are_what_occupancy_counts() -> None:
    (run,) = profiled().runs
    for one in occupancies(run):
        if one.memory != "ddr":
            found = lives(run, one.memory, one.owner)
            times = np.concatenate([found.born, found.died])
            bytes_ = np.concatenate([found.high - found.low, found.low - found.high])
            order = np.lexsort((bytes_, times))
            assert np.cumsum(bytes_[order]).max(initial=0) == one.peak_bytes


def test_a_raster_shows_when_and_where_something_lived() -> None:
    found = Lives(*(np.array(column) for column in ([0, 512], [512, 1024], [0, 50], [50, 100])))
    grid = memory.raster(found, np.array([0, 1]), 100, 1024)
    half = memory.COLUMNS // 2
    assert grid[-1, 0] == 1 and grid[0, -1] == 2  # low addresses below
    assert grid[0, : half - 1].max() == 0 and grid[-1, half + 1 :].max() == 0


def test_an_image_is_a_png() -> None:
    data = memory.png(np.array([[0, 1], [2, 0]], np.uint8))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    size = int.from_bytes(data[data.index(b"IDAT") - 4 : data.index(b"IDAT")], "big")
    start = data.index(b"IDAT") + 4
    assert zlib.decompress(data[start : start + size]) == bytes([0, 0, 1, 0, 2, 0])


# ---- markup -----------------------------------------------------------------------------------------------------


def test_text_is_escaped() -> None:
    assert text("<a href='x'>\x1b") == "&lt;a href=&#x27;x&#x27;&gt;\\x1b"


def test_numbers_are_short() -> None:
    assert [short(v) for v in (0.01, 7, 1234, 2_785_450, 3e9)] == ["0.01", "7", "1.23k", "2.79M", "3G"]
    assert ticks(800) == [0, 100, 200, 300, 400, 500, 600, 700, 800]
    assert ticks(0) == [0.0]


def test_long_names_keep_their_ends() -> None:
    assert tail("/encoder.0/dense/MatMul", 8) == "\u2026/MatMul"
    assert tail("/MatMul", 8) == "/MatMul"
