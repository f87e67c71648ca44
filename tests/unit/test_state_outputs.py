"""What tasks hand on, in the state of the job."""

from __future__ import annotations

import json

from towline.contract import AttemptRecord, AttemptStatus, Cause, JobRef, Ledger, RunTaskHeartbeat, from_json, to_json
from towline.ledger import record
from towline.live_status import with_heartbeat
from towline.outputs import LARGEST_TOTAL
from towline.state import JobState, TaskState, document


def succeeded(attempt: int, **outputs: str) -> AttemptRecord:
    return AttemptRecord(attempt, AttemptStatus.SUCCEEDED, 0, Cause.USER, "exit code 0", outputs=outputs)


def state(*names: str) -> JobState:
    tasks = [TaskState(name, 0, "FAILOVER", "keep") for name in names]
    return JobState(JobRef("job", "job-key", "job"), "2026-01-01T00:00:00+00:00", tasks)


def test_they_are_carried_whole_through_a_continue_as_new() -> None:
    before = state("one", "two")
    before.tasks[0].take(record(Ledger(), succeeded(1, a="1")))
    after = from_json(JobState, json.loads(json.dumps(to_json(before))))
    assert after == before
    assert after.earlier_outputs(1) == {"TOWLINE_OUTPUT_ONE_A": "1"}


def test_a_state_and_an_account_of_before_there_were_any_still_decode() -> None:
    old = to_json(state("one"))
    old["tasks"][0]["ledger"] = {"last_attempt": 1, "failures": 0, "records": [{"attempt": 1, "status": "SUCCEEDED"}]}
    read = from_json(JobState, old)
    assert read is not None
    assert read.tasks[0].outputs == {}


def test_a_task_gets_those_of_the_tasks_before_it_and_of_no_other() -> None:
    job = state("one", "two", "three")
    for index, task in enumerate(job.tasks):
        task.take(record(Ledger(), succeeded(1, k=str(index))))
    assert job.earlier_outputs(0) == {}
    assert job.earlier_outputs(2) == {"TOWLINE_OUTPUT_ONE_K": "0", "TOWLINE_OUTPUT_TWO_K": "1"}


def test_what_does_not_fit_into_the_jobs_total_is_not_kept_and_it_is_said() -> None:
    job = state(*(f"t{number}" for number in range(20)))
    for index, task in enumerate(job.tasks):
        task.take(record(Ledger(), succeeded(1, k="x" * 15_000)))
        job.bound_outputs(index)
    kept = [index for index, task in enumerate(job.tasks) if task.outputs]
    assert kept == list(range(LARGEST_TOTAL // 15_000))
    assert job.tasks[-1].ledger.records[-1].reason == (
        f"exit code 0; its outputs are not kept: those of the job exceed {LARGEST_TOTAL} bytes"
    )


def test_the_document_has_them_once_for_each_task_and_also_while_a_call_is_being_reported() -> None:
    job = state("one")
    job.tasks[0].status = "RUNNING"
    shown = document(job)
    assert shown["tasks"][0]["outputs"] == {}
    live = with_heartbeat(shown, 0, RunTaskHeartbeat("closing", 1, record(Ledger(), succeeded(1, a="1"))))
    assert live["tasks"][0]["outputs"] == {"a": "1"}
    assert "outputs" not in live["tasks"][0]["attempts"][0]
