"""How long to wait before trying again, so that what fails at once and for ever does not spin. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile

from towline.contract import AttemptRecord, Cause

FAST_END_S = 60.0
"""An attempt that the infrastructure ended sooner than this counts as a fast end."""

LONGEST_RECOVERY_PAUSE_S = 300.0
LONGEST_INTERRUPTION_PAUSE_S = 60.0

_INFRASTRUCTURE = frozenset({Cause.NODE_LOST, Cause.PREEMPTED, Cause.REBOOT, Cause.EXIT_CODE_RULE})


def recovery_pause_s(records: Sequence[AttemptRecord]) -> float:
    """Seconds before the next provision: none after the first fast end in a row, then 2, 4, 8 ... up to 5 minutes."""
    fast = sum(1 for _ in takewhile(_ended_fast, reversed(records)))
    return min(2.0 ** (fast - 1), LONGEST_RECOVERY_PAUSE_S) if fast > 1 else 0.0


def interruption_pause_s(consecutive: int) -> float:
    """Seconds before `run_task` is called again after it ended without news of an attempt `consecutive` times."""
    return min(2.0 ** (consecutive - 1), LONGEST_INTERRUPTION_PAUSE_S) if consecutive > 1 else 0.0


def _ended_fast(record: AttemptRecord) -> bool:
    if record.cause not in _INFRASTRUCTURE:
        return False
    if record.started_at is None or record.ended_at is None:
        return True
    lasted = datetime.fromisoformat(record.ended_at) - datetime.fromisoformat(record.started_at)
    return lasted.total_seconds() < FAST_END_S
