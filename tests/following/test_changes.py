"""The words for what changed in a job."""

from __future__ import annotations

from tests.support.told_jobs import ToldJobs
from towline.changes import attempts_ended, changes, standing


def test_nothing_is_said_of_what_did_not_change() -> None:
    document = ToldJobs(tasks=3).document
    assert changes({}, document) == []
    assert changes(document, document) == []


def test_a_restart_is_told_by_the_attempt_and_the_reason() -> None:
    jobs = ToldJobs(tasks=2)
    jobs.task(0, "RUNNING")
    jobs.attempt(0, 1)
    before = jobs.document
    jobs.attempt(0, 1, 1, "user")
    jobs.task(0, "RUNNING", "restart 1/1 after exit code 1")
    assert changes(before, jobs.document) == [
        "task 1/2 t0: attempt 1 FAILED: exit code 1",
        "task 1/2 t0: RUNNING (restart 1/1 after exit code 1)",
    ]


def test_the_end_of_one_task_and_the_start_of_the_next_are_told_in_order() -> None:
    jobs = ToldJobs(tasks=2)
    jobs.task(0, "RUNNING")
    before = jobs.document
    jobs.attempt(0, 1, 0, "user")
    jobs.task(0, "SUCCEEDED")
    jobs.task(1, "STARTING")
    assert changes(before, jobs.document) == [
        "task 1/2 t0: attempt 1 SUCCEEDED: exit code 0",
        "task 1/2 t0: SUCCEEDED",
        "task 2/2 t1: STARTING (waiting for nodes)",
    ]


def test_a_job_that_cannot_be_asked_is_told_by_its_reason() -> None:
    document = {**ToldJobs().document, "tasks": [], "reason": "stuck: its workflow task fails"}
    assert changes({}, document) == ["stuck: its workflow task fails"]
    assert changes(document, document) == []


def test_of_one_task_nothing_is_said_of_the_others() -> None:
    jobs = ToldJobs(tasks=2)
    before = jobs.document
    jobs.attempt(0, 1, 0, "user")
    jobs.task(0, "SUCCEEDED")
    jobs.task(1, "STARTING")
    assert changes(before, jobs.document, only=1) == ["task 2/2 t1: STARTING (waiting for nodes)"]


def test_a_refused_job_is_told_a_line_per_problem() -> None:
    document = {**ToldJobs().document, "tasks": [], "reason": "run: missing\nfoo: unknown key"}
    assert changes({}, document) == ["run: missing", "foo: unknown key"]


def test_where_a_job_stands_is_its_first_task_that_has_not_succeeded() -> None:
    jobs = ToldJobs(tasks=3)
    jobs.task(0, "SUCCEEDED")
    jobs.task(1, "RECOVERING", "node n1 lost")
    assert standing(jobs.document) == "task 2/3 t1: RECOVERING (node n1 lost)"
    assert standing({}) == ""


def test_attempts_of_a_task_that_is_final_have_ended() -> None:
    jobs = ToldJobs()
    jobs.attempt(0, 1, 1, "user")
    jobs.attempt(0, 2)
    assert attempts_ended(jobs.document) == {(0, 1)}
    jobs.task(0, "CANCELLED")
    assert attempts_ended(jobs.document) == {(0, 1), (0, 2)}
