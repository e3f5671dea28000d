"""The ``tilewright`` command: one file per verb, and ``main`` that finds it."""
