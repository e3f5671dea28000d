"""What `make tvm-next` takes from the lock file, and what it says of tests that end differently."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from ci.tvm_next import LOCK, _read, all_in_order, differences, locked_version, pins


def test_everything_but_tvm_is_as_it_is_locked() -> None:
    found = pins(LOCK.read_text(encoding="utf-8"))
    assert not any(pin.startswith("apache-tvm") for pin in found)
    assert any(pin.startswith("numpy==") for pin in found)
    assert "# via" not in "\n".join(found) and "--hash" not in "\n".join(found)


def test_markers_stay_and_versions_end_where_they_end() -> None:
    lock = (
        'a==1.0 ; python_full_version < "3.12" \\\n    --hash=sha256:0\napache-tvm==9 \\\nb-c==2.post1 \\\n    --hash\n'
    )
    assert pins(lock) == ['a==1.0 ; python_full_version < "3.12"', "b-c==2.post1"]


def test_the_locked_version_is_known() -> None:
    assert locked_version().startswith("0.")


def test_a_patch_that_does_not_fit_or_is_not_needed_is_worth_a_look() -> None:
    fine = "tvm 1.0\npatch a: fits; needed\n"
    assert all_in_order(fine)
    assert not all_in_order(f"{fine}patch b: fits; not needed\n")
    assert not all_in_order(f"{fine}patch b: it was written for TVM 0.9; this is 1.0; needed\n")


def test_tests_that_end_differently_are_named() -> None:
    root = ET.fromstring(  # noqa: S314
        '<t><testcase classname="m" name="a"/><testcase classname="m" name="b"><failure/></testcase></t>'
    )
    there = dict(_read(root))
    assert there == {"m::a": "passed", "m::b": "failure"}
    assert list(differences({"m::a": "passed", "m::b": "passed", "m::c": "skipped"}, there)) == [
        "m::b: passed -> failure",
        "m::c: skipped -> not there",
    ]
