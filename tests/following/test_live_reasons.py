"""What the server knows beside the job's own document, and how it is told to who follows."""

from __future__ import annotations

import pytest

from tests.support.told_jobs import NOW, ToldJobs
from towline.changes import changes
from towline.live_status import PendingActivity, settled, with_pending
from towline.status import Status

LATER = "2026-01-02T00:00:00+00:00"
FULL = PendingActivity("provision", 0, 3, "no offer has 8 H100")


def told(status: str, reason: str = "", tasks: int = 1) -> ToldJobs:
    jobs = ToldJobs(tasks=tasks)
    jobs.task(0, status, reason)
    return jobs


@pytest.mark.parametrize(
    ("status", "before", "pending", "reason"),
    [
        ("STARTING", "", FULL, "waiting for nodes: no offer has 8 H100, attempt 3"),
        ("RECOVERING", "node n00 lost", FULL, "node n00 lost; waiting for nodes: no offer has 8 H100, attempt 3"),
        ("CANCELLING", "", PendingActivity("release", 0, 9, "API down"), "giving nodes back: API down"),
        ("FAILED", "exit code 1", PendingActivity("release", 0, 9, "x"), "exit code 1; giving nodes back: x"),
        ("STARTING", "", PendingActivity("provision", 0, 1, ""), ""),
        ("RUNNING", "", PendingActivity("run_task", 0, 2, "exit code 1"), ""),
        ("STARTING", "", PendingActivity("provision", 7, 2, "of no task"), ""),
    ],
)
def test_the_reason_says_what_is_waited_for(status: str, before: str, pending: PendingActivity, reason: str) -> None:
    jobs = told(status, before)
    given = {**jobs.document, "reason": before}
    live = with_pending(given, pending)
    assert (live["reason"], live["tasks"][0]["reason"]) == (reason, reason)
    assert given == {**jobs.document, "reason": before}


def test_of_several_tasks_the_reason_of_the_job_names_the_one_that_waits() -> None:
    live = with_pending(told("STARTING", tasks=2).document, FULL)
    assert live["reason"] == "task 1/2 t0: waiting for nodes: no offer has 8 H100, attempt 3"


def test_a_reason_stays_short_and_keeps_both_ends() -> None:
    live = with_pending(told("RECOVERING", "lost " * 200).document, PendingActivity("provision", 0, 3, "full " * 200))
    assert len(live["tasks"][0]["reason"]) <= 500
    assert live["tasks"][0]["reason"].endswith("…, attempt 3")


def test_who_follows_is_told_of_a_wait_once_and_of_another_reason_again() -> None:
    jobs = told("STARTING")
    third = with_pending(jobs.document, FULL)
    fourth = with_pending(jobs.document, PendingActivity("provision", 0, 4, FULL.failure))
    other = with_pending(jobs.document, PendingActivity("provision", 0, 5, "quota exceeded"))
    assert changes(jobs.document, third) == [
        "task 1/1 t0: STARTING (waiting for nodes: no offer has 8 H100, attempt 3)"
    ]
    assert changes(third, fourth) == []
    assert changes(fourth, other) == ["task 1/1 t0: STARTING (waiting for nodes: quota exceeded, attempt 5)"]


def test_who_follows_is_told_why_an_ended_task_still_holds_its_nodes() -> None:
    jobs = told("FAILED", "exit code 1")
    stuck = with_pending(jobs.document, PendingActivity("release", 0, 2, "API down"))
    assert changes(jobs.document, stuck) == ["task 1/1 t0: FAILED (exit code 1; giving nodes back: API down)"]
    assert changes(stuck, jobs.document) == []


def test_a_job_ended_from_outside_has_neither_attempts_that_run_nor_nodes_that_are_held() -> None:
    jobs = ToldJobs(tasks=3)
    jobs.task(0, "SUCCEEDED")
    jobs.task(1, "RUNNING")
    jobs.attempt(1, 1, 1, "user")
    jobs.attempt(1, 2)
    ended = settled(jobs.document, Status.CANCELLED, "terminated in Temporal", LATER)
    done, cut, never = ended["tasks"]
    assert (done["status"], done["reason"]) == ("SUCCEEDED", "")
    for task in (cut, never):
        assert (task["status"], task["reason"], task["ended_at"]) == ("CANCELLED", "terminated in Temporal", LATER)
        assert [node["state"] for node in task["nodes"]] == ["swept"]
    first, second = cut["attempts"]
    assert (first["status"], first["cause"], first["ended_at"]) == ("FAILED", "user", NOW)
    assert (second["status"], second["cause"], second["ended_at"]) == ("CANCELLED", "cancelled", LATER)
