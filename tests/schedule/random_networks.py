"""Random convolutional networks with some of their calls in bands, run free of hazards, against the same ones whole.

Convolutions with strides, dilations and groups, pooling, residual sums, concatenations, some of the channels alone and
upsampling; runs of calls are cut into bands at random, by a schedule.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import onnx

from ci.random_cases import Outcome
from compiler import api
from compiler.errors import InvalidError
from compiler.schedule.files import parse_schedule
from compiler.schedule.manual import Manual
from models.checks import run
from tests.test_driver import model

TOLERANCE = 1e-4
DRAWS = 12  # of schedules, until one is possible
ROWS, COLUMNS, CHANNELS = (7, 12, 15, 16, 24, 29, 33), (5, 8, 13, 16, 21), (3, 4, 8, 12, 16, 24)


class Network:
    """Nodes with the shapes of what they make, one after another."""

    rows, columns = ROWS, COLUMNS

    def __init__(self, seed: int) -> None:
        self.random, self.rng = Random(seed), np.random.default_rng(seed)
        self.nodes, self.weights = list[Any](), dict[str, np.ndarray]()
        self.bounds = dict[str, np.ndarray]()  # of slices
        self.shape = (self.random.choice((1, 1, 2, 3)), *map(self.random.choice, (CHANNELS, self.rows, self.columns)))
        self.made = {"x": self.shape}
        last = "x"
        for _ in range(self.random.randint(3, 8)):
            last = self._next(last)
        self.outputs = [last]
        if len(self.nodes) > 3 and self.random.random() < 0.4:
            self.outputs.append(self.random.choice([name for name in self.made if name not in ("x", last)]))

    def source(self) -> bytes:
        return model(self.nodes, {"x": self.shape}, self.outputs, integers=self.bounds, **self.weights)

    def _next(self, last: str) -> str:
        kinds = [self._convolution] * 4 + [self._pool, self._activation, self._upsampled, self._cut]
        return self.random.choice([*kinds, self._joined, self._joined])(last)

    def _add(self, operator: str, inputs: str, shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(operator, inputs.split(" "), [name], name, **attributes))
        self.made[name] = shape
        return name

    def _convolution(self, last: str) -> str:
        batch, channels, *image = self.made[last]
        kernel = [self.random.choice((1, 2, 3, 3, 5)) for _ in image]
        strides = [self.random.choice((1, 1, 1, 2, 3)) for _ in image]
        dilations = [self.random.choice((1, 1, 2)) for _ in image]
        pads = [self.random.randint(0, (k - 1) * d) for k, d in zip(kernel * 2, dilations * 2, strict=True)]
        sizes = _sizes(image, kernel, strides, pads, dilations)
        group = self.random.choice([g for g in (1, 1, 1, 2, channels) if channels % g == 0])
        outputs = group * max(1, self.random.choice(CHANNELS) // group)
        if min(sizes) < 1 or outputs > 32:
            return self._activation(last)
        w = self.rng.standard_normal((outputs, channels // group, *kernel)) / np.sqrt(channels // group * 9)
        self.weights |= {f"w{len(self.nodes)}": w.astype(np.float32)}
        self.weights |= {f"b{len(self.nodes)}": self.rng.standard_normal(outputs).astype(np.float32)}
        given = f"{last} w{len(self.nodes)} b{len(self.nodes)}"
        settings = {"strides": strides, "dilations": dilations, "pads": pads, "group": group}
        return self._add("Conv", given, (batch, outputs, *sizes), **settings)

    def _pool(self, last: str) -> str:
        batch, channels, *image = self.made[last]
        kernel, stride = self.random.choice((2, 3)), self.random.choice((1, 2))
        pads = [self.random.randint(0, kernel - 1) for _ in range(4)]
        sizes = _sizes(image, [kernel] * 2, [stride] * 2, pads, [1, 1])
        if min(sizes) < 1:
            return self._activation(last)
        windows = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads}
        return self._add(self.random.choice(("MaxPool", "AveragePool")), last, (batch, channels, *sizes), **windows)

    def _activation(self, last: str) -> str:
        return self._add(self.random.choice(("Relu", "Sigmoid", "HardSwish")), last, self.made[last])

    def _joined(self, last: str) -> str:
        """With what was made before and fits."""
        shape = self.made[last]
        fitting = [name for name, other in self.made.items() if other[2:] == shape[2:] and name != last]
        if not fitting:
            return self._convolution(last)
        other = self.random.choice(fitting)
        if self.made[other] == shape and self.random.random() < 0.7:
            return self._add(self.random.choice(("Add", "Mul")), f"{last} {other}", shape)
        channels = shape[1] + self.made[other][1]
        if channels > 32:
            return self._convolution(last)
        return self._add("Concat", f"{last} {other}", (shape[0], channels, *shape[2:]), axis=1)

    def _cut(self, last: str) -> str:
        """Some of the channels."""
        batch, channels, *image = self.made[last]
        first = self.random.randrange(channels)
        end = self.random.randint(first + 1, channels)
        bounds = {"from": first, "to": end, "axis": 1}
        names = {name: f"{name}{len(self.nodes)}" for name in bounds}
        self.bounds |= {names[name]: np.array([bound]) for name, bound in bounds.items()}
        return self._add("Slice", " ".join([last, *names.values()]), (batch, end - first, *image))

    def _upsampled(self, last: str) -> str:
        batch, channels, rows, columns = self.made[last]
        if rows > max(self.rows) or columns > max(self.columns):
            return self._pool(last)
        self.weights["scales"] = np.array([1, 1, 2, 2], np.float32)
        return self._add("Resize", f"{last}  scales", (batch, channels, 2 * rows, 2 * columns), mode="nearest")


def _sizes(image: Any, kernel: Any, strides: Any, pads: Any, dilations: Any) -> list[int]:
    ends = zip(image, kernel, strides, pads[:2], pads[2:], dilations, strict=True)
    return [(n + before + after - (k - 1) * d - 1) // s + 1 for n, k, s, before, after, d in ends]


def check(seed: int, chip: str) -> Outcome:
    network, source = Network(seed), Random(seed + 1)
    data = network.source()
    x = {"x": network.rng.standard_normal(network.shape).astype(np.float32)}
    try:
        whole = api.compile(data, chip)
        names = list(parse_schedule(whole.schedule).pieces)
        for _ in range(DRAWS):
            text = _schedule(names, source)
            try:
                compiled = api.compile(data, chip, schedule=parse_schedule(text))
            except InvalidError:  # these calls, or so many bands, cannot be
                continue
            outputs = [each.run(x, hazards=True) for each in (whole, compiled)]
            break
        else:
            return Outcome(seed, chip, "", Counter({"no bands": 1}))
        again = parse_schedule(compiled.schedule)
    except Exception as problem:  # noqa: BLE001  whatever it is, it is this seed's failure
        return Outcome(seed, chip, f"{shown(network)}: {type(problem).__name__}: {problem!s:.300}")
    wanted: Manual = parse_schedule(text)
    if again.axes != wanted.axes:
        return Outcome(seed, chip, f"{shown(network)}: written as {again.axes}, not as {wanted.axes}")
    for name, expected in zip(network.outputs, reference(data, x), strict=True):
        for what, found in zip(("whole", f"in bands {text!r}"), outputs, strict=True):
            if found[name].shape != expected.shape:
                return Outcome(seed, chip, f"{shown(network)}: {name} {what} is {found[name].shape}")
            error = float(np.abs(found[name] - expected).max() / max(np.abs(expected).max(), 0.1))
            if not error <= TOLERANCE:
                return Outcome(seed, chip, f"{shown(network)}: {name} {what} is off by {error:.2g} of the largest")
    return Outcome(seed, chip, "", Counter({"in bands": 1}))


def reference(data: bytes, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    proto = onnx.load_from_string(data)
    proto.ir_version = 10  # as onnxruntime knows it
    return list(run(proto, inputs).values())


def _schedule(names: list[str], source: Random) -> str:
    """A file in which some runs of calls are cut."""
    first = source.randrange(len(names))
    end = source.randint(first + 1, len(names))
    between = source.randint(first, end)  # of two cascades
    counts = [source.choice((2, 2, 3, 4, 7)) for _ in range(2)]
    lines = ["[pieces]"]
    for at, name in enumerate(names):
        inside, count = first <= at < end, counts[at < between]
        lines.append(f'"{name}" = {{ pieces = {count}, axis = 2 }}' if inside else f'"{name}" = 1')
    return "\n".join(lines)


def shown(network: Network) -> str:
    return f"x {network.shape}, " + "; ".join(map(_node, network.nodes))


def _node(one: Any) -> str:
    settings = {each.name: onnx.helper.get_attribute_value(each) for each in one.attribute}
    return f"{one.output[0]} = {one.op_type}({', '.join(one.input)}) {settings or ''}"
