"""The command line on the embedded stack: real Temporal, real worker, real nodes, pipes and terminals."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.command import COMMAND, environment, run, terminal

pytestmark = pytest.mark.xdist_group("cli-stack")

LIVE = "echo begun; until [ -e {gate} ]; do sleep 0.05; done; echo released"


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    env = environment(tmp_path_factory.mktemp("stack") / "home", TOWLINE_STOP_GRACE="1")
    up = run("up", "--json", env=env)
    assert up.returncode == 0, up.stderr
    assert set(json.loads(up.stdout)) == {"address", "web_ui_url"}
    try:
        yield env
    finally:
        run("cancel", "--all", "--wait", env=env)
        assert run("down", env=env).returncode == 0


class Live:
    """A job that prints "begun" and goes on until it is let go."""

    def __init__(self, directory: Path, env: dict[str, str], job_id: str) -> None:
        self.gate = directory / "gate"
        self.file = directory / "live.yaml"
        self.file.write_text(f"run: {LIVE.format(gate=self.gate)}\n")
        self.id = job_id
        self.env = env

    def launch(self) -> None:
        done = run("launch", "-d", "--job-id", self.id, str(self.file), env=self.env)
        assert done.returncode == 0, done.stderr

    def release(self) -> None:
        self.gate.touch()


@pytest.fixture
def live(tmp_path: Path, env: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Live]:
    job = Live(tmp_path, env, "live-" + re.sub(r"\W+", "-", request.node.name)[:100])
    yield job
    job.release()
    run("cancel", job.id, env=env)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def status(job_id: str, env: dict[str, str]) -> dict[str, object]:
    done = run("status", "--json", job_id, env=env)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_a_launch_follows_to_the_end_and_its_exit_code_is_the_jobs(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(
        tmp_path / "job.yaml",
        "resources: {job_recovery: {max_restarts_on_errors: 1}}\nrun: echo try $TOWLINE_ATTEMPT; exit 3\n"
        "---\nrun: echo no\n",
    )
    done = run("launch", "--job-id", "restarts", file, env=env)
    assert done.returncode == 100
    assert done.stdout == b"try 1\ntry 2\n"
    said = done.stderr.decode().splitlines()
    assert said[0] == "submitted job restarts"
    assert said[1].startswith("Web UI: http://127.0.0.1:")
    assert "`towline logs restarts`" in said[2]
    assert "towline: task 1/2 job-0: attempt 1 FAILED: exit code 3" in said
    assert said[-2] == "job restarts FAILED: task 1/2 job-0: exit code 3 after 1 restart"
    assert said[-1].startswith("see it at http://")
    assert any(line.startswith("task 2/2 job-1 CANCELLED") for line in said)


def test_any_bytes_arrive_untouched(tmp_path: Path, env: dict[str, str]) -> None:
    script = r"printf '\377\376\0\r\033[31m'; head -c 3000000 /dev/zero | tr '\0' x; printf 'no newline'"
    file = write(tmp_path / "bytes.yaml", f"run: |\n  {script}\n")
    done = run("launch", "--job-id", "bytes", file, env=env)
    assert done.returncode == 0
    assert done.stdout == b"\377\376\0\r\033[31m" + b"x" * 3_000_000 + b"no newline"
    again = run("logs", "--no-follow", "bytes", env=env)
    assert (again.returncode, again.stdout) == (0, done.stdout)


def test_a_detached_launch_prints_the_job_id_and_nothing_else(live: Live, env: dict[str, str]) -> None:
    done = run("launch", "-d", "--job-id", live.id, str(live.file), env=env)
    assert (done.returncode, done.stdout) == (0, f"{live.id}\n".encode())
    again = run("launch", "-d", "--json", "--job-id", live.id, str(live.file), env=env)
    assert json.loads(again.stdout)["attached"] is True
    live.release()
    assert run("logs", live.id, env=env).stdout == b"begun\nreleased\n"


def test_a_detached_launch_says_beside_that_it_attached_and_where_to_look(live: Live, env: dict[str, str]) -> None:
    command = ("launch", "-d", "--job-id", live.id, str(live.file))
    first, second = run(*command, env=env), run(*command, env=env)
    assert first.stderr.startswith(b"Web UI: http://127.0.0.1:")
    assert second.stderr.decode().startswith(f"attached to job {live.id}\nWeb UI: http://127.0.0.1:")
    assert first.stdout == second.stdout == f"{live.id}\n".encode()
    live.file.write_text("run: echo another\n")
    other = run(*command, env=env)
    text = f"error: job {live.id} exists and was submitted with other content; choose another --job-id\n"
    assert (other.returncode, other.stdout, other.stderr.decode()) == (2, b"", text)


def test_the_id_of_a_foreign_workflow_is_an_error_before_anything_is_said(tmp_path: Path, env: dict[str, str]) -> None:
    asyncio.run(_start_foreign(env, "foreign"))
    file = write(tmp_path / "job.yaml", "run: 'true'\n")
    for options in ([], ["-d"], ["-d", "--json"]):
        done = run("launch", *options, "--job-id", "foreign", file, env=env)
        text = "error: --job-id foreign: a workflow of type SomethingElse has this id; choose another\n"
        assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", text)


async def _start_foreign(env: dict[str, str], job_id: str) -> None:
    port = json.loads((Path(env["TOWLINE_HOME"]) / "stack.json").read_text())["port"]
    client = await Client.connect(f"127.0.0.1:{port}")
    await client.start_workflow("SomethingElse", id=job_id, task_queue="nobody")


def test_ctrl_c_before_the_submission_says_that_nothing_was_submitted(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "job.yaml", "run: 'true'\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with terminal("launch", file, env={**env, "TEMPORAL_ADDRESS": address}) as screen:
            connection, _ = silent.accept()  # it has begun to connect, and is held
            with connection:
                screen.press_ctrl_c()
                assert screen.process.wait(30) == 130
            screen.wait_for(b"nothing was submitted")
            assert b"Traceback" not in screen.screen


def test_one_task_is_found_by_its_number_first_and_told_alone(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(
        tmp_path / "job.yaml", "name: '2'\nrun: echo one\n---\nname: b\nrun: echo two\n---\nname: c\nrun: exit 1\n"
    )
    assert run("launch", "--job-id", "numbers", file, env=env).returncode == 100
    done = run("logs", "numbers", "2", env=env)
    said = done.stderr.decode()
    assert done.stdout == b"two\n"
    assert "towline: task 2/3 b: SUCCEEDED" in said
    assert "\ntask 2/3 b SUCCEEDED" in said
    assert "\njob numbers FAILED" in said
    assert "task 1/3 2" not in said
    assert "task 3/3 c SUCCEEDED" not in said
    assert "\ntask 3/3" not in said
    assert run("logs", "numbers", "b", env=env).stdout == b"two\n"


def test_logs_that_cannot_be_are_one_line_and_not_found(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "job.yaml", "name: a\nrun: exit 1\n---\nname: b\nrun: echo no\n")
    assert run("launch", "--job-id", "few", file, env=env).returncode == 100
    asked = {
        ("1", "--attempt", "7"): "task 1/2 a has no attempt 7; it had 1",
        ("1", "--node", "4"): "task 1/2 a has no node 4; its only node is 0",
        ("2",): "task 2/2 b never started (CANCELLED: not started: task a ended FAILED)",
    }
    for options, why in asked.items():
        for follow in ("--follow", "--no-follow"):
            done = run("logs", follow, "few", *options, env=env)
            assert (done.returncode, done.stdout, done.stderr.decode()) == (102, b"", f"error: job few: {why}\n")


def test_a_log_store_that_is_not_the_workers_is_said_without_following_too(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "job.yaml", "run: echo one\n")
    assert run("launch", "--job-id", "elsewhere", file, env=env).returncode == 0
    store = tmp_path / "other"
    done = run("logs", "--no-follow", "elsewhere", env={**env, "TOWLINE_LOG_STORE": str(store)})
    assert (done.returncode, done.stdout) == (0, b"")
    what = f"towline: log incomplete: {store} has nothing of task 1, attempt 1; "
    assert done.stderr.decode() == what + "TOWLINE_LOG_STORE must be the one that the workers use\n"


def test_json_of_a_followed_launch_is_the_status_and_the_bytes_go_beside(tmp_path: Path, env: dict[str, str]) -> None:
    done = run("launch", "--json", write(tmp_path / "job.yaml", "run: echo hello\n"), env=env)
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "SUCCEEDED"
    assert b"hello\n" in done.stderr


def test_ctrl_c_on_a_terminal_leaves_the_job_alone_and_says_how_to_come_back(live: Live, env: dict[str, str]) -> None:
    with terminal("launch", "--job-id", live.id, str(live.file), env=env) as screen:
        screen.wait_for(b"begun")
        screen.press_ctrl_c()
        assert screen.process.wait(30) == 101
        screen.wait_for(b"which goes on")
    assert status(live.id, env)["status"] == "RUNNING"
    live.release()
    done = run("logs", live.id, env=env)
    assert (done.returncode, done.stdout) == (0, b"begun\nreleased\n")


def test_ctrl_c_works_while_the_reader_of_the_output_sleeps(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "flood.yaml", "run: head -c 2000000 /dev/zero\n")
    assert run("launch", "--job-id", "flood", file, env=env).returncode == 0
    process = subprocess.Popen([*COMMAND, "logs", "flood"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(1) == b"\0"  # the pipe is full now, or soon
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 101
    assert b"left job flood" in process.stderr.read()


def test_words_on_a_terminal_begin_a_line_of_their_own(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "job.yaml", "run: printf unfinished\n")
    with terminal("launch", file, env=env) as screen:
        screen.wait_for(b"see it at")
        assert screen.process.wait(60) == 0
        assert b"unfinished\r\n" in screen.screen


def test_no_follow_of_a_live_job_is_not_finished(live: Live, env: dict[str, str]) -> None:
    live.launch()
    with terminal("logs", live.id, env=env) as screen:
        screen.wait_for(b"begun")
    done = run("logs", "--no-follow", live.id, env=env)
    assert (done.returncode, done.stdout) == (101, b"begun\n")


def test_a_reader_who_leaves_ends_a_follow_quietly(live: Live, env: dict[str, str]) -> None:
    live.launch()
    shell = f"{' '.join(COMMAND)} logs {live.id} 2>said | head -n1; echo ${{PIPESTATUS[0]}}; cat said >&2"
    process = subprocess.Popen(["bash", "-c", shell], env=env, cwd=live.gate.parent, stdout=-1, stderr=-1)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    live.release()
    code, said = process.communicate(timeout=60)
    assert code == b"141\n"
    assert b"error" not in said
    assert b"Traceback" not in said


def test_a_reader_who_leaves_the_logs_of_an_ended_job_is_exit_code_141(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "lines.yaml", "run: seq 1 500000\n")
    assert run("launch", "--job-id", "lines", file, env=env).returncode == 0
    for options in ("", "--no-follow", "--tail 400000"):
        for errors in ("", "2>&1"):
            shell = f"{' '.join(COMMAND)} logs lines {options} {errors} | head -n1 >/dev/null; echo ${{PIPESTATUS[0]}}"
            done = subprocess.run(["bash", "-c", shell], env=env, capture_output=True, check=True)
            assert done.stdout == b"141\n", (options, errors)
            assert done.stderr == b"" or not errors


def test_a_lost_node_is_followed_through_its_recovery(live: Live, env: dict[str, str]) -> None:
    live.launch()
    with terminal("logs", live.id, env=env, columns=200) as screen:
        screen.wait_for(b"begun")
        assert {node["state"] for node in json.loads(run("nodes", "--json", env=env).stdout)} == {"held"}
        held = [node for node in json.loads(run("nodes", "--json", env=env).stdout) if node["job_id"] == live.id]
        assert set(held[0]) == {"node_id", "job_id", "task_index", "rank", "provider", "host", "port", "pid", "state"}
        gone = run("nodes", "preempt", held[0]["node_id"], env=env)
        assert gone.returncode == 0
        screen.wait_for(b"RECOVERING")
        live.release()
        assert screen.process.wait(90) == 0
    done = run("logs", live.id, env=env)
    assert done.stdout.startswith(b"begun\n")
    assert done.stdout.endswith(b"begun\nreleased\n")
    (task,) = status(live.id, env)["tasks"]  # type: ignore[misc]
    assert (task["recoveries"], task["restarts"]) == (1, 0)
    assert run("logs", "--attempt", "2", live.id, env=env).stdout == b"begun\nreleased\n"
    assert run("logs", "--tail", "1", live.id, "1", env=env).stdout == b"released\n"


def test_logs_are_copied_whole(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "two.yaml", "run: echo one\n---\nrun: echo two\n")
    assert run("launch", "--job-id", "copied", file, env=env).returncode == 0
    done = run("logs", "copied", "--sync-down", str(tmp_path / "copy"), env=env)
    assert done.returncode == 0
    copied = {
        str(each.relative_to(tmp_path / "copy")): each.read_bytes() for each in (tmp_path / "copy").rglob("*.log")
    }
    assert copied == {"task-1/attempt-1/node-0.log": b"one\n", "task-2/attempt-1/node-0.log": b"two\n"}
    assert run("logs", "copied", "two-1", env=env).stdout == b"two\n"
    assert run("logs", "copied", "2", env=env).stdout == b"two\n"


def test_cancel_returns_when_accepted_and_with_wait_when_all_is_gone(live: Live, env: dict[str, str]) -> None:
    live.launch()
    done = run("cancel", "no-such-job", live.id, "--wait", env=env)
    assert done.returncode == 102
    assert b"no-such-job" in done.stderr
    assert f"{live.id}: CANCELLED".encode() in done.stderr
    assert run("logs", live.id, env=env).returncode == 103
    assert not [node for node in json.loads(run("nodes", "--json", env=env).stdout) if node["job_id"] == live.id]
    again = run("cancel", live.id, env=env)
    assert again.returncode == 0
    assert b"has already ended CANCELLED" in again.stderr


def test_the_queue_lists_what_was_launched_newest_first(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "job.yaml", "run: 'true'\n")
    for job_id in ("earlier", "later"):
        assert run("launch", "--job-id", job_id, file, env=env).returncode == 0
    rows = json.loads(run("queue", "--json", "--status", "succeeded", env=env).stdout)
    ids = [row["job_id"] for row in rows]
    assert ids.index("later") < ids.index("earlier")
    fields = {
        "job_id",
        "name",
        "status",
        "reason",
        "submitted_at",
        "duration_s",
        "task",
        "tasks",
        "restarts",
        "recoveries",
    }
    assert set(rows[0]) == fields
    assert len(json.loads(run("queue", "--json", "--limit", "1", env=env).stdout)) == 1


@pytest.mark.parametrize("columns", [40, 80])
def test_colour_is_for_terminals_alone_and_can_be_refused(tmp_path: Path, env: dict[str, str], columns: int) -> None:
    run("launch", "--job-id", "coloured", write(tmp_path / "job.yaml", "run: 'true'\n"), env=env)
    colours = re.compile(rb"\x1b\[[0-9;]*3[0-9][0-9;]*m")
    with terminal("status", "coloured", env=env, columns=columns) as screen:
        assert screen.process.wait(60) == 0
        screen.wait_for(b"SUCCEEDED")
        assert colours.search(screen.screen)
    with terminal("status", "coloured", env={**env, "NO_COLOR": "1"}, columns=columns) as screen:
        assert screen.process.wait(60) == 0
        screen.wait_for(b"SUCCEEDED")
        assert not colours.search(screen.screen)
    assert b"\x1b" not in run("status", "coloured", env=env).stdout


@pytest.mark.parametrize("command", ["status", "logs", "cancel"])
def test_an_unknown_job_is_not_found(env: dict[str, str], command: str) -> None:
    done = run(command, "no-such-job", env=env)
    assert (done.returncode, done.stdout) == (102, b"")
    assert done.stderr.startswith(b"error: ")


def test_an_unknown_task_or_node_is_not_found(tmp_path: Path, env: dict[str, str]) -> None:
    run("launch", "--job-id", "small", write(tmp_path / "job.yaml", "run: 'true'\n"), env=env)
    done = run("logs", "small", "7", env=env)
    assert done.returncode == 102
    assert b"its tasks are: 1 job-0" in done.stderr
    assert run("nodes", "preempt", "local-000000000000", env=env).returncode == 102


def test_a_follow_outlasts_an_outage_of_the_stack(live: Live, env: dict[str, str]) -> None:
    live.launch()
    process = subprocess.Popen([*COMMAND, "logs", live.id], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"begun\n"
    assert run("down", env=env).returncode == 0
    while b"waiting for it, the job goes on" not in (line := process.stderr.readline()):
        assert line, "the follow ended"
    assert run("up", env=env).returncode == 0
    live.release()
    rest, said = process.communicate(timeout=90)
    assert (process.returncode, rest) == (0, b"released\n")
    assert b"the Temporal server answers again" in said
