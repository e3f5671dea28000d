"""How good compiled programs are: simulated cycles beside lower bounds, hand-written programs, and each step left out.

`python -m ci.performance --help` lists the parts; each prints a table and goes into `docs/performance.md`.
"""
