"""The account of attempts: what is merged, in which order, and that nothing is counted twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from towline.contract import AttemptRecord, AttemptStatus, Cause, Ledger, RunTaskFailure, from_json, to_json
from towline.ledger import merge, record, without_records

CAUSES = st.lists(st.sampled_from([Cause.USER, Cause.SETUP, Cause.NODE_LOST, Cause.REBOOT]), max_size=12)


def _truth(causes: list[str]) -> Ledger:
    ledger = Ledger()
    for number, cause in enumerate(causes, start=1):
        status = AttemptStatus.FAILED if cause in (Cause.USER, Cause.SETUP) else AttemptStatus.NODE_LOST
        ledger = record(ledger, AttemptRecord(number, status, 1, cause))
    return ledger


def _prefix(truth: Ledger, length: int) -> Ledger:
    ledger = Ledger()
    for each in truth.records[:length]:
        ledger = record(ledger, each)
    return ledger


@given(CAUSES, st.integers(0, 12), st.integers(0, 12))
def test_two_accounts_of_one_task_merge_to_the_longer_whatever_the_order(causes: list[str], a: int, b: int) -> None:
    truth = _truth(causes)
    left, right = _prefix(truth, a), _prefix(truth, b)
    longer = _prefix(truth, max(a, b))
    assert merge(left, right) == merge(right, left) == longer


@given(CAUSES, st.integers(0, 12))
def test_an_account_that_starts_at_a_call_continues_the_one_before_it(causes: list[str], cut: int) -> None:
    truth = _truth(causes)
    before = _prefix(truth, cut)
    call = without_records(before)
    for each in truth.records[cut:]:
        call = record(call, each)
    assert merge(before, call) == truth


@given(CAUSES)
def test_an_account_survives_the_way_through_json(causes: list[str]) -> None:
    failure = RunTaskFailure(_truth(causes), ["n1"])
    assert from_json(RunTaskFailure, to_json(failure)) == failure


def test_a_record_of_an_attempt_already_counted_changes_nothing() -> None:
    ledger = _truth([Cause.USER])
    assert record(ledger, AttemptRecord(1, AttemptStatus.FAILED, 1, Cause.USER)) == ledger


def test_a_success_is_no_failure() -> None:
    assert record(Ledger(), AttemptRecord(1, AttemptStatus.SUCCEEDED, 0, Cause.USER)).failures == 0


def test_unknown_fields_of_a_later_version_are_ignored_and_nonsense_is_no_message() -> None:
    message = {**to_json(RunTaskFailure(_truth([Cause.USER]))), "added_later": 1}
    assert from_json(RunTaskFailure, message) == RunTaskFailure(_truth([Cause.USER]))
    assert from_json(RunTaskFailure, "text") is None
    assert from_json(RunTaskFailure, None) is None
