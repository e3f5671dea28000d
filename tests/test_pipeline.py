"""The list of passes: its order is checked by facts, and a pass, its file and its tests derive from each other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

from compiler import pipeline
from compiler.errors import UsageError
from compiler.target import load_chip
from passes.base import Pass

ROOT = Path(__file__).parents[1]
TINY = load_chip("tiny")
ALL = {one.name: one for one in (*pipeline.graph_passes(), *pipeline.kernel_passes())}


@dataclass(frozen=True)
class Append(Pass):
    """Appends a letter to a text; with none it changes nothing."""

    name: ClassVar[str] = "append"
    letter: str = ""

    def run(self, subject: Any, chip: Any) -> Any:
        return subject + self.letter if self.letter else subject


@dataclass(frozen=True)
class Other(Append):
    name: ClassVar[str] = "other"


@pytest.mark.parametrize("passes", [pipeline.graph_passes, pipeline.kernel_passes])
def test_every_pass_stands_where_what_it_needs_holds(passes: Any) -> None:
    assert [one for one, _ in pipeline.facts(passes())] == list(passes())


def test_kernels_end_in_instruction_form() -> None:
    *_, (last, holding) = pipeline.facts(pipeline.kernel_passes())
    assert "instruction-form" in (holding - last.breaks) | last.establishes


def test_every_fact_that_is_needed_or_broken_is_established_somewhere() -> None:
    established = {fact for one in ALL.values() for fact in one.establishes}
    named = {fact for one in ALL.values() for fact in one.requires | one.breaks}
    assert named <= established, "a misspelt fact never holds"


def test_a_pass_out_of_order_names_the_pass_that_would_have_to_come_before_it() -> None:
    for one in pipeline.kernel_passes():
        for fact in one.requires:
            makers = [other for other in pipeline.kernel_passes() if fact in other.establishes]
            with pytest.raises(pipeline.OutOfOrder) as caught:
                list(pipeline.facts([one, *makers]))
            said = caught.value.problems[0].message
            assert said.startswith(f"{one.name} needs ")
            assert any(maker.name in said for maker in makers) or "no pass establishes" in said


def test_what_a_pass_breaks_has_to_be_established_again() -> None:
    passes = list(pipeline.kernel_passes())
    emission = next(at for at, one in enumerate(passes) if one.name == "emit-instructions")
    with pytest.raises(pipeline.OutOfOrder, match="emit-instructions needs"):
        list(pipeline.facts([*passes[: emission + 1], passes[emission]]))


@pytest.mark.parametrize("name", ALL)
def test_file_class_name_and_test_derive_from_each_other(name: str) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    words, kind = name.split("-"), type(ALL[name])
    assert kind.__name__.lower() == "".join(words)
    assert re.fullmatch(r"([A-Z][a-zA-Z]*)+", kind.__name__)
    assert kind.__module__.rpartition(".")[2] == "_".join(words)
    folder = ROOT.joinpath("tests", *kind.__module__.split(".")[:-1])
    assert (folder / f"test_{'_'.join(words)}.py").is_file()
    assert kind.__doc__ and kind.__doc__ != Pass.__doc__


def test_every_file_of_passes_holds_a_pass_of_the_pipeline() -> None:
    files = {path for path in (ROOT / "passes").glob("*/*.py") if path.stem != "__init__"}
    modules = {ROOT.joinpath(*type(one).__module__.split(".")).with_suffix(".py") for one in ALL.values()}
    assert files == modules


def test_passes_run_in_order_and_watchers_see_before_and_after() -> None:
    seen: list[tuple[str, ...]] = []
    observer = pipeline.Observer([lambda *call: seen.append(call)], kernel="k")
    assert pipeline.run([Append("b"), Other(), Append("c")], "a", TINY, observer) == "abc"
    assert seen == [("k", "append", "a", "ab"), ("k", "other", "ab", "ab"), ("k", "append", "ab", "abc")]


def test_seconds_of_a_pass_add_up_over_its_runs() -> None:
    observer = pipeline.Observer()
    pipeline.run([Append("b"), Other(), Append("c")], "a", TINY, observer)
    first = observer.seconds["append"]
    pipeline.run([Append("b")], "a", TINY, observer)
    assert list(observer.seconds) == ["append", "other"]
    assert 0 < first < observer.seconds["append"]


def test_a_stop_carries_what_the_pass_made_after_everybody_saw_it() -> None:
    seen: list[str] = []
    observer = pipeline.Observer([lambda kernel, name, before, after: seen.append(after)], stop_after="other")
    with pytest.raises(pipeline.Stopped) as stopped:
        pipeline.run([Append("b"), Other("c"), Append("d")], "a", TINY, observer)
    assert (stopped.value.name, stopped.value.subject, seen) == ("other", "abc", ["ab", "abc"])


def test_passes_can_be_left_out() -> None:
    observer = pipeline.Observer(without=frozenset({"append"}))
    assert pipeline.run([Append("b"), Other("c"), Append("d")], "a", TINY, observer) == "ac"
    assert list(observer.seconds) == ["other"]


def test_an_unknown_pass_is_refused_with_the_list() -> None:
    pipeline.check_name("loop-fission")
    with pytest.raises(UsageError) as caught:
        pipeline.check_name("loop_fission")
    (problem,) = caught.value.problems
    assert problem.code == "TW0020"
    assert problem.hint.removeprefix("passes: ").split(", ") == list(ALL)


def test_the_list_is_imported_when_something_is_compiled() -> None:
    source = Path(str(import_module("compiler.pipeline").__file__)).read_text(encoding="utf-8")
    assert not re.search(r"^from passes|^import tvm", source, re.MULTILINE)
