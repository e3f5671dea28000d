"""Every rule speaks for a layer that is as it says, and names the queue."""

from collections.abc import Mapping
from typing import Any

import pytest

from compiler.report.advice import MAX_ADVICE, RULES, advise
from compiler.report.attribution import Path
from compiler.report.bounds import Bound, Work
from compiler.report.layers import LATENCY, Layer
from compiler.target import load_chip

CHIP = load_chip("tw1")
QUEUES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
SPAN = 100_000


def layer(**given: Any) -> Layer:
    """32 cores that are even, and idle but for what is given; ``busiest`` is per core, ``busy`` follows from it."""
    cores = given.get("cores", CHIP.cores)
    busiest: Mapping[str, int] = {queue: 0 for queue in QUEUES} | dict(given.pop("busiest", {}))
    whole: dict[str, Any] = {
        "name": "layer", "kernels": ("layer",), "nodes": ("/node",), "program": 0, "tile": "", "chip": CHIP,
        "cores": cores, "start": 0, "end": SPAN, "cycles": SPAN, "share": 0.1,
        "instructions": {queue: 100 * cores for queue in QUEUES},
        "busy": {queue: cycles * cores for queue, cycles in busiest.items()}, "busiest": busiest,
        "stalled": {queue: {} for queue in QUEUES}, "conflict_cycles": 0, "ddr_bytes": 0, "llb_bytes": 0, "macs": {},
        "bound": Bound(0, 0, 1000), "work": Work(ddr_bytes=100),
    }  # fmt: skip
    return Layer(**(whole | given))


def copies(path: str, count: int, moved: int, lines: int | None = None) -> dict[str, Path]:
    return {path: Path(count, moved, moved if lines is None else lines)}


DDR_BUSY = CHIP.bandwidth.ddr_bytes_per_kilocycle * SPAN // 1000
BUSY = 90_000
CASES = {
    "at-the-roof": layer(bound=Bound(0, 0, 95_000)),
    "few-cores": layer(cores=4, busiest={"M": BUSY}),
    "uneven": layer(busiest={"M": BUSY}, busy={queue: BUSY * 8 for queue in QUEUES}),
    "broken-lines": layer(ddr_bytes=DDR_BUSY, work=None, paths=copies("ddr_ub", 10, 10, 20)),
    "too-much-traffic": layer(ddr_bytes=DDR_BUSY, work=Work(ddr_bytes=DDR_BUSY // 3)),
    "small-loads": layer(busiest={"MTE2": BUSY}, instructions={"MTE2": 32 * BUSY // 20}, work=None),
    "small-stores": layer(busiest={"MTE3": BUSY}, instructions={"MTE3": 32 * BUSY // 20}),
    "ddr": layer(ddr_bytes=DDR_BUSY, work=Work(ddr_bytes=DDR_BUSY)),
    "loads": layer(busiest={"MTE2": BUSY}, work=None),
    "bank-conflicts": layer(busiest={"V": BUSY}, conflict_cycles=BUSY * 8),
    "short-vectors": layer(busiest={"V": BUSY}, instructions={"V": 32 * BUSY // 30}),
    "vector": layer(busiest={"V": BUSY}),
    "padded-cube": layer(busiest={"M": BUSY}, macs={"fp16": BUSY * 32 * 2048 // 4}),
    "cube": layer(busiest={"M": BUSY}, macs={"fp16": BUSY * 32 * 2048}),
    "operands": layer(busiest={"MTE1": BUSY}),
    "results": layer(busiest={"FIX": BUSY}),
    "stores": layer(busiest={"MTE3": BUSY}),
    "scalar": layer(busiest={"S": BUSY}),
    "fill-and-drain": layer(end=1_500, cycles=1_500),
    "flags": layer(busiest={"V": 30_000}, stalled={"V": {"flag": 32 * 60_000}}),
    "barriers": layer(stalled={"S": {"barrier": 32 * 60_000}}),
    "dispatch": layer(busiest={"S": 35_000}),
    "other": layer(),
}


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_every_rule_speaks_for_a_layer_of_its_kind(rule: Any) -> None:
    assert set(CASES) == {rule.name for rule in RULES}
    (found,) = advise([CASES[rule.name]], narrow=True)
    assert found.rule == rule.name, found.text
    limit = CASES[rule.name].limit
    assert limit == LATENCY or rule.name == "at-the-roof" or f"bound by {limit}" in found.text
    assert ": " in found.text


def test_what_costs_most_comes_first() -> None:
    layers = [layer(name=str(cycles), cycles=cycles, busiest={"V": 40_000}) for cycles in range(41_000, 51_000, 1_000)]
    found = advise(layers, narrow=True)
    assert [one.layers[0].name for one in found] == [str(50_000 - 1_000 * i) for i in range(MAX_ADVICE)]


def test_layers_of_which_the_same_is_said_stand_together() -> None:
    alike = [layer(name=name, nodes=(name,), busiest={"V": BUSY}) for name in "abc"]
    other = layer(busiest={"M": BUSY}, macs=CASES["cube"].macs)
    found = advise([*alike, other], narrow=True)
    assert [one.title for one in found] == ["a and 2 more like it", "/node"]
    assert found[0].lost_cycles == 3 * found[1].lost_cycles


def test_a_layer_without_a_bound_has_advice_too() -> None:
    (found,) = advise([layer(bound=None, work=None, busiest={"V": BUSY})], narrow=True)
    assert found.rule == "vector"


def test_half_precision_is_proposed_where_it_is_not_there_yet() -> None:
    (wide,), (narrow,) = (advise([CASES["ddr"]], narrow=narrow) for narrow in (False, True))
    assert "--precision fp16" in wide.text
    assert "--precision fp16" not in narrow.text


def test_a_layer_is_called_by_its_first_node() -> None:
    assert layer(nodes=("/conv", "/relu", "/add")).title == "/conv +2"
    assert layer(nodes=()).title == "layer"
