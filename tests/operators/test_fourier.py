"""Fourier transforms against numpy's, in float64, and against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import InvalidError, LimitError
from tests.operators import evaluate as evaluation
from tests.operators.oracle import onnxruntime_node

RNG = np.random.default_rng(17)
_THEIRS = 5e-5  # onnxruntime's transforms are off by 1e-5 where numpy's, in float64, say zero


def evaluate(name: str, *inputs: Any, **attributes: Any) -> np.ndarray:
    known = (1, 2) if name == "DFT" else (1, 3)
    result: np.ndarray = evaluation.evaluate(name, *inputs, constants=known, **attributes)
    return result


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("axis", [-2, 1, 0])
@pytest.mark.parametrize(
    ("parts", "attributes"), [(1, {}), (1, {"onesided": 1}), (1, {"inverse": 1}), (2, {}), (2, {"inverse": 1})]
)
def test_dft(parts: int, attributes: dict[str, Any], axis: int) -> None:
    x = noise(3, 10, 7, parts)
    expected = onnxruntime_node("DFT", [x, None, np.array(axis)], opset=20, **attributes)[0]
    np.testing.assert_allclose(evaluate("DFT", x, None, np.array(axis), **attributes), expected, atol=_THEIRS)


@pytest.mark.parametrize("length", [6, 16])
def test_dft_cuts_and_pads(length: int) -> None:
    x = noise(2, 10, 1)
    spectra = np.fft.fft(x[..., 0], length)
    result = evaluate("DFT", x, np.array(length))
    np.testing.assert_allclose(result, np.stack([spectra.real, spectra.imag], -1), atol=1e-5)


@pytest.mark.parametrize("length", [None, 8, 9])
def test_dft_inverse_of_one_side_is_real(length: int | None) -> None:
    x = noise(2, 5, 2)
    expected = np.fft.irfft(x[..., 0] + 1j * x[..., 1], length)[..., None]
    given = None if length is None else np.array(length)
    np.testing.assert_allclose(evaluate("DFT", x, given, inverse=1, onesided=1), expected, atol=1e-5)


def test_dft_refuses_what_is_no_row_of_numbers() -> None:
    with pytest.raises(InvalidError, match="must not be the last"):
        evaluate("DFT", noise(2, 4, 1), None, np.array(-1))
    with pytest.raises(InvalidError, match="the last axis must be of"):
        evaluate("DFT", noise(2, 4, 3))
    with pytest.raises(LimitError, match="elements in the matrix"):
        evaluate("DFT", noise(1, 8192, 1))


@pytest.mark.parametrize(("length", "step"), [(16, 4), (12, 8), (15, 4), (16, 16), (10, 13)])
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(length: int, step: int, onesided: int) -> None:
    signal, window = noise(2, 61, 1), np.hanning(length).astype(np.float32)
    given = [signal, np.array(step), window]
    expected = onnxruntime_node("STFT", given, onesided=onesided)[0]
    np.testing.assert_allclose(evaluate("STFT", *given, onesided=onesided), expected, atol=_THEIRS)


def test_stft_of_complex_numbers_without_a_window() -> None:
    signal = noise(1, 40, 2)
    frames = [np.fft.fft(signal[0, at : at + 8, 0] + 1j * signal[0, at : at + 8, 1]) for at in range(0, 33, 4)]
    result = evaluate("STFT", signal, np.array(4), None, np.array(8), onesided=0)
    np.testing.assert_allclose(result, np.stack([np.real(frames), np.imag(frames)], -1)[None], atol=1e-5)


def test_stft_of_samples_without_an_axis_of_parts() -> None:
    given = [noise(2, 61), np.array(4), np.hanning(16).astype(np.float32)]
    np.testing.assert_allclose(evaluate("STFT", *given), onnxruntime_node("STFT", given)[0], atol=_THEIRS)
