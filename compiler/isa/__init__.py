"""The instruction set: one table, and everything that is derived from it."""
