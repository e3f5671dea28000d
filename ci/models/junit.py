"""The outcomes as JUnit XML, which CI systems show: a suite per model, a test case per case."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ci.models.outcome import Outcome, wrong

_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml(outcomes: Sequence[Outcome]) -> str:
    root = Element("testsuites", _counts(outcomes))
    for name in dict.fromkeys(each.case.model for each in outcomes):
        mine = [each for each in outcomes if each.case.model == name]
        suite = SubElement(root, "testsuite", {"name": name, **_counts(mine)})
        for each in mine:
            seconds = f"{each.total_seconds:.3f}"
            case = SubElement(suite, "testcase", {"classname": name, "name": each.case.variant, "time": seconds})
            if each.expected:
                SubElement(case, "skipped", {"message": _clean(each.expected)})
            elif each.error:
                first = each.error.strip().splitlines()[0] if each.error.strip() else "failed"
                failure = SubElement(case, "failure", {"type": each.failed or "end", "message": _clean(first)})
                failure.text = _clean(each.error)
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _counts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    return {
        "tests": str(len(outcomes)),
        "failures": str(len(wrong(outcomes))),
        "skipped": str(sum(bool(each.expected) for each in outcomes)),
        "time": f"{sum(each.total_seconds for each in outcomes):.3f}",
    }


def _clean(text: str) -> str:
    """Without what XML cannot hold; messages quote names of models, which may hold anything."""
    return _NOT_IN_XML.sub("?", text)
