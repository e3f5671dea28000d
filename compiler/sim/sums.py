"""The results of the cubes, formed late and side by side: between two looks at them they have nothing to do with each
other, whatever core they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from compiler.isa.layout import Recipe, Sum
from compiler.sim.tape import Tape

# Products of all cores that may wait to be formed: enough to keep workers busy, few enough to find their factors in
# the caches.
MAX_PENDING = 64
MAX_WORKERS = 8
# Multiplications of a product, on average, from which workers gain. Below it they spend more time on turns at the
# interpreter than they save: with two, a run of ResNet-50 takes half as long again as with one.
WORTH_SHARING = 3 << 17

# Bytes that a sum will be made of: whose they are, the first, and the one behind the last.
Borrowed = tuple[object, int, int]


class Workers:
    """Threads that do the same to many things that have nothing to do with each other."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._threads = ThreadPoolExecutor(MAX_WORKERS)

    def each(self, function: Callable[[Any], Any], things: list[Any]) -> None:
        count = max(1, min(self.count, len(things)))
        others = [self._threads.submit(_each, function, things[start::count]) for start in range(1, count)]
        _each(function, things[::count])
        for other in others:
            other.result()


def _each(function: Callable[[Any], Any], things: list[Any]) -> None:
    with np.errstate(all="ignore"):
        for thing in things:
            function(thing)


class Sums:
    """The results of all cubes that are still to be formed. They have nothing to do with each other, so workers form
    them side by side; what they form does not depend on how many workers there are."""

    def __init__(self, pool: Workers, tape: Tape | None) -> None:
        self._pool, self._tape = pool, tape
        self._waiting: list[Sum] = []
        self._borrowed: list[Borrowed] = []

    def add(self, total: Sum, borrowed: Iterable[Borrowed] = ()) -> None:
        """A sum that may wait until somebody looks at it or gives back what it borrows."""
        total.when_wanted = self.form_all
        self._borrowed += borrowed
        self._waiting.append(total)
        if len(self._waiting) >= MAX_PENDING:
            self.form_all(total)

    def give_back(self, lender: object, start: int, end: int) -> None:
        """No sum may wait any longer that needs these bytes."""
        if any(who is lender and first < end and start < last for who, first, last in self._borrowed):
            self._form_waiting()

    def form_all(self, _: Sum) -> None:
        self._form_waiting()

    def _form_waiting(self) -> None:
        # A sum that another one goes on from is formed on the way.
        last = [each for each in self._waiting if not each.continued and not each.formed]
        self._waiting.clear()
        self._borrowed.clear()
        recipes = [each.recipe() for each in last]
        products = [product for recipe in recipes for product in recipe.products]
        worth_sharing = sum(each.m * each.n * each.k for each in products) >= WORTH_SHARING * len(products)
        for_each = self._pool.each if worth_sharing else _each
        for_each(Sum.form, last)
        if self._tape is not None:
            again = [_Again(recipe, each.form()) for recipe, each in zip(recipes, last, strict=True)]
            self._tape.add(partial(for_each, _Again.form, again), sum(each.result.size for each in again))


class _Again(NamedTuple):
    """A sum to be formed anew, where its users look for it."""

    recipe: Recipe
    result: np.ndarray

    def form(self) -> None:
        np.copyto(self.result, self.recipe.form())
