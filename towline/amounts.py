"""The small notations of `resources`: `4+`, `16GB+`, `A100:8`, `8080-8090`. Each is checked and brought into one form,
which stays as it is when it is read again."""

from __future__ import annotations

import math
import re
from typing import Any

from towline.problems import kind_of, quote

_AMOUNT = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([a-zA-Z]*)\s*(\+?)\s*")
_GIB = {"": 1.0, **dict.fromkeys(("g", "gb", "gi", "gib"), 1.0)}
_GIB |= dict.fromkeys(("m", "mb", "mi", "mib"), 1 / 1024) | dict.fromkeys(("t", "tb", "ti", "tib"), 1024.0)
_ACCELERATOR = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9_.-]{0,63})\s*(?::\s*([0-9]{1,6}(?:\.[0-9]{1,6})?))?\s*")
_PORTS = re.compile(r"\s*([0-9]{1,5})\s*(?:-\s*([0-9]{1,5})\s*)?")
_LARGEST = 1_000_000
_SMALLEST = 0.001
_MOST_PORTS = 1000


def cpus(value: Any) -> Any:
    """`2`, `4.0`, `'2+'` as `2`, `4`, `2+`."""
    amount, unit, more = _parts(value, "'4+'")
    if unit:
        raise ValueError(f"must be a number or a string such as '4+', not {quote(value)}")
    return _shown(amount) + more


def memory(value: Any) -> Any:
    """`32`, `'16+'`, `'16GB+'`, `'512MB'` as GiB: `32`, `16+`, `16+`, `0.5`."""
    amount, unit, more = _parts(value, "'16+' or '16GB+'")
    return _shown(amount * _factor(unit, value)) + more


def disk_size(value: Any) -> Any:
    """`100`, `'100GB'`, `'1TB'` as whole GiB."""
    amount, unit, more = _parts(value, "'100GB'")
    size = amount * _factor(unit, value)
    if more or size != int(size) or size < 1:
        raise ValueError(f"must be a whole number of GB such as 100 or '100GB', not {quote(value)}")
    return _shown(size)


def _parts(value: Any, example: str) -> tuple[float, str, str]:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a number or a string such as {example}, not {kind_of(value)}")
    if isinstance(value, str):
        found = _AMOUNT.fullmatch(value)
        if not found:
            raise ValueError(f"must be a number or a string such as {example}, not {quote(value)}")
        return _in_range(float(found[1])), found[2].lower(), found[3]
    return _in_range(value), "", ""


def _in_range(value: float) -> float:
    if not _SMALLEST <= value <= _LARGEST:  # also false for not-a-number
        raise ValueError(f"must be more than 0 and at most {_LARGEST}, not {quote(value)}")
    return float(value)


def _factor(unit: str, value: Any) -> float:
    if unit not in _GIB:
        raise ValueError(f"must be in MB, GB or TB, not {quote(value)}")
    return _GIB[unit]


def _shown(value: float) -> str:
    return f"{max(value, _SMALLEST):.3f}".rstrip("0").rstrip(".")


def accelerators(value: Any) -> Any:
    """`A100`, `A100:8`, `{A100: 8}`, or a list of these, as `["A100:8"]`; several are alternatives."""
    if isinstance(value, dict):
        items = [name if count is None else f"{name}:{_count(name, count)}" for name, count in value.items()]
        return list(dict.fromkeys(map(_accelerator, items)))
    found: list[str] = []
    for item in value if isinstance(value, list) else [value]:
        found += accelerators(item) if isinstance(item, dict) else [_accelerator(item)]
    return list(dict.fromkeys(found))


def _count(name: str, count: Any) -> str:
    if isinstance(count, bool) or not isinstance(count, int | float):
        raise ValueError(f"must say how many, as {{A100: 8}}, not {kind_of(count)}, for {quote(name)}")
    return _shown(_in_range(count))


def _accelerator(item: Any) -> str:
    found = _ACCELERATOR.fullmatch(item) if isinstance(item, str) else None
    if not found:
        raise ValueError(f"must be such as A100:8 or {{A100: 8}}, not {quote(item)}")
    if found[1].lower().startswith("tpu"):
        raise ValueError(f"{quote(found[1])}: TPUs are not supported in this version; ask for GPUs or none")
    return f"{found[1]}:{_shown(_in_range(float(found[2] or 1)))}"


def accelerator_and_count(text: str) -> tuple[str, float]:
    """The two parts of `A100:8`."""
    name, _, count = text.rpartition(":")
    return name, float(count)


def ports(value: Any) -> Any:
    """`8080`, `'8080-8090'`, or a list of these, as a list of strings."""
    items = value if isinstance(value, list) else [value]
    if len(items) > _MOST_PORTS:
        raise ValueError(f"has at most {_MOST_PORTS} entries, not {len(items)}; write ranges such as 8080-8090")
    return [_port(item) for item in items]


def _port(item: Any) -> str:
    text = quote(item) if isinstance(item, int) and not isinstance(item, bool) else item
    found = _PORTS.fullmatch(text) if isinstance(text, str) else None
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= low <= high <= 65535:
        raise ValueError(f"must be a port from 1 to 65535, a range such as 8080-8090, or a list, not {quote(item)}")
    return str(low) if low == high else f"{low}-{high}"


def hourly_cost(value: Any) -> Any:
    """US dollars."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number of US dollars per hour, not {kind_of(value)}")
    if not 0 < value <= _LARGEST or not math.isfinite(value):
        raise ValueError(f"must be more than 0 and at most {_LARGEST} US dollars per hour, not {quote(value)}")
    return float(value)
