"""The README's promises that code can check."""

import re
from pathlib import Path

from compiler.cli.main import VERBS
from compiler.errors import EXIT_CODES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, f"the README has no section {title!r}"
    return found[1]


def test_exit_codes_are_the_ones_the_command_uses() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", section("Exit codes"), re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == EXIT_CODES


def test_every_verb_has_a_section_with_an_example() -> None:
    examples = re.findall(r"^### `(\w+)`: .+\n```\ntilewright (\w+)", section("The command"), re.MULTILINE)
    assert examples == [(verb, verb) for verb in VERBS]


def test_every_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for text in (README, (ROOT / "ci/README.md").read_text(encoding="utf-8")):
        named = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE))
        assert named and named <= targets


def test_links_lead_somewhere() -> None:
    to_be_generated = {"docs/isa.md"}  # by `make isa-docs`
    for page in ("README.md", "SECURITY.md", "CHANGELOG.md", "ci/README.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        links = set(re.findall(r"\]\((?!https?:)([^)#]+)", text)) - to_be_generated
        assert all((ROOT / page).parent.joinpath(link).exists() for link in links), (page, links)
