from __future__ import annotations

import pytest

from tests.stack.stand_in import STARTED, document, task_document
from towline.contract import AttemptRecord, Ledger, RunTaskHeartbeat
from towline.live_status import settled, with_heartbeat
from towline.status import Status

FAILED = AttemptRecord(1, "FAILED", 1, "user", "exit code 1", STARTED, STARTED)
RESTARTED = Ledger(1, 1, [FAILED])


def test_an_attempt_that_runs_is_listed_with_its_phase() -> None:
    (task,) = with_heartbeat(document(), 0, RunTaskHeartbeat("run", 1, Ledger(), started_at=STARTED))["tasks"]
    (attempt,) = task["attempts"]
    assert (attempt["attempt"], attempt["status"], attempt["reason"]) == (1, "RUNNING", "run")
    assert (attempt["started_at"], attempt["ended_at"]) == (STARTED, None)


@pytest.mark.parametrize(
    ("beat", "reason"),
    [
        (RunTaskHeartbeat("run", 1, Ledger()), ""),
        (RunTaskHeartbeat("setup", 1, Ledger()), "running setup"),
        (RunTaskHeartbeat("run", 2, RESTARTED), "restart 1/3 after exit code 1"),
        (RunTaskHeartbeat("setup", 2, RESTARTED), "restart 1/3 after exit code 1"),
        (RunTaskHeartbeat("run", 1, Ledger(), note="waiting"), "waiting"),
        (
            RunTaskHeartbeat("run", 1, Ledger(), unreachable_since=STARTED, note="refused"),
            f"node unreachable since {STARTED}: refused",
        ),
    ],
)
def test_the_reason_says_what_goes_on(beat: RunTaskHeartbeat, reason: str) -> None:
    live = with_heartbeat(document(), 0, beat)
    assert (live["reason"], live["tasks"][0]["reason"]) == (reason, reason)


def test_an_attempt_that_the_job_knows_of_already_is_listed_once() -> None:
    before = with_heartbeat(document(), 0, RunTaskHeartbeat("run", 1, RESTARTED))
    assert len(before["tasks"][0]["attempts"]) == 1
    after = with_heartbeat(before, 0, RunTaskHeartbeat("run", 1, RESTARTED))
    assert after["tasks"][0]["attempts"] == before["tasks"][0]["attempts"]


def test_restarts_never_exceed_the_budget() -> None:
    live = with_heartbeat(document(), 0, RunTaskHeartbeat("run", 4, Ledger(4, 4, [])))
    assert live["tasks"][0]["restarts"] == 3


@pytest.mark.parametrize("index", [-1, 1])
def test_a_heartbeat_of_no_task_of_the_job_changes_nothing(index: int) -> None:
    assert with_heartbeat(document(), index, RunTaskHeartbeat("run", 1, Ledger())) == document()


def test_a_late_heartbeat_changes_nothing_of_a_task_that_has_ended() -> None:
    ended = document(status="SUCCEEDED")
    assert with_heartbeat(ended, 0, RunTaskHeartbeat("run", 1, RESTARTED)) == ended


def test_of_several_tasks_the_reason_names_the_one() -> None:
    two = {**document(), "tasks": [task_document("SUCCEEDED"), {**task_document(), "index": 1, "name": "second"}]}
    assert with_heartbeat(two, 1, RunTaskHeartbeat("setup", 1, Ledger()))["reason"] == "task 2/2 second: running setup"


def test_the_document_given_is_left_as_it_was() -> None:
    given = document()
    with_heartbeat(given, 0, RunTaskHeartbeat("run", 2, RESTARTED))
    settled(given, Status.CANCELLED, "why")
    assert given == document()


def test_a_job_ended_from_outside_has_no_task_that_goes_on() -> None:
    tasks = [task_document("SUCCEEDED"), task_document("RUNNING"), task_document("PENDING")]
    ended = settled({**document(), "tasks": tasks}, Status.FAILED_CONTROLLER, "timed out")
    assert [task["status"] for task in ended["tasks"]] == ["SUCCEEDED", "FAILED_CONTROLLER", "CANCELLED"]
    assert (ended["status"], ended["reason"]) == ("FAILED_CONTROLLER", "timed out")
