"""How close Towline is to the limit: each figure beside what the machine, SSH or Temporal itself allows.

`python -m benchmarks` measures everything, prints a table and can write JSON; see docs/benchmarks.md.
"""
