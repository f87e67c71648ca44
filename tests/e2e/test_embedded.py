"""A machine where nothing was set up: the embedded stack, the examples, and raw Temporal clients."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.system import ROOT, end_nodes, find_temporal

LIMIT_S = 90


class Home:
    """A home of its own, in which commands run as on a fresh machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "TOWLINE_"))}
        self.environment = {**kept, "TOWLINE_HOME": str(path)}

    def towline(self, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        """Run the command line to its end."""
        return subprocess.run(
            [sys.executable, "-m", "towline", *arguments],
            cwd=ROOT,
            env={**self.environment, **options},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[list[Home]]:
    made = [Home(tmp_path / "one"), Home(tmp_path / "two")]
    yield made
    for home in made:
        home.towline("down")
        end_nodes(home.path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("home"))
    yield made
    made.towline("down")
    end_nodes(made.path)


def test_the_demo_fails_after_one_restart_on_a_machine_where_nothing_was_set_up(homes: list[Home]) -> None:
    home = homes[0]
    ran = home.towline("launch", "examples/restart.yaml")
    assert ran.returncode == 100, ran.stderr
    assert ran.stdout == ""
    assert "attempt 1 FAILED: exit code 1" in ran.stderr
    assert "attempt 2 FAILED: exit code 1" in ran.stderr
    assert "Web UI: http://127.0.0.1:" in ran.stderr
    rows = json.loads(home.towline("queue", "--json").stdout)
    document = json.loads(home.towline("status", rows[0]["job_id"], "--json").stdout)
    assert [task["status"] for task in document["tasks"]] == ["FAILED", "CANCELLED"]
    assert [each["attempt"] for each in document["tasks"][0]["attempts"]] == [1, 2]
    assert document["tasks"][1]["attempts"] == []
    assert json.loads(home.towline("nodes", "--json").stdout) == []


def test_a_stack_comes_back_after_down_and_two_of_them_live_side_by_side(homes: list[Home]) -> None:
    first, second = homes
    assert first.towline("launch", "examples/hello.yaml").returncode == 0
    assert second.towline("launch", "examples/hello.yaml").returncode == 0
    addresses = [json.loads(home.towline("up", "--json").stdout)["address"] for home in homes]
    assert len(set(addresses)) == 2
    assert first.towline("down").returncode == 0
    assert first.towline("queue").returncode == 3
    again = first.towline("launch", "examples/hello.yaml")
    assert again.returncode == 0, again.stderr
    assert "hello from hello, attempt 1" in again.stdout
    assert len(json.loads(first.towline("queue", "--json").stdout)) == 2
    assert len(json.loads(second.towline("queue", "--json").stdout)) == 1


@pytest.mark.parametrize("example", ["hello", "pipeline", "setup", "recovery"])
def test_this_example_runs_on_the_embedded_default(home: Home, example: str, tmp_path: Path) -> None:
    file = ROOT / "examples" / f"{example}.yaml"
    shortened = tmp_path / file.name
    shortened.write_text(file.read_text().replace("-lt 30", "-lt 3"))
    checkpoint = ["--env", f"CHECKPOINT={tmp_path}/checkpoint"] if example == "recovery" else []
    ran = home.towline("launch", str(shortened), *checkpoint)
    assert ran.returncode == 0, ran.stderr


def test_a_job_started_by_temporals_own_command_line_is_a_job_like_any_other(home: Home) -> None:
    address = json.loads(home.towline("up", "--json").stdout)["address"]

    def start(job_id: str, *inputs: str) -> None:
        command = [find_temporal(), "workflow", "start", "--address", address, "--type", "ManagedJob"]
        command += ["--task-queue", "towline", "--workflow-id", job_id]
        given = [word for text in inputs for word in ("--input", text)]
        subprocess.run([*command, *given], check=True, capture_output=True, timeout=LIMIT_S)

    start("raw", '{"name":"x","tasks":[{"run":"echo hi"}]}')
    assert home.towline("logs", "raw").stdout == "hi\n"
    bad = {
        "empty": ["{}"],
        "list": ["[]"],
        "null": ["null"],
        "none": [],
        "two": ['{"name":"x","tasks":[{"run":"true"}]}', "7"],
        "type": ['{"name":"x","tasks":[{"run":7}]}'],
        "key": ['{"name":"x","tasks":[{"runn":"x"}]}'],
        "provider": ['{"name":"x","tasks":[{"run":"x","resources":{"infra":"aws"}}]}'],
    }
    for name, inputs in bad.items():
        start(f"bad {name}", *inputs)
    for name in bad:
        ended = home.towline("logs", f"bad {name}")
        assert ended.returncode == 100, (name, ended.stderr)
        document = json.loads(home.towline("status", f"bad {name}", "--json").stdout)
        assert document["status"] == "FAILED_PRECHECKS", (name, document)
        assert document["reason"], name


def test_a_second_launch_of_a_job_id_attaches_to_the_job_that_has_it(home: Home) -> None:
    first = home.towline("launch", "-d", "--job-id", "once", "examples/hello.yaml")
    second = home.towline("launch", "--job-id", "once", "examples/hello.yaml")
    assert first.stdout == "once\n"
    assert second.returncode == 0
    assert "attached" in second.stderr
    rows = json.loads(home.towline("queue", "--json").stdout)
    assert [row["job_id"] for row in rows].count("once") == 1


async def test_ten_launches_at_once_start_one_stack(homes: list[Home]) -> None:
    home = homes[0]
    ran = await asyncio.gather(
        *(asyncio.to_thread(home.towline, "launch", "--job-id", f"j{n}", "examples/hello.yaml") for n in range(10))
    )
    assert [each.returncode for each in ran] == [0] * 10, [each.stderr for each in ran if each.returncode]
    assert len(json.loads(home.towline("queue", "--json").stdout)) == 10
