"""A record of what a run did to its numbers, to do the same to others."""

from __future__ import annotations

from collections.abc import Callable

from compiler.isa.execute import reproducible


class Tape:
    """The steps of one run that touch numbers, without the bookkeeping that found them.

    What a program without scalar loads does to which bytes depends on its inputs in nothing. Played again on the same
    memories with other inputs, the steps refresh the same arrays in the same order. A program that reads bytes that it
    did not write before must find them as it found them first.
    """

    # Of the arrays that are kept alive for the next time: 2 GiB. ResNet-50 at 224 x 224 has some 2**28.7.
    MAX_ELEMENTS = 1 << 29

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []
        self._elements = 0

    @property
    def complete(self) -> bool:
        return self._elements <= self.MAX_ELEMENTS

    def add(self, step: Callable[[], None], elements: int = 0) -> None:
        self._elements += elements
        if self.complete:
            self._steps.append(step)
        else:
            self._steps.clear()

    def play(self) -> None:
        with reproducible():
            for step in self._steps:
                step()
