"""Chips nobody ships: what the engines agree on depends on no chip's numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import compiler.target
from ci.agreement import check_runs
from compiler.isa.generator import random_program
from compiler.target.chip_file import parse_chip

CHIPS = Path(compiler.target.__file__).parent / "chips"
# chip to start from, and what is different
VARIANTS: dict[str, tuple[str, dict[str, int]]] = {
    "one of everything": ("tw2", {"cores_per_cluster": 1, "event_ids": 1, "depth": 1}),
    "odd counts": ("tw1", {"clusters": 3, "cores_per_cluster": 5, "event_ids": 3, "cross_flag_max": 1}),
    "wide vectors": ("tiny", {"bytes_per_cycle": 512, "head_cycles": 0, "tail_cycles": 0, "clusters": 2}),
    "starved": ("tiny", {"ddr_bytes_per_kilocycle": 7, "fp16_macs_per_cycle": 1, "depth": 2}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_engines_agree_on_a_chip_with(name: str) -> None:
    base, changes = VARIANTS[name]
    text = (CHIPS / f"{base}.toml").read_text(encoding="utf-8")
    for key, value in changes.items():
        text, found = re.subn(rf"(?m)^{key} = \d+", f"{key} = {value}", text)
        assert found == 1, key
    chip = parse_chip(text, name)
    for seed in range(0, 210, 7):
        program, inputs = random_program(seed, chip)[:2]
        if not any(instr.row.kind == "trap" for instr in program.instrs):
            check_runs(program, chip, inputs, seed)
