"""Where secrets are while jobs run, succeed, fail and lose their connections: looked for everywhere."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.canary import CANARY, command_lines, files_with_canary, forms, has_canary, open_to_others
from tests.support.canary import told_by_the_server as told
from tests.support.openssh import OpenSsh, open_ssh
from tests.support.system import ROOT, Server, System, WorkerProcess, until
from towline.contract import WORKFLOW_TYPE
from towline.sealing import Sealer, ensure_key_pair
from towline.status import ExitCode, Status

TALKATIVE = """
import logging, sys
import asyncssh, towline.worker as worker
def talk():
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, force=True)
    asyncssh.set_debug_level(2)
worker._log_to_stderr = talk
sys.exit(worker.main(sys.argv[1:]))
"""
"""A worker that logs all that it can."""

PRINTS = 'printf "before %s" "${TOKEN:0:17}"; sleep 0.2; printf "%s after\\n" "${TOKEN:17}"; exit '
MASKED = b"before " + b"*" * len(CANARY) + b" after\n"


def logs_of(system: System) -> bytes:
    return b"".join(worker.log.read_bytes() for worker in system.workers)


async def start_worker(system: System, *program: str, **more: str) -> WorkerProcess:
    """One that logs all that it can, unless another `program` is given."""
    number = len(system.workers)
    ready, log = system.home / f"ready-{number}", system.home / f"worker-{number}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *(program or ("-c", TALKATIVE)), "--ready-file", str(ready)],
            cwd=ROOT,
            env={**system.environment, **more},
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    worker = WorkerProcess(process, log)
    system.workers.append(worker)
    await until(lambda: ready.exists() or process.poll() is not None, "a worker polls")
    assert process.poll() is None, log.read_text()
    return worker


@pytest.fixture
def host(tmp_path: Path) -> Iterator[OpenSsh]:
    with open_ssh(tmp_path / "host") as server:
        yield server


@pytest.fixture(params=["local", "ssh/lab"])
def infra(request: pytest.FixtureRequest, idle: System, host: OpenSsh) -> str:
    """Where tasks run: a node of this machine, or OpenSSH's own server."""
    entry = f"{{ip: 127.0.0.1, port: {host.port}, identity_file: {host.identity}}}"
    pool = f"lab:\n  user: {getpass.getuser()}\n  hosts:\n    - {entry}\n"
    (idle.home / "ssh_node_pools.yaml").write_text(pool)
    ensure_key_pair(idle.config)
    return str(request.param)


def write(path: Path, infra: str, **task: Any) -> str:
    path.write_text(json.dumps({"secrets": {"TOKEN": None}, "resources": {"infra": infra}, **task}))
    return str(path)


def at_nodes(system: System, host: OpenSsh) -> list[Path]:
    """What Towline has on the nodes there are now."""
    return [*(system.home / "nodes").glob("local-*/**/.towline"), host.home / ".towline"]


async def test_a_secret_reaches_setup_and_run_of_every_attempt_and_is_nowhere_else(
    idle: System, infra: str, host: OpenSsh, server: Server, tmp_path: Path
) -> None:
    await start_worker(idle)
    here, go = tmp_path / "here", tmp_path / "go"
    check = f'[ "$TOKEN" = "$(cat {tmp_path}/expected)" ] || exit 9; '
    (tmp_path / "expected").write_text(CANARY)
    setup = f"{check} echo setup $TOWLINE_ATTEMPT >>{here}"
    second = f"[ $TOWLINE_ATTEMPT = 2 ] || exit 1; until [ -e {go} ]; do sleep 0.05; done"
    run = f"{check} echo run $TOWLINE_ATTEMPT >>{here}; {second}"
    resources = {"infra": infra, "job_recovery": {"max_restarts_on_errors": 1}}
    file = write(tmp_path / "job.yaml", infra, setup=setup, run=run, resources=resources)
    with command_lines() as lines:
        launched = await idle.cli("launch", "-d", file, "--secret", "TOKEN", env={"TOKEN": CANARY})
        assert launched.code == 0, launched.err
        job_id = launched.out.decode().strip()
        await until(lambda: here.exists() and "run 2" in here.read_text(), "the second attempt runs")
        while_it_runs = await told(idle.client, job_id)
        on_nodes = files_with_canary(*at_nodes(idle, host), idle.home)
        shown = await idle.cli("status", job_id), await idle.cli("queue"), await idle.cli("status", "--json", job_id)
        open_paths = [each for root in at_nodes(idle, host) for each in open_to_others(root)]
        environments = [Path(f"/proc/{worker.process.pid}/environ").read_bytes() for worker in idle.workers]
        go.touch()
        document = await idle.ended(job_id)
    assert document["status"] == Status.SUCCEEDED, document
    assert here.read_text().split("\n")[:-1] == ["setup 1", "run 1", "setup 2", "run 2"]
    assert lines.seen == []
    assert lines.looks > 5
    assert on_nodes == open_paths == []
    for text in (while_it_runs, await told(idle.client, job_id), logs_of(idle), *environments):
        assert not has_canary(text)
    assert not any(has_canary(each.out) or has_canary(each.err) for each in (launched, *shown))
    directory = server._directory  # the database of the server itself, whatever its interfaces tell
    assert files_with_canary(directory, idle.home, idle.config.log_store, host.home / ".towline") == []


@pytest.mark.parametrize(("phase", "status"), [("run", Status.SUCCEEDED), ("setup", Status.FAILED_SETUP)])
async def test_what_a_task_prints_of_a_secret_is_masked_in_its_log_and_keeps_its_place(
    idle: System, infra: str, host: OpenSsh, server: Server, tmp_path: Path, phase: str, status: Status
) -> None:
    await start_worker(idle)
    scripts = {"run": "true", phase: PRINTS + ("0" if phase == "run" else "3")}
    file = write(tmp_path / "job.yaml", infra, **scripts)
    launched = await idle.cli("launch", file, "--secret", "TOKEN", env={"TOKEN": CANARY})
    (job_id,) = [word for word in launched.err.split() if word.startswith("job-")][:1]
    assert (await idle.jobs.status(job_id))["status"] == status, launched.err
    assert launched.out == MASKED
    assert await idle.log(job_id) == MASKED
    assert not has_canary(launched.err)
    assert not has_canary(await told(idle.client, job_id))
    assert not has_canary(logs_of(idle))
    assert files_with_canary(server._directory, idle.home, host.home / ".towline") == []


async def test_a_refused_file_shows_no_value_and_leaves_none(idle: System, infra: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"secrets:\n  TOKEN: {CANARY}\n  OTHER: [{CANARY}]\nrun: 5\nresources: {{infra: {infra}}}\n")
    for command in ("launch", "validate"):
        refused = await idle.cli(command, str(file), "--secret", "THIRD", env={"THIRD": CANARY})
        assert refused.code == ExitCode.USAGE
        assert "tasks[0].secrets.OTHER: must be a string, not a list" in refused.err
        assert "tasks[0].run" in refused.err
        assert not has_canary(refused.err)
        assert not has_canary(refused.out)
    assert files_with_canary(idle.home) == []


async def test_lost_connections_and_killed_workers_show_nothing_and_mask_everything(
    idle: System, infra: str, host: OpenSsh, server: Server, tmp_path: Path
) -> None:
    worker = await start_worker(idle)
    go, count = tmp_path / "go", 4000
    half = len(CANARY) // 2
    lines = (
        f'for n in $(seq {count}); do printf "%s %s" $n "${{TOKEN:0:{half}}}"; printf "%s\\n" "${{TOKEN:{half}}}"; done'
    )
    run = f'{lines}; until [ -e {go} ]; do printf %s "$TOKEN"; sleep 0.01; done; echo end'
    file = write(tmp_path / "job.yaml", infra, run=run)
    launched = await idle.cli("launch", "-d", file, "--secret", "TOKEN", env={"TOKEN": CANARY})
    job_id = launched.out.decode().strip()
    for _ in range(3):
        before = len(await idle.log(job_id))

        async def grown(seen: int = before) -> bool:
            return len(await idle.log(job_id)) > seen

        await until(grown, "the log is streamed")
        host.cut()
        worker.send(signal.SIGKILL)
        worker = await start_worker(idle)
    go.touch()
    document = await idle.ended(job_id)
    assert document["status"] == Status.SUCCEEDED, document
    log = await idle.log(job_id)
    stars = b"*" * len(CANARY)
    head = b"".join(b"%d %s\n" % (number, stars) for number in range(1, count + 1))
    assert log.startswith(head)
    tail = log[len(head) :]
    assert tail.endswith(b"end\n")
    assert set(tail[: -len(b"end\n")]) <= {ord("*")}
    assert len(tail[: -len(b"end\n")]) % len(CANARY) == 0
    assert not has_canary(await told(idle.client, job_id))
    assert not has_canary(logs_of(idle))
    assert files_with_canary(server._directory, idle.home, host.home / ".towline") == []


async def test_a_worker_that_cannot_open_a_secret_refuses_the_job_before_there_is_a_node(
    idle: System, tmp_path: Path
) -> None:
    ensure_key_pair(idle.config)
    sealed = Sealer(idle.config)("TOKEN", CANARY)
    await start_worker(idle, TOWLINE_SECRETS_PRIVATE_KEY_FILE=str(tmp_path / "other.keys"))
    secret = {"TOKEN": {"sealed": sealed.sealed, "key": sealed.key}}
    job_id = await idle.submit({"run": "true"}, {"run": "true", "secrets": secret})
    document = await idle.ended(job_id)
    assert document["status"] == Status.FAILED_PRECHECKS
    assert (
        f"secret TOKEN is sealed for key {sealed.key}, which this worker does not have (it has none)"
        in document["reason"]
    )
    assert [task["attempts"] for task in document["tasks"]] == [[], []]
    assert document["tasks"][0]["nodes"] == []


async def test_a_key_that_goes_missing_while_a_job_runs_is_waited_for_and_costs_no_restart(
    idle: System, tmp_path: Path
) -> None:
    ensure_key_pair(idle.config)
    sealed = Sealer(idle.config)("TOKEN", CANARY)
    await start_worker(idle)
    go = tmp_path / "go"
    run = f'until [ -e {go} ]; do sleep 0.05; done; echo "$TOKEN"; exit $((2 - TOWLINE_ATTEMPT))'
    secret = {"TOKEN": {"sealed": sealed.sealed, "key": sealed.key}}
    recovery = {"job_recovery": {"max_restarts_on_errors": 1}}
    job_id = await idle.submit({"run": run, "secrets": secret, "resources": recovery})

    async def running() -> bool:
        return any(
            each["status"] == "RUNNING"
            for task in (await idle.jobs.status(job_id))["tasks"]
            for each in task["attempts"]
        )

    await until(running, "the first attempt runs")
    keys = idle.config.secrets_private_keys
    keys.rename(tmp_path / "away")
    go.touch()

    async def waits() -> bool:
        return "which this worker does not have" in (await idle.jobs.status(job_id))["reason"]

    await until(waits, "the second attempt waits for the key")
    (tmp_path / "away").rename(keys)
    document = await idle.ended(job_id)
    assert document["status"] == Status.SUCCEEDED, document
    assert document["tasks"][0]["restarts"] == 1
    assert len(document["tasks"][0]["attempts"]) == 2
    assert await idle.log(job_id, attempt=2) == b"*" * len(CANARY) + b"\n"


async def test_a_plain_value_sent_through_a_temporal_client_ends_the_job_in_words(idle: System) -> None:
    await start_worker(idle)
    plain = "another-s3cr3t"  # the history has it: other tests look for theirs in the same server's database
    request = {"tasks": [{"run": "true", "secrets": {"TOKEN": plain}}]}
    await idle.client.start_workflow(WORKFLOW_TYPE, request, id="plain-" + idle.queue, task_queue=idle.queue)
    document = await idle.ended("plain-" + idle.queue)
    assert document["status"] == Status.FAILED_PRECHECKS
    assert "tasks[0].secrets.TOKEN: must be sealed" in document["reason"]
    assert plain not in json.dumps(document)
    assert plain.encode() not in b"".join(line for line in logs_of(idle).splitlines() if b"DEBUG" not in line)


async def test_the_same_job_id_attaches_though_values_are_sealed_anew(idle: System, tmp_path: Path) -> None:
    ensure_key_pair(idle.config)
    file = write(tmp_path / "job.yaml", "local", run="true")
    job_id = "again-" + idle.queue
    for said in ("", "attached to job"):
        launched = await idle.cli("launch", "-d", "--job-id", job_id, file, "--secret", "TOKEN", env={"TOKEN": CANARY})
        assert launched.code == 0, launched.err
        assert said in launched.err
    other = await idle.cli(
        "launch", "-d", "--job-id", job_id, file, "--secret", "TOKEN", "--secret", "X=1", env={"TOKEN": CANARY}
    )
    assert "exists and was submitted with other content" in other.err


async def test_no_process_but_the_tasks_own_has_a_secret_in_its_environment(
    idle: System, infra: str, tmp_path: Path
) -> None:
    await start_worker(idle)
    secret = f"{CANARY} {idle.queue}"  # tests beside this one have theirs in the environment of what they call
    here, go = tmp_path / "here", tmp_path / "go"
    file = write(tmp_path / "job.yaml", infra, run=f"touch {here}; until [ -e {go} ]; do sleep 0.05; done")
    launched = await idle.cli("launch", "-d", file, "--secret", "TOKEN", env={"TOKEN": secret})
    await until(here.exists, "the task runs")
    environments = [each for each in map(_environment_of, psutil.process_iter()) if secret.encode() in each]
    go.touch()
    await idle.ended(launched.out.decode().strip())
    assert environments
    assert all(b"TOWLINE_MARK=" in each for each in environments)


def _environment_of(process: psutil.Process) -> bytes:
    try:
        return Path(f"/proc/{process.pid}/environ").read_bytes() if process.pid != os.getpid() else b""
    except OSError:
        return b""


def test_the_search_itself_finds_every_form() -> None:
    import base64

    for before in (b"", b"x", b"xy", b"xyz"):
        assert has_canary(base64.b64encode(before + CANARY.encode() + b"after"))
    assert has_canary(CANARY.encode().hex())
    assert all(len(form) > 20 for form in forms())
