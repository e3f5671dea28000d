"""Arrays from .npy files: exactly what a buffer holds, or an error that says what differs."""

from __future__ import annotations

import io
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.artifact import arrays
from compiler.errors import InputError, InvalidError, TilewrightError
from compiler.isa.dtypes import DTYPES
from compiler.isa.program import Buffer

MAGIC = b"\x93NUMPY"


def buffer(dtype: str = "fp32", shape: tuple[int, ...] = (3, 4)) -> Buffer:
    return Buffer("x", "ddr", 0, 1 << 20, dtype, shape, "input")


def stored(array: np.ndarray, path: Path) -> Path:
    np.save(path, array)
    return path


def with_header(header: str, data: bytes = bytes(48), version: int = 1) -> bytes:
    text = header.encode("latin1") + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return MAGIC + bytes([version, 0]) + length + text + data


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_type_comes_back(dtype: str, tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 2, (3, 4)).astype(DTYPES[dtype].numpy)
    path = tmp_path / "x.npy"
    arrays.write(path, values)
    back = arrays.read(path, buffer(dtype))
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back.view(np.uint8), values.view(np.uint8))


def test_bf16_is_written_as_its_bits_and_read_from_either_spelling(tmp_path: Path) -> None:
    values = np.array([1.0, -2.5, np.inf], ml_dtypes.bfloat16)
    arrays.write(tmp_path / "bits.npy", values)
    assert np.load(tmp_path / "bits.npy").dtype == np.uint16
    np.save(tmp_path / "raw.npy", values.view("V2"))
    for name in ("bits.npy", "raw.npy"):
        np.testing.assert_array_equal(arrays.read(tmp_path / name, buffer("bf16", (3,))), values)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3, 4), (1, 1, 1, 1, 1, 7)])
def test_any_rank_and_order(shape: tuple[int, ...], tmp_path: Path) -> None:
    values = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    for order in ("C", "F"):
        path = stored(np.asarray(values, order=order), tmp_path / "x.npy")
        np.testing.assert_array_equal(arrays.read(path, buffer(shape=shape)), values)


def test_bool_is_taken_as_bytes(tmp_path: Path) -> None:
    path = stored(np.array([True, False]), tmp_path / "x.npy")
    assert arrays.read(path, buffer("bool", (2,))).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 4)), "input x has type fp32; the array has float64"),
        (np.zeros((3, 4), ">f4"), "input x has type fp32; the array has >f4"),
        (np.zeros((3, 4), np.int32), "input x has type fp32; the array has int32"),
        (np.zeros((3, 4), "f4,f4"), "input x has type fp32; the array has"),
        (np.zeros((4, 3), np.float32), r"input x has shape \[3, 4\]; the array has \[4, 3\]"),
        (np.zeros(12, np.float32), r"input x has shape \[3, 4\]; the array has \[12\]"),
        (np.zeros((1,) * 30, np.float32), r"the array has \[1, 1, 1, 1, 1, 1, 1, 1, ...\]"),
    ],
)
def test_other_types_and_shapes_are_named(array: np.ndarray, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=message):
        arrays.read(stored(array, tmp_path / "x.npy"), buffer())


def test_bf16_says_how_it_is_stored(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="bf16 is stored as uint16"):
        arrays.read(stored(np.zeros((3, 4), np.float32), tmp_path / "x.npy"), buffer("bf16"))


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x93", MAGIC, MAGIC + b"\1\0", MAGIC + b"\1\0\xff\xff", b"PK\3\4" + bytes(100), pickle.dumps([1]),
        with_header(GOOD, bytes(47)), with_header(GOOD, bytes(49)), with_header(GOOD, b""),
        with_header(GOOD.replace("4)", "4),")), with_header(GOOD.replace("False", "0")), with_header(GOOD[:-1]),
        with_header(GOOD.replace("(3, 4)", "(-3, -4)")), with_header(GOOD.replace("(3, 4)", "(3.0, 4)")),
        with_header(GOOD.replace("(3, 4)", "(True, 12)")), with_header(GOOD.replace("(3, 4)", f"({2**70},)")),
        with_header(GOOD.replace("(3, 4)", "3")), with_header(GOOD.replace("'shape'", "'Shape'")),
        with_header(GOOD.replace("<f4", "|O")), with_header(GOOD.replace("<f4", "O")), with_header("__import__('os')"),
        with_header(GOOD.replace("'<f4'", "[('a', '|O')]")), with_header(GOOD.replace("'<f4'", "1")),
        with_header(GOOD.replace("<f4", "<f99999999999999999999")), with_header(GOOD.replace("<f4", "nonsense")),
        with_header("(" * 3000), with_header("-" * 3000 + "1"), with_header("[" * 90 + "]" * 90),
        with_header("'" * 999), with_header(GOOD + " " * 60_000), with_header(GOOD, version=3),
        MAGIC + b"\2\0\xff\xff\xff\xff" + bytes(100),
        with_header("\xff\xfe"), with_header("{" + "'a':1," * 600 + "}"), with_header("1if"), with_header("\\\n1"),
    ],
    ids=range(37),
)  # fmt: skip
def test_hostile_files_end_in_an_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises((InputError, InvalidError)) as caught:
        arrays.read(path, buffer())
    assert caught.value.problems[0].place


def test_random_damage_ends_in_an_error_or_an_array(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros((3, 4), np.float32))
    generator, path = random.Random(5), tmp_path / "x.npy"
    for _ in range(2000):
        content = bytearray(file.getvalue())
        for _ in range(generator.choice([1, 2, 8])):
            content[generator.randrange(128)] = generator.randrange(256)
        path.write_bytes(content[: generator.choice([len(content), generator.randrange(len(content))])])
        try:
            array = arrays.read(path, buffer())
        except TilewrightError as error:
            assert error.exit_code in (3, 4)
        else:
            assert array.shape == (3, 4)


def test_a_promise_of_terabytes_allocates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(with_header(GOOD.replace("(3, 4)", "(1099511627776,)")))

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("data was read")

    monkeypatch.setattr(arrays.np, "frombuffer", refuse)
    with pytest.raises(InvalidError, match="the array has"):
        arrays.read(path, buffer())
    with pytest.raises(InputError, match="its header promises 4398046511"):
        arrays.read(path, buffer(shape=(1 << 40,)))


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read an array: No such file"):
        arrays.read(tmp_path / "none.npy", buffer())
    with pytest.raises(InputError, match="an array must be a regular file"):
        arrays.read(tmp_path, buffer())
