"""What to try for a layer that is slow: rules over its numbers, each naming the queue and something that can be done.

A rule looks at one layer. The first that applies speaks, so they stand in the order in which their causes hide each
other: a layer that cannot be faster at all comes first, one of which nothing special is known last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.report.layers import LATENCY, Layer

MAX_ADVICE = 5
_LAYERS = 100  # that are looked at
NEAR_ROOF = 1.1  # cycles to bound, below which there is little to gain
_COPIES = {"MTE2": ("ddr_", "llb_"), "MTE3": ("ub_",), "MTE1": ("l1_",), "FIX": ("l0c_",)}
_MANY = 0.3  # of a layer's time is worth a word


@dataclass(frozen=True)
class Advice:
    """For layers of which the same can be said; the cycles are those of all of them."""

    layers: tuple[Layer, ...]
    rule: str
    lost_cycles: int
    text: str

    @property
    def title(self) -> str:
        more = len(self.layers) - 1
        return f"{self.layers[0].title} and {more} more like it" if more else self.layers[0].title


@dataclass(frozen=True)
class Rule:
    """``why`` says what is seen in a layer, or None where the rule does not apply; ``do`` what can be tried.

    ``narrower`` can be tried beside it, where the model does not compute in 16 bits yet.
    """

    name: str
    why: Callable[[Layer], str | None]
    do: str
    narrower: str = ""


def advise(layers: Sequence[Layer], narrow: bool) -> tuple[Advice, ...]:
    """What to do where most cycles are lost over the bounds; ``narrow`` where layers compute in 16 bits."""
    said: dict[tuple[str, str], list[Layer]] = {}
    for layer in sorted(layers, key=lambda layer: -layer.lost_cycles)[:_LAYERS]:
        rule, why = next((rule, why) for rule in RULES if (why := rule.why(layer)) is not None)
        do = rule.do if narrow or not rule.narrower else f"{rule.narrower}; {rule.do}"
        said.setdefault((rule.name, f"{why}: {do}"), []).append(layer)
    found = [Advice(tuple(of), rule, sum(one.lost_cycles for one in of), text) for (rule, text), of in said.items()]
    return tuple(sorted(found, key=lambda one: -one.lost_cycles)[:MAX_ADVICE])


# ---- what the rules look at -----------------------------------------------------------------------------------------


def copy_bytes(layer: Layer, queue: str) -> float:
    """Bytes of an average copy of a queue."""
    paths = [path for name, path in layer.paths.items() if name.startswith(_COPIES[queue])]
    copies = sum(path.copies for path in paths)
    return sum(path.moved_bytes for path in paths) / copies if copies else 0.0


def line_waste(layer: Layer) -> float:
    """Bytes in whole lines for every byte that was wanted, of what went over DDR."""
    paths = [path for name, path in layer.paths.items() if "ddr" in name.split("_")]
    moved = sum(path.moved_bytes for path in paths)
    return sum(path.line_bytes for path in paths) / moved if moved else 1.0


def traffic_ratio(layer: Layer) -> float:
    """DDR bytes for every byte that must be moved."""
    return layer.ddr_bytes / layer.work.ddr_bytes if layer.work is not None and layer.work.ddr_bytes else 1.0


def cycles_per_instruction(layer: Layer, queue: str) -> float:
    return layer.busy[queue] / layer.instructions[queue] if layer.instructions.get(queue) else 0.0


def imbalance(layer: Layer, queue: str) -> float:
    """The busiest core against the average of those that have something to do."""
    mean = layer.busy[queue] / max(1, layer.cores)
    return layer.busiest[queue] / mean if mean else 1.0


def cube_fill(layer: Layer) -> float:
    """Products that the model asks for, of those that the cube could do while it was busy."""
    asked = layer.work.macs if layer.work is not None and layer.work.macs else layer.macs
    chip = layer.chip
    cycles = sum(count / chip.macs_per_cycle(dtype) for dtype, count in asked.items() if chip.multiplies(dtype))
    return cycles / layer.busy["M"] if layer.busy.get("M") else 1.0


def _at_the_roof(layer: Layer) -> str | None:
    if layer.ratio is None or layer.ratio > NEAR_ROOF or layer.bound is None:
        return None
    return f"{layer.ratio:.2f} of its bound, which is {layer.bound.by}"


def _too_much_traffic(layer: Layer) -> str | None:
    if layer.limit not in ("DDR", "MTE2") or traffic_ratio(layer) < 1.3:
        return None
    return f"bound by {layer.limit}, and DDR moves {traffic_ratio(layer):.1f} times the bytes that must be moved"


def _broken_lines(layer: Layer) -> str | None:
    if layer.limit not in ("DDR", "MTE2", "MTE3") or line_waste(layer) < 1.25:
        return None
    return f"bound by {layer.limit}, and of every line of DDR only {100 / line_waste(layer):.0f} % is wanted"


def _ddr(layer: Layer) -> str | None:
    if layer.limit != "DDR":
        return None
    return f"bound by DDR, which is busy for {100 * layer.use['DDR']:.0f} % of the time"


def _few_cores(layer: Layer) -> str | None:
    if layer.cores * 2 > layer.chip.cores or layer.limit in (LATENCY, "DDR", "LLB"):
        return None
    return f"bound by {layer.limit} on {layer.cores} of {layer.chip.cores} cores"


def _uneven(layer: Layer) -> str | None:
    queue = layer.limit
    if queue not in layer.busiest or layer.cores < 2 or imbalance(layer, queue) < 1.3:
        return None
    return f"bound by {queue}, which is {imbalance(layer, queue):.1f} times as busy on one core as on the average"


def _small_copies(queue: str) -> Callable[[Layer], str | None]:
    def why(layer: Layer) -> str | None:
        issue = max((p.issue_cycles for n, p in layer.chip.path.items() if n.startswith(_COPIES[queue])), default=0)
        if layer.limit != queue or cycles_per_instruction(layer, queue) > 2 * issue:
            return None
        return f"bound by {queue}, whose copies have {copy_bytes(layer, queue):,.0f} bytes on the average"

    return why


def _conflicts(layer: Layer) -> str | None:
    share = layer.conflict_cycles / layer.busy["V"] if layer.busy.get("V") else 0.0
    if layer.limit != "V" or share < 0.05:
        return None
    banks = layer.chip.vector.banks
    return (
        f"bound by V, which loses {100 * share:.0f} % of its cycles to conflicts in banks, whose groups repeat every "
        f"{banks.groups << banks.group_shift} bytes"
    )


def _short_vectors(layer: Layer) -> str | None:
    vector = layer.chip.vector
    overhead = vector.head_cycles + vector.tail_cycles
    if layer.limit != "V" or cycles_per_instruction(layer, "V") > 3 * overhead:
        return None
    return (
        f"bound by V, whose instructions take {cycles_per_instruction(layer, 'V'):.0f} cycles on the average, "
        f"{overhead} of them to start and to end"
    )


def _busy_queue(queue: str) -> Callable[[Layer], str | None]:
    def why(layer: Layer) -> str | None:
        return f"bound by {queue}, busy for {100 * layer.use[queue]:.0f} %" if layer.limit == queue else None

    return why


def _padded_cube(layer: Layer) -> str | None:
    if layer.limit != "M" or cube_fill(layer) > 0.7:
        return None
    return f"bound by M, of whose products {100 * cube_fill(layer):.0f} % are asked for"


def _tiny(layer: Layer) -> str | None:
    """Little more than one round trip to DDR and the barrier behind it."""
    far = max((path.latency_cycles for path in layer.chip.path.values()), default=0)
    if layer.limit != LATENCY or layer.cycles > 2 * (3 * far + layer.chip.sync.core_barrier_cycles):
        return None
    return f"{layer.cycles:,} cycles are mostly the way to DDR and back, and the barrier behind it"


def _barriers(layer: Layer) -> str | None:
    share = layer.stalled_share("S", "barrier")
    if layer.limit != LATENCY or share < _MANY:
        return None
    return f"S stands at barriers for {100 * share:.0f} % of the time"


def _scalar_dispatch(layer: Layer) -> str | None:
    if layer.limit != LATENCY or layer.use.get("S", 0) < _MANY:
        return None
    return f"S is busy for {100 * layer.use['S']:.0f} % and the other queues wait for what it dispatches"


def _flags(layer: Layer) -> str | None:
    queue = max((q for q in layer.busiest if q != "S"), key=lambda q: layer.busiest[q])
    share = layer.stalled_share(queue, "flag")
    if share < _MANY or layer.limit not in (LATENCY, queue):
        return None
    return f"{queue} has most to do and waits for flags of other queues for {100 * share:.0f} % of the time"


def _anything(layer: Layer) -> str | None:
    if layer.limit == LATENCY:
        return f"nothing is busy for more than {100 * layer.limit_share:.0f} % of the time"
    return f"bound by {layer.limit}, at {100 * layer.limit_share:.0f} %"


_HALF = "`--precision fp16` halves the bytes"
RULES: tuple[Rule, ...] = (
    Rule(
        "at-the-roof", _at_the_roof,
        "only less work helps: a larger batch reads the weights once for more inputs",
        "`--precision fp16` is less work",
    ),
    Rule(
        "few-cores", _few_cores,
        "a larger batch gives the others something to do; `tilewright explain` shows the tile",
    ),
    Rule(
        "uneven", _uneven,
        "tiles do not divide among the cores: sizes that are multiples of tile and number of cores, or a larger batch",
    ),
    Rule(
        "broken-lines", _broken_lines,
        "rows that begin at and have multiples of 128 bytes: pad the innermost dimension, or put channels last",
    ),
    Rule(
        "too-much-traffic", _too_much_traffic,
        "operands are read again and again: larger tiles, or a shape whose tiles fit L1 (see `tilewright explain`)",
        _HALF,
    ),
    Rule(
        "small-loads", _small_copies("MTE2"),
        "larger tiles, or a layout in which what one tile reads lies together",
    ),
    Rule(
        "small-stores", _small_copies("MTE3"),
        "larger tiles, or a result whose innermost dimension is longer",
    ),
    Rule(
        "ddr", _ddr,
        "a larger batch reads the weights once for more inputs",
        _HALF,
    ),
    Rule(
        "loads", _busy_queue("MTE2"),
        "every core loads as fast as its way to DDR allows: larger tiles load an operand less often",
        _HALF,
    ),
    Rule(
        "bank-conflicts", _conflicts,
        "a row length that is no multiple of that keeps what is read together in different groups",
    ),
    Rule(
        "short-vectors", _short_vectors,
        "longer rows: merge the innermost dimensions, or put the dimension that is worked on last",
    ),
    Rule(
        "vector", _busy_queue("V"),
        "cheaper functions (ReLU, a tanh approximation); scale, bias and ReLU behind a product cost FIX, not V",
        "`--precision fp16` does twice as many elements at once",
    ),
    Rule(
        "padded-cube", _padded_cube,
        "the cube works on fractals of 16: make m, n and k (channels of a convolution) multiples of 16",
    ),
    Rule(
        "cube", _busy_queue("M"),
        "int8 multiplies twice as fast as fp16",
        "`--precision fp16` multiplies four times as fast as fp32",
    ),
    Rule(
        "operands", _busy_queue("MTE1"),
        "operands move from L1 for few products: larger tiles of m and n reuse them more often",
        _HALF,
    ),
    Rule(
        "results", _busy_queue("FIX"),
        "much leaves L0C for few products: a longer k, or a narrower type of the result",
    ),
    Rule(
        "stores", _busy_queue("MTE3"),
        "a narrower type of the result, or an elementwise operator next, which joins the kernel by itself",
        _HALF,
    ),
    Rule(
        "scalar", _busy_queue("S"),
        "many small instructions: larger tiles, or dimensions merged so that one instruction does more",
    ),
    Rule(
        "fill-and-drain", _tiny,
        "too little work to fill the pipeline: a larger batch, or fewer and larger operators",
    ),
    Rule(
        "flags", _flags,
        "the queues take turns: smaller tiles leave room for two of each buffer, one to fill while the other is used",
    ),
    Rule(
        "barriers", _barriers,
        "cores wait for the slowest one: sizes that divide evenly, or a larger batch",
    ),
    Rule(
        "dispatch", _scalar_dispatch,
        "larger tiles: S has a fixed cost for each instruction",
    ),
    Rule(
        "other", _anything,
        "look at its timeline: `--trace` writes one for ui.perfetto.dev",
    ),
)  # fmt: skip
