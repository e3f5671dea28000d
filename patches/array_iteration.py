"""Loops over TVM's arrays, which ask for the length and check the index anew for each element.

Passes and searches read arrays all the time: hundreds of thousands of elements while a network is compiled. An array
never changes, so that all of it can be read at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi

from patches import Patch, original

UPSTREAM = """
--- a/python/tvm_ffi/container.py
+++ b/python/tvm_ffi/container.py
@@ class Array(core.CContainerBase, core.Object, Sequence[T]):
-        length = len(self)
-        for i in range(length):
-            yield self[i]
+        return iter([_ffi_api.ArrayGetItem(self, i) for i in range(len(self))])
"""

NAME = "tvm_ffi:Array.__iter__"
_ITEM: Any = tvm_ffi.get_global_func("ffi.ArrayGetItem")
_LENGTH: Any = tvm_ffi.get_global_func("ffi.ArraySize")


def iterate(array: Any) -> Iterator[Any]:
    return iter([_ITEM(array, index) for index in range(_LENGTH(array))])


def shows_fault() -> bool:
    class Watched(tvm_ffi.Array[Any]):
        asked = 0

        def __getitem__(self, index: Any) -> Any:
            Watched.asked += 1
            return super().__getitem__(index)

    list(original(NAME)(Watched([1, 2, 3])))
    return Watched.asked == 3


PATCH = Patch(
    why="a loop over an array takes nearly three times as long as it has to",
    upstream=UPSTREAM,
    replaces=(NAME,),
    fits={"0.27.0.post1": "602c0e752ab160a6c991ecba543f4d35c2a83ccaa372f45d07f070bd44a6febe"},
    replacement=iterate,
    shows_fault=shows_fault,
)
