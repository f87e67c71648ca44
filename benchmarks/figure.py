"""What a figure is: measured values beside a limit that was measured, or stated, in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.bench import Bench


@dataclass
class Figure:
    """Values of one kind, the limit they are held against, and how both came about."""

    name: str
    unit: str
    values: list[float]
    limit: float | None
    how: str
    at_least: bool = False
    beside: dict[str, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The middle one of the values."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float | None:
        """The median as a part of the limit; None where there is no limit above zero."""
        return self.median / self.limit if self.limit else None

    @property
    def met(self) -> bool | None:
        """Whether the median keeps to the limit; None where none is stated."""
        if self.limit is None:
            return None
        return self.median >= self.limit if self.at_least else self.median <= self.limit

    def to_json(self) -> dict[str, Any]:
        """The figure as a JSON object; `values` in the order they were measured."""
        return {**asdict(self), "median": self.median, "ratio": self.ratio, "met": self.met}


Measure = Callable[[Bench], Awaitable[list[Figure]]]
