"""The report as Chromium shows it: no error in the console, every picture drawn, and what is clicked does something."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.report.page.page import page
from compiler.report.page.timeline import LANES
from tests.report.chromium import Seen, browser, look
from tests.report.test_page import profiled

pytestmark = pytest.mark.skipif(browser() is None, reason="there is no Chromium; `make chromium` installs it")

# For every picture its size and how many shapes in it have an area; then what clicks change.
PROBE = """
const size = (box) => [Math.round(box.width), Math.round(box.height)];
const isDrawn = (shape) => {
  const box = shape.getBoundingClientRect(), style = getComputedStyle(shape);
  return box.width > 0 && box.height > 0 && style.visibility === "visible"
    && (style.fill !== "none" || style.stroke !== "none");
};
for (const one of document.querySelectorAll("details")) one.open = true;
found.pictures = Array.from(document.querySelectorAll("svg")).map((svg) => ({
  title: svg.querySelector("title").textContent,
  size: size(svg.getBoundingClientRect()),
  shapes: Array.from(svg.querySelectorAll("rect, path, circle, polygon, line")).filter(isDrawn).length,
}));
found.wide = document.documentElement.scrollWidth <= window.innerWidth;
found.lanes = Object.fromEntries(Array.from(document.querySelectorAll("[id^=lane-]"))
  .map((lane) => [lane.id, (lane.getAttribute("d") || "").length]));
const where = () => document.getElementById("where").textContent;
const rows = () => Array.from(document.querySelectorAll("#layers tbody tr")).filter((row) => !row.hidden);
found.rows = rows().length;
found.before = where();
document.querySelector("[data-zoom=in]").click();
found.zoomed = where();
document.querySelector("[data-zoom=all]").click();
found.all = where();
rows()[0].click();
found.layer = where();
found.bars = document.querySelectorAll("#layer .row").length;
const cycles = document.querySelectorAll("#layers thead th")[3];
const values = () => rows().map((row) => Number(row.cells[3].dataset.v));
cycles.click(); found.sorted = values();
cycles.click(); found.reversed = values();
const filter = document.getElementById("filter");
filter.value = "no layer is called so"; filter.dispatchEvent(new Event("input"));
found.filtered = rows().length;
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return look(page(profiled()), PROBE, tmp_path_factory.mktemp("browser"))


def test_the_console_is_silent(seen: Seen) -> None:
    assert seen.console == ()


def test_every_picture_is_drawn(seen: Seen) -> None:
    pictures = seen.found["pictures"]
    assert len(pictures) >= 6
    for picture in pictures:
        width, height = picture["size"]
        assert width > 300 and height > 30, picture
        assert picture["shapes"] >= 1, picture
    assert seen.found["wide"], "the page is wider than the window"


def test_the_script_draws_every_lane(seen: Seen) -> None:
    lanes = seen.found["lanes"]
    assert {name.split("-")[1] for name in lanes} == {*(queue.name for queue in LANES), "DDR"}
    assert lanes["lane-MTE2-busy"] > 20 and lanes["lane-V-busy"] > 20


def test_zooming_and_choosing_a_layer_move_the_timeline(seen: Seen) -> None:
    found = seen.found
    assert found["before"] == found["all"] != found["zoomed"]
    assert found["layer"] != found["all"]
    assert found["bars"] == len(LANES)


def test_the_table_is_sorted_and_filtered(seen: Seen) -> None:
    found = seen.found
    assert found["rows"] == len(profiled().layers)
    assert found["sorted"] != found["reversed"]
    assert sorted(found["sorted"]) in (found["sorted"], found["reversed"])
    assert found["filtered"] == 0


def test_what_a_browser_complains_of_is_found(tmp_path: Path) -> None:
    wrong = "<!doctype html><body><svg></svg><script>document.nothing.at = 1;</script></body>"
    found = look(wrong, 'found.size = document.querySelector("svg").children.length;', tmp_path)
    assert found.found == {"size": 0}
    assert "TypeError" in " ".join(found.console)


def test_it_asks_nobody_for_anything_in_a_browser(tmp_path: Path) -> None:
    asking = page(profiled()).replace("<main>", '<main><img src="https://example.org/x.png">')
    assert "Content Security Policy" in " ".join(look(asking, "", tmp_path).console)
