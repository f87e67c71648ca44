"""The exact account of a task's attempts: pure functions on `contract.Ledger`."""

from __future__ import annotations

from dataclasses import replace

from towline.contract import AttemptRecord, AttemptStatus, Cause, Ledger

MOST_RECORDS = 25
"""Records that one activity call may gather before it reports them to the workflow: keeps heartbeats below 8 KiB."""

_SPENDS_BUDGET = frozenset({Cause.USER, Cause.SETUP})


def record(ledger: Ledger, ended: AttemptRecord) -> Ledger:
    """The account with one more ended attempt; an attempt already in it changes nothing."""
    if ended.attempt <= ledger.last_attempt:
        return ledger
    spent = ended.status in (AttemptStatus.FAILED, AttemptStatus.FAILED_SETUP) and ended.cause in _SPENDS_BUDGET
    failures = ledger.failures + (1 if spent else 0)
    return Ledger(ended.attempt, failures, [*ledger.records, ended])


def merge(ours: Ledger, theirs: Ledger | None) -> Ledger:
    """Two accounts of the same task as one. Each is a prefix of the truth, so the later attempts of either count."""
    for ended in theirs.records if theirs else []:
        ours = record(ours, ended)
    if theirs and theirs.last_attempt > ours.last_attempt:
        return replace(theirs, records=ours.records)
    return ours


def without_records(ledger: Ledger) -> Ledger:
    """The account as the next call's starting point."""
    return replace(ledger, records=[])


def is_full(ledger: Ledger) -> bool:
    """Whether the records should be reported to the workflow before more are added."""
    return len(ledger.records) >= MOST_RECORDS
