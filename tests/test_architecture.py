"""docs/architecture.md: its table of layers is what the imports are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
LAYERS = [
    re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| [^|]+ \| ((?:`\w+`(?:, )?)+) \|$", PAGE, re.MULTILINE)
]
LAYER = {folder: number for number, layer in enumerate(LAYERS) for folder in layer}
MACHINE = {"isa", "target", "sim", "artifact", "runtime"}
ON_REQUEST = {"runtime/host.py"}  # compiles code for the host, where an artifact holds some


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder if folder == "passes" else ROOT / "compiler" / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def folder_of(module: str) -> str | None:
    words = module.split(".")
    name = words[1] if words[0] == "compiler" and len(words) > 1 else words[0]
    return name if name in LAYER else None


def test_every_folder_has_a_layer_and_is_in_the_picture() -> None:
    folders = {path.parent.name for path in (ROOT / "compiler").glob("*/__init__.py")} | {"passes"}
    assert folders == set(LAYER)
    picture = PAGE[PAGE.index("```text") : PAGE.index("```\n\nHow a model")]
    assert all(re.search(rf"\b{folder}\b", picture) for folder in folders)


@pytest.mark.parametrize("folder", LAYER)
def test_a_folder_imports_from_its_layer_and_those_below_it_in_the_house(folder: str) -> None:
    wrong = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources(folder)
        for module in imports(path)
        if (other := folder_of(module)) is not None and LAYER[other] > LAYER[folder]
    }
    assert not wrong, wrong


@pytest.mark.parametrize("folder", sorted(MACHINE))
def test_the_machine_knows_neither_tvm_nor_onnx(folder: str) -> None:
    wrong = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources(folder)
        if path.relative_to(ROOT / "compiler").as_posix() not in ON_REQUEST
        for module in imports(path)
        if module.split(".")[0] in ("tvm", "tvm_ffi", "onnx")
    }
    assert not wrong, wrong
