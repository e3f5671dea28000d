"""The figures by which rankings are judged."""

from __future__ import annotations

import numpy as np
import pytest

from ci.ranking_quality import Quality, means, report, spearman
from compiler.target import load_chip


def test_spearman_sees_only_the_order() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(a, np.exp(a)) == pytest.approx(1)
    assert spearman(a, -a) == pytest.approx(-1)
    assert spearman(np.array([1.0, 2.0, 2.0, 3.0]), np.array([10, 20, 20, 30])) == pytest.approx(1)
    assert spearman(a, np.full(4, 7)) == 1.0
    assert spearman(np.full(4, 7.0), a) == 0.0


def test_the_last_line_has_the_means() -> None:
    picks = [{"analytical": share, "learned": 0.0, "search": share / 2} for share in (0.1, 0.3)]
    found = [Quality("k", 9, 5, 100, each, {"analytical": 0.8, "learned": 1.0}) for each in picks]
    assert means(found)["pick"]["search"] == pytest.approx(0.1)
    assert list(report(found, load_chip("tw1")))[-1] == "| mean | | | | +20.0% | +0.0% | +10.0% | 0.80 | 1.00 |"
