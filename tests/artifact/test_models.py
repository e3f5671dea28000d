"""Models of several segments in one file: they come back as they were, and what contradicts itself is found."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiler.artifact import canonical, container, model_to_bytes, read_artifact, read_program, to_bytes
from compiler.artifact.container import HAS_HOST, HOST, MANIFEST, PROGRAMS, WEIGHTS
from compiler.artifact.reader import read_frame
from compiler.errors import CorruptError, InvalidError, TilewrightError, UsageError
from compiler.runtime.loaded import load
from compiler.runtime.model import CompiledModel, HostSegment, Port
from tests.artifact import models, programs
from tests.artifact.test_manifest import at, named, paths

WHOLE = model_to_bytes(models.model("{}"))
CONTENTS = {kind: bytes(content) for kind, content in read_frame(WHOLE).contents.items()}
TABLES = canonical.loads(CONTENTS[MANIFEST])
Path = tuple[str | int, ...]


def packed(tables: Any, others: Mapping[int, bytes] | None = None) -> bytes:
    return container.pack(CONTENTS | (others or {}) | {MANIFEST: canonical.dumps(tables)}, HAS_HOST)


def changed(path: Path, value: Any) -> bytes:
    tables = copy.deepcopy(TABLES)
    at(path[:-1], tables)[path[-1]] = value
    return packed(tables)


def test_a_model_comes_back_as_it_was() -> None:
    model = models.model("{}")
    stored = read_artifact(WHOLE, allow_host=True)
    read = stored.model
    for field in ("name", "chip", "inputs", "outputs", "source", "source_sha256", "options", "kernels"):
        assert getattr(read, field) == getattr(model, field), field
    assert read.segments[1] == model.segments[1]
    assert list(read.constants) == ["w0"]
    np.testing.assert_array_equal(read.constants["w0"], models.weights())
    assert not read.constants["w0"].flags.writeable
    assert model_to_bytes(read) == WHOLE


def test_a_constant_of_two_programs_is_stored_once() -> None:
    sections = {s.name: s.size for s in read_artifact(WHOLE, allow_host=True).sections}
    assert sections["weights"] == models.weights().nbytes


def test_constants_that_nobody_reads_are_left_out() -> None:
    model = models.model(host=False)
    more = {**model.constants, "w7": np.zeros(1000, np.float32)}
    assert list(read_artifact(model_to_bytes(replace(model, constants=more))).constants) == ["w0"]


def test_a_model_is_no_program() -> None:
    data = model_to_bytes(models.model(host=False))
    with pytest.raises(UsageError, match="is a model of 2 segments, and not one program"):
        read_program(data)
    with pytest.raises(UsageError, match="not one program"):
        _ = read_artifact(data).program


NULLABLE = {("segments", i, key) for i in (0, 2) for key in ("chip", "cores")} | {("source", "sha256")}
TYPED = [p for p in paths(TABLES) if p[:2] != ("chip", "tables") and p[0] != "options" and "buffers" not in p[2:3]]


@pytest.mark.parametrize("path", TYPED, ids=named)
def test_every_key_has_its_type(path: Path) -> None:
    old = at(path, TABLES)
    for value in (None, True, 7, {}, [[]]):
        if type(value) is type(old) or (value is None and path in NULLABLE):
            continue
        with pytest.raises(TilewrightError) as caught:
            read_artifact(changed(path, value), allow_host=True)
        assert caught.value.exit_code in (7, 8)


SIGNATURE = ("signature", "inputs", 0)
OUTPUT = ("signature", "outputs", 0)
VALUES: list[tuple[Path, Any, str]] = [
    (("signature",), None, "segments without a signature; allowed: one program"),
    (("segments",), [], "signature.outputs.0. is 'out0', which nothing writes|which no segment reads"),
    (("segments", 0, "kind"), "code", r"segments\[0\].kind is 'code'; allowed: program, host"),
    (("segments", 1, "kind"), "program", r"segments\[1\] has the unknown key"),
    (("signature", "outputs"), [], "signature.outputs is empty; allowed: one or more"),
    ((*SIGNATURE, "name"), "y", "signature.inputs has two of the same name"),
    ((*SIGNATURE, "buffer"), "in1", "signature.inputs.1..buffer is 'in1', which is there already"),
    ((*SIGNATURE, "buffer"), "w0", "constants.0..name is 'w0', which is there already"),
    ((*SIGNATURE, "buffer"), "in7", "is input 'in0', which nothing has written"),
    ((*SIGNATURE, "onnx_dtype"), "string", "onnx_dtype is 'string'; allowed: float16"),
    ((*SIGNATURE, "onnx_dtype"), "float32", "float32 does not become int32"),
    ((*SIGNATURE, "dtype"), "int16", r"buffers\[0\] is int32 \[64\]; 'in0' is int16 \[64\]"),
    ((*SIGNATURE, "shape"), [8, 8], r"buffers\[0\] is int32 \[64\]; 'in0' is int32 \[8, 8\]"),
    ((*SIGNATURE, "shape"), [-1], r"shape\[0\] is -1; allowed: 0 to"),
    ((*SIGNATURE, "count"), "in1", "'x' has a count, which only outputs have"),
    ((*OUTPUT, "buffer"), "t9", "signature.outputs.0. is 't9', which nothing writes"),
    ((*OUTPUT, "shape"), [32], r"signature.outputs.0. is fp32 \[32\]; 'out0' is fp32 \[64\]"),
    ((*OUTPUT, "count"), "t9", "signature.outputs.0. is 't9', which nothing writes"),
    ((*OUTPUT, "count"), "t1", r"count is fp32 \[64\]; allowed: one int32"),
    (("segments", 1, "arguments"), ["t8", "t2"], r"segments\[1\] reads 't8', which nothing has written"),
    (("segments", 1, "arguments"), ["t0", "t0"], r"segments\[1\].arguments names a buffer twice"),
    (("segments", 1, "written"), ["t9"], "has 't9', which is none of its arguments"),
    (("segments", 1, "written"), [], "is input 't2', which nothing has written|reads 't2'"),
    (("segments", 1, "function_bytes"), 3, "function_bytes is 3; section host has 2 left"),
    (("segments", 1, "function_bytes"), 1, "the segments use 1 of section host, which has 2"),
    (("segments", 0, "instructions"), 8, "the segments use .* of section programs"),
    (("segments", 0, "source"), "far/x", "allowed: a file name without directories"),
    (("constants", 0, "shape"), [8, 8], r"is fp32 \[64\]; 'w0' is fp32 \[8, 8\]"),
    (("constants", 0, "name"), "w1", "which no segment reads"),
    (("kernels", 0, "nodes"), [1], r"kernels\[0\].nodes\[0\] is 1; allowed: a string"),
    (("kernels",), [{"name": "k", "nodes": []}] * 70_000, "kernels has 70000 items; allowed: at most 65536"),
    (("segments",), [TABLES["segments"][0]] * 5000, "segments has 5000 items; allowed: at most 4096"),
]


@pytest.mark.parametrize(
    ("path", "value", "message"), VALUES, ids=[f"{named(p)}-{i}" for i, (p, *_) in enumerate(VALUES)]
)
def test_values_have_limits_and_fit_each_other(path: Path, value: Any, message: str) -> None:
    with pytest.raises(CorruptError, match=message):
        read_artifact(changed(path, value), allow_host=True)


def test_sections_hold_what_the_segments_say() -> None:
    for kind, content in ((HOST, b"{} "), (HOST, b"\xff\xff"), (PROGRAMS, CONTENTS[PROGRAMS] * 2), (WEIGHTS, b"")):
        with pytest.raises(CorruptError):
            read_artifact(packed(TABLES, {kind: content}), allow_host=True)


def test_what_could_not_be_read_is_not_written() -> None:
    model = models.model(host=False)
    for wrong in (
        replace(model, outputs=(Port("z", "t9", "float32", "fp32", (64,)),)),
        replace(model, segments=model.segments[::-1]),
        replace(model, inputs=(), outputs=()),
        replace(model, inputs=model.inputs[:1]),
        replace(model, segments=(HostSegment("h", "", "", ("in0",), ()), *model.segments)),
    ):
        with pytest.raises(InvalidError, match="TW1500"):
            model_to_bytes(wrong)
    with pytest.raises(InvalidError, match="TW1507"):
        model_to_bytes(replace(model, constants={"w0": np.zeros(63, np.float32)}))


def test_what_a_constant_bool_is_on_the_chip() -> None:
    source = programs.SOURCE.replace(".input a ddr fp32 [COUNT]", ".input a ddr bool [COUNT]")
    from compiler.isa.assembler import assemble

    program = assemble(source, file="x.twasm", chip=programs.chip())
    data = to_bytes(program, programs.chip(), constants={"a": np.arange(256) % 2 == 0})
    assert read_program(data).constants["a"].tolist() == [1, 0] * 128


# ---- forgeries --------------------------------------------------------------------------------------------------


def forged(generator: random.Random, tables: Any) -> Any:
    places = [p for p in paths(tables) if p[0] != "chip" and p[:1] != ("isa_table_hash",)]
    path = generator.choice(places)
    owner, old = at(path[:-1], tables), at(path, tables)
    others = [copy.deepcopy(at(p, tables)) for p in generator.sample(places, 3)]
    owner[path[-1]] = generator.choice([*others, 0, 1, -1, 64, "t0", "in0", "", [], None, old])
    return tables


@pytest.mark.parametrize("seed", range(3))
def test_forged_models_are_refused_or_run(seed: int) -> None:
    generator, accepted = random.Random(seed), 0
    whole = model_to_bytes(models.model(host=False))
    frame = read_frame(whole)
    contents = {kind: bytes(content) for kind, content in frame.contents.items()}
    for _ in range(250):
        tables = forged(generator, canonical.loads(contents[MANIFEST]))
        try:
            model = read_artifact(container.pack(contents | {MANIFEST: canonical.dumps(tables)})).model
        except TilewrightError as error:
            assert error.exit_code in (3, 7, 8)
            continue
        accepted += 1
        run_or_refuse(model)
    assert accepted > 5


def run_or_refuse(model: CompiledModel) -> None:
    from compiler.runtime.random_inputs import random_array

    loaded = load(model)
    try:
        loaded.run({port.name: random_array(port, 1) for port in loaded.inputs}, hazards=True)
    except TilewrightError as error:
        assert error.exit_code in (2, 4, 5, 6, 8, 9, 10)
