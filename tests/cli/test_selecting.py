"""Asking for logs that cannot be."""

from __future__ import annotations

import pytest

from tests.support.told_jobs import KEY, ToldJobs
from towline.cli.selecting import impossible
from towline.following import Selection
from towline.log_store import LogKey


def ended() -> ToldJobs:
    """A job of three tasks on two nodes each; the third never started."""
    jobs = ToldJobs(tasks=3, nodes=2)
    jobs.attempt(0, 1, 0, "user")
    jobs.task(0, "SUCCEEDED")
    jobs.attempt(1, 1, 1, "user")
    jobs.attempt(1, 2, 1, "user")
    jobs.task(1, "FAILED", "exit code 1")
    jobs.task(2, "CANCELLED", "not started: task t1 ended FAILED")
    return jobs


def why(selection: Selection, jobs: ToldJobs | None = None, logs: list[LogKey] | None = None) -> str | None:
    document = (jobs or ended()).document
    for task in document["tasks"]:
        if task["status"] in ("PENDING", "CANCELLED"):
            task["nodes"] = []
    return impossible(document, selection, logs or [])


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        (Selection(1, 3), "task 2/3 t1 has no attempt 3; it had 2"),
        (Selection(None, 3), "job job has no attempt 3; it had 2 in a task at most"),
        (Selection(0, None, 2), "task 1/3 t0 has no node 2; its nodes are 0 to 1"),
        (Selection(2), "task 3/3 t2 never started (CANCELLED: not started: task t1 ended FAILED)"),
        (Selection(2, 1, 0), "task 3/3 t2 never started (CANCELLED: not started: task t1 ended FAILED)"),
    ],
)
def test_it_is_said_why_there_is_no_such_log(selection: Selection, reason: str) -> None:
    assert why(selection) == reason


@pytest.mark.parametrize(
    "selection", [Selection(), Selection(1, 2, 1), Selection(0), Selection(None, 2), Selection(rank=1)]
)
def test_what_there_may_be_is_looked_for(selection: Selection) -> None:
    assert why(selection) is None


def test_a_log_that_is_there_is_shown_though_the_status_does_not_know_its_attempt() -> None:
    assert why(Selection(1, 3), logs=[LogKey(KEY, 1, 3, 0)]) is None
    assert why(Selection(2), logs=[LogKey(KEY, 2, 1, 0)]) is None


@pytest.mark.parametrize("selection", [Selection(0, 7), Selection(1), Selection(1, 1, 1)])
def test_of_a_job_that_goes_on_there_may_be_more(selection: Selection) -> None:
    jobs = ToldJobs(tasks=2)
    jobs.task(0, "RUNNING")
    assert why(selection, jobs) is None


def test_a_node_that_a_running_task_does_not_have_will_not_come() -> None:
    jobs = ToldJobs()
    jobs.task(0, "RUNNING")
    assert why(Selection(rank=3), jobs) == "task 1/1 t0 has no node 3; its only node is 0"
