from __future__ import annotations

import asyncio
import json
import shutil
import socket
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from tests.stack.stand_in import STARTED, Jobs, SomethingElse, document, job
from towline.client import JobClient
from towline.config import Config
from towline.contract import AttemptRecord, Ledger, RunTaskHeartbeat, to_json
from towline.embedded import temporal
from towline.errors import JobNotFound, ServerUnreachable, UsageError
from towline.status import Status


def new_id() -> str:
    return f"job-{uuid.uuid4().hex[:8]}"


async def test_a_job_gets_an_id_of_its_name_made_safe(client: JobClient) -> None:
    submission = await client.submit(job("my.job_1"))
    assert submission.job_id.startswith("my-job_1-")
    assert len(submission.job_id.removeprefix("my-job_1-")) == 8
    assert not submission.attached


async def test_the_same_id_again_attaches_to_the_job_that_runs(client: JobClient) -> None:
    job_id = new_id()
    first, second = await client.submit(job(), job_id), await client.submit(job(), job_id)
    assert (second.attached, second.run_id) == (True, first.run_id)


async def test_the_same_id_again_attaches_to_the_job_that_has_ended(client: JobClient, jobs: Jobs) -> None:
    job_id = new_id()
    async with jobs.worker():
        first = await client.submit(job(DOES="succeed"), job_id)
        assert await client.wait(job_id) is Status.SUCCEEDED
        second = await client.submit(job(DOES="succeed"), job_id)
    assert (second.attached, second.run_id) == (True, first.run_id)


async def test_the_same_id_with_other_content_is_refused(client: JobClient) -> None:
    job_id = new_id()
    await client.submit(job(DOES="wait"), job_id)
    with pytest.raises(UsageError, match=f"job {job_id} exists and was submitted with other content; choose another"):
        await client.submit(job(DOES="succeed"), job_id)


async def test_a_job_that_another_client_started_is_attached_to_by_its_id(client: JobClient, server: Client) -> None:
    job_id = new_id()
    await server.start_workflow("ManagedJob", job().to_input(), id=job_id, task_queue="nobody")
    assert (await client.submit(job(DOES="succeed"), job_id)).attached


async def test_the_id_of_a_workflow_that_is_no_job_is_refused(client: JobClient, server: Client) -> None:
    job_id = new_id()
    await server.start_workflow(SomethingElse.run, id=job_id, task_queue="nobody")
    with pytest.raises(UsageError, match="SomethingElse"):
        await client.submit(job(), job_id)
    for question in (client.status, client.cancel, client.wait, client.log_key):
        with pytest.raises(JobNotFound, match="not a job"):
            await question(job_id)


@pytest.mark.parametrize("job_id", ["", "x" * 201, "a\nb", "a\x00", "a\x85", "\udcff"])
async def test_an_id_that_cannot_be_one_is_refused(client: JobClient, job_id: str) -> None:
    with pytest.raises(UsageError, match="--job-id"):
        await client.submit(job(), job_id)


@pytest.mark.parametrize("job_id", ["", "\udcff", "no-such-job"])
async def test_an_unknown_id_is_not_found(client: JobClient, job_id: str) -> None:
    for question in (client.status, client.cancel, client.wait, client.log_key):
        with pytest.raises(JobNotFound):
            await question(job_id)


@pytest.mark.parametrize("megabytes", [2.5, 5])
async def test_a_job_too_large_for_temporal_is_refused_in_words(client: JobClient, megabytes: float) -> None:
    large = job()
    large.tasks[0].envs["LARGE"] = "x" * int(megabytes * 1024 * 1024)
    with pytest.raises(UsageError, match="too large for Temporal"):
        await client.submit(large)


async def test_a_server_without_our_search_attributes_gets_them_at_the_first_submission(config: Config) -> None:
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=temporal()) as environment:
        client = JobClient(environment.client, config)
        submission = await client.submit(job("first"))
        (row,) = await _until(lambda: client.queue(), 1)
        assert (row["job_id"], row["name"], row["status"]) == (submission.job_id, "first", "PENDING")


async def test_a_server_that_lacks_our_search_attributes_for_good_runs_jobs_without(config: Config) -> None:
    """All three columns for numbers are taken, so ours cannot be registered."""
    taken = [f"--search-attribute=Taken{number}=Int" for number in range(3)]
    path = temporal()
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=path, dev_server_extra_args=taken) as it:
        client = JobClient(it.client, config)
        await client.submit(job("first"))
        (row,) = await _until(lambda: client.queue(), 1)
        assert (row["name"], row["tasks"]) == ("first", 1)


async def test_the_status_is_the_jobs_own_document(client: JobClient, jobs: Jobs) -> None:
    async with jobs.worker():
        submission = await client.submit(job())
        assert await client.status(submission.job_id) == document(submission.job_id)


async def test_the_status_shows_attempts_that_only_the_heartbeat_knows(client: JobClient, jobs: Jobs) -> None:
    record = AttemptRecord(1, "FAILED", 1, "user", "exit code 1", STARTED, STARTED)
    beat = RunTaskHeartbeat("run", 2, Ledger(1, 1, [record]), ["n"], STARTED)
    async with jobs.worker():
        submission = await client.submit(job(DOES="beat", BEAT=json.dumps(to_json(beat))))
        await jobs.beating.shown.wait()
        shown = await _until(lambda: _attempts(client, submission.job_id), 2)
        status = await client.status(submission.job_id)
    assert [(each["attempt"], each["status"]) for each in shown] == [(1, "FAILED"), (2, "RUNNING")]
    assert status["tasks"][0]["restarts"] == 1
    assert status["reason"] == "restart 1/3 after exit code 1"


async def _attempts(client: JobClient, job_id: str) -> list[dict[str, object]]:
    attempts: list[dict[str, object]] = (await client.status(job_id))["tasks"][0]["attempts"]
    return attempts


async def test_a_job_without_a_worker_says_which_queue_nobody_polls(client: JobClient, config: Config) -> None:
    submission = await client.submit(job())
    status = await client.status(submission.job_id)
    assert (status["status"], status["name"], status["tasks"]) == ("PENDING", "stand-in", [])
    assert f"no worker is polling task queue {config.task_queue}" in status["reason"]
    assert "towline worker" in status["reason"]


async def test_a_job_whose_workflow_code_fails_is_shown_as_stuck_with_the_error(client: JobClient, jobs: Jobs) -> None:
    async with jobs.worker():
        submission = await client.submit(job(DOES="break"))
        status = await _until_stuck(client, submission.job_id)
        assert status["status"] == "PENDING"
        assert status["reason"].startswith("stuck: a bug of ours")


async def _until_stuck(client: JobClient, job_id: str) -> dict[str, str]:
    while True:
        status = await client.status(job_id)
        if "stuck" in status["reason"]:
            return status
        await asyncio.sleep(0.5)


async def test_a_failed_job_is_told_as_it_failed_with_and_without_a_worker(client: JobClient, jobs: Jobs) -> None:
    async with jobs.worker():
        submission = await client.submit(job(DOES="fail"))
        assert await client.wait(submission.job_id) is Status.FAILED_SETUP
        with_worker = await client.status(submission.job_id)
    without = await client.status(submission.job_id)
    for status in (with_worker, without):
        assert (status["status"], status["reason"]) == ("FAILED_SETUP", "exit code 7")
        assert status["ended_at"] is not None


async def test_every_problem_of_a_refused_job_has_its_line(client: JobClient, server: Client, config: Config) -> None:
    problems = "\n".join(f"tasks[0].key{number}: unknown key" for number in range(30))
    refused = workflow_worker(server, config, FailsWith)
    async with refused:
        handle = await server.start_workflow("ManagedJob", problems, id=new_id(), task_queue=config.task_queue)
        await client.wait(handle.id)
        status = await client.status(handle.id)
    lines = status["reason"].splitlines()
    assert (status["status"], len(lines)) == ("FAILED_PRECHECKS", 21)
    assert lines[:2] == ["tasks[0].key0: unknown key", "tasks[0].key1: unknown key"]
    assert lines[-1] == "and 10 lines more"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("provision", "waiting for nodes: all full, attempt 2"), ("release", "giving nodes back: all full")],
)
async def test_why_nodes_do_not_come_or_go_is_in_the_reason(
    client: JobClient, server: Client, config: Config, name: str, reason: str
) -> None:
    async with workflow_worker(server, config, Waits):
        handle = await server.start_workflow("ManagedJob", name, id=new_id(), task_queue=config.task_queue)
        while not (status := await client.status(handle.id)).get("reason"):
            await asyncio.sleep(0.05)
        assert (status["reason"], status["tasks"][0]["reason"]) == (reason, reason)
        await handle.terminate()


@workflow.defn(name="ManagedJob", sandboxed=False)
class FailsWith:
    """A job that was refused with the text that it is given."""

    @workflow.run
    async def run(self, text: str) -> None:
        raise ApplicationError(text, type="FAILED_PRECHECKS", non_retryable=True)

    @workflow.query
    def status(self) -> dict[str, Any]:
        return {}


@workflow.defn(name="ManagedJob", sandboxed=False)
class Waits:
    """A job that waits for the activity it is given the name of, which fails."""

    @workflow.run
    async def run(self, name: str) -> None:
        limit, again = timedelta(hours=1), RetryPolicy(initial_interval=timedelta(hours=1))
        await workflow.execute_activity(
            name, activity_id=f"0-{name}-1", start_to_close_timeout=limit, retry_policy=again
        )

    @workflow.query
    def status(self) -> dict[str, Any]:
        return document(workflow.info().workflow_id, "STARTING")


@activity.defn(name="provision")
async def full_for_provision() -> None:
    raise ApplicationError("all full", type="NO_CAPACITY")


@activity.defn(name="release")
async def full_for_release() -> None:
    raise ApplicationError("all full", type="PROVIDER_UNAVAILABLE")


def workflow_worker(server: Client, config: Config, kind: type) -> Worker:
    activities = [full_for_provision, full_for_release]
    return Worker(server, task_queue=config.task_queue, workflows=[kind], activities=activities)


async def test_a_terminated_job_is_cancelled_by_an_operator(client: JobClient, jobs: Jobs, server: Client) -> None:
    async with jobs.worker():
        submission = await client.submit(job())
        await client.status(submission.job_id)
        await server.get_workflow_handle(submission.job_id).terminate()
        closed = (await server.get_workflow_handle(submission.job_id).describe()).close_time
        status = await client.status(submission.job_id)
        assert await client.wait(submission.job_id) is Status.CANCELLED
    assert (status["status"], status["tasks"][0]["status"]) == ("CANCELLED", "CANCELLED")
    assert status["reason"] == status["tasks"][0]["reason"] == "terminated in Temporal"
    assert closed is not None
    assert status["ended_at"] == status["tasks"][0]["ended_at"] == closed.isoformat()
    assert (await client.status(submission.job_id))["reason"] == "terminated in Temporal"  # no worker any more
    (row,) = [each for each in await client.queue(status=["CANCELLED"]) if each["job_id"] == submission.job_id]
    assert "terminated by an operator" in row["reason"]


async def test_a_cancel_is_accepted_once_and_a_job_that_has_ended_is_said_so(client: JobClient, jobs: Jobs) -> None:
    async with jobs.worker():
        submission = await client.submit(job())
        assert await client.cancel(submission.job_id) == "CANCELLING"
        assert await client.wait(submission.job_id) is Status.CANCELLED
        ended = await client.submit(job(DOES="succeed"))
        assert await client.wait(ended.job_id) is Status.SUCCEEDED
        assert await client.cancel(ended.job_id) == "SUCCEEDED"


async def test_the_queue_lists_jobs_only_newest_first_and_as_many_as_asked(client: JobClient, jobs: Jobs) -> None:
    async with jobs.worker():
        running = await client.submit(job("runs"))
        ended = await client.submit(job("ends", DOES="succeed"))
        await client.wait(ended.job_id)
        await jobs.client.start_workflow(SomethingElse.run, id=new_id(), task_queue="nobody")
        newest = await client.submit(job("newest"))
        wanted = [newest.job_id, ended.job_id, running.job_id]
        rows = await _until(lambda: _rows(client, wanted), 3)
    assert [row["job_id"] for row in rows] == wanted
    assert [row["status"] for row in rows] == ["PENDING", "SUCCEEDED", "PENDING"]
    assert [row["job_id"] for row in await client.queue(limit=2)] == wanted[:2]


async def test_the_queue_filters_by_the_status_that_it_shows(client: JobClient, jobs: Jobs, server: Client) -> None:
    async with jobs.worker():
        gone = await client.submit(job())
        await server.get_workflow_handle(gone.job_id).terminate()
        ended = await client.submit(job(DOES="succeed"))
        await client.wait(ended.job_id)
    for status, job_id in (("CANCELLED", gone.job_id), ("SUCCEEDED", ended.job_id)):
        (row,) = await _until(lambda s=status, j=job_id: _rows(client, [j], status=[s]), 1)  # type: ignore[misc]
        assert row["status"] == status
    assert await _rows(client, [gone.job_id, ended.job_id], status=["PENDING", "RUNNING"]) == []


async def _rows(client: JobClient, ids: list[str], status: list[str] | None = None) -> list[dict[str, object]]:
    return [row for row in await client.queue(status=status, limit=1000) if row["job_id"] in ids]


async def test_waiting_outlasts_a_restart_of_the_server(config: Config, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {"dev_server_existing_path": temporal(), "port": port}
    database = str(tmp_path / "temporal.db")
    async with await WorkflowEnvironment.start_local(**options, dev_server_database_filename=database) as first:
        client = JobClient(first.client, config)
        submission = await client.submit(job(DOES="succeed"))
        waiting = asyncio.create_task(client.wait(submission.job_id))
    with pytest.raises(ServerUnreachable):
        await client.status(submission.job_id)
    assert not waiting.done()
    again = await WorkflowEnvironment.start_local(**options, dev_server_database_filename=database)
    async with again, Jobs(again.client, config).worker():
        assert await waiting is Status.SUCCEEDED


async def test_the_web_ui_is_known_for_the_embedded_server_only(
    server: Client, address: str, config: Config, client: JobClient
) -> None:
    assert client.web_ui_url("a/b", "run") is None
    port = int(address.rpartition(":")[2])
    config.make_home()
    known = {"port": port, "ui_port": 8233, "keeper": None, "server": None, "worker": None}
    (config.home / "stack.json").write_text(json.dumps(known))
    at = await JobClient.connect(config, f"127.0.0.1:{port}")
    assert at.web_ui_url("a/b", "run") == "http://127.0.0.1:8233/namespaces/default/workflows/a%2Fb/run"


async def test_a_namespace_that_does_not_exist_is_no_missing_job(config: Config, address: str) -> None:
    client = JobClient(await Client.connect(address, namespace="nowhere"), config)
    with pytest.raises(UsageError, match="TEMPORAL_NAMESPACE"):
        await client.status("any")


async def _until(question, count: int):  # type: ignore[no-untyped-def]
    """The answer once it has `count` items: what is listed lags behind what is done by some milliseconds."""
    while len(answer := await question()) < count:
        await asyncio.sleep(0.05)
    return answer


def test_the_server_is_where_the_wheel_puts_it() -> None:
    assert shutil.which(temporal())
