"""How the command line starts and how it ends, as a process."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import COMMAND, ROOT, environment, run
from towline.cli import towline


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path / "home")


def test_help_imports_nothing_that_takes_long(env: dict[str, str]) -> None:
    heavy = "{'temporalio', 'asyncssh', 'pydantic', 'rich', 'asyncio', 'yaml', 'psutil', 'json'}"
    script = f"import sys, towline.cli; print(sorted({heavy} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_a_library_that_warns_of_itself_is_not_heard(env: dict[str, str]) -> None:
    done = run("nodes", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"no nodes are held\n", b"")


@pytest.mark.parametrize("name", sorted(towline.commands))
def test_every_command_has_help(env: dict[str, str], name: str) -> None:
    done = run(name, "--help", env=env)
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: towline {name}".encode())


def test_help_tells_every_exit_code(env: dict[str, str]) -> None:
    words = run("--help", env=env).stdout.decode().replace(",", " ").split()
    assert {"0", "2", "3", "70", "100", "101", "102", "103", "130", "141"} <= set(words)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["launch"],
        ["launch", "a.yaml", "--nonsense"],
        ["launch", "no-such-file.yaml"],
        ["launch", "a.yaml", "--job-id", ""],
        ["launch", "a.yaml", "--job-id", "a\nb"],
        ["launch", "a.yaml", "--job-id", "x" * 201],
        ["launch", "/"],
        ["queue", "--limit", "0"],
        ["queue", "--status", "HAPPY"],
        ["status", ""],
        ["logs", "job", "--attempt", "0"],
        ["logs", "job", "--tail", "-1"],
        ["logs", "job", "--tail", "1", "--sync-down", "x"],
        ["cancel"],
        ["cancel", "job", "--all"],
        ["nodes", "nonsense"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_a_line_without_a_traceback_and_exit_code_2(env: dict[str, str], arguments: list[str]) -> None:
    done = run(*arguments, env=env)
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"error: " in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["queue"], ["status", "job"], ["logs", "job"], ["cancel", "job"]], ids=" ".join)
def test_no_server_is_exit_code_3_with_the_way_out(env: dict[str, str], arguments: list[str]) -> None:
    done = run(*arguments, env=env)
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr == b"error: no Temporal server: run `towline up` for the embedded one, or set TEMPORAL_ADDRESS\n"
    done = run(*arguments, env={**env, "TEMPORAL_ADDRESS": "127.0.0.1:1"})
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.startswith(b"error: no Temporal server answers at 127.0.0.1:1")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("address", ["http://x:y", "https://127.0.0.1:7233", "localhost", "x:70000", "a b:1", ":7233"])
def test_an_address_that_cannot_be_one_is_refused_by_its_name(env: dict[str, str], address: str) -> None:
    done = run("queue", env={**env, "TEMPORAL_ADDRESS": address})
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"error: TEMPORAL_ADDRESS={address}: write HOST:PORT\n"
    assert not Path(env["TOWLINE_HOME"]).exists()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:1", "connection refused"),
        ("[::1]:1", "connection refused"),
        ("no-such-host.invalid:7233", "its host is unknown"),
    ],
)
def test_why_no_server_answers_is_said_in_words(env: dict[str, str], address: str, reason: str) -> None:
    done = run("queue", env={**env, "TEMPORAL_ADDRESS": address})
    assert done.returncode == 3
    assert done.stderr.decode().startswith(f"error: no Temporal server answers at {address} ({reason}); ")
    assert done.stderr.count(b"\n") == 1


def test_a_port_that_says_nothing_gives_no_answer(env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = run("queue", env={**env, "TEMPORAL_ADDRESS": f"127.0.0.1:{silent.getsockname()[1]}"})
    assert done.returncode == 3
    assert b" (no answer" in done.stderr
    assert b"Error" not in done.stderr


@pytest.mark.parametrize("command", ["up", "down"])
def test_the_embedded_stack_is_not_for_who_has_a_server(env: dict[str, str], command: str) -> None:
    done = run(command, env={**env, "TEMPORAL_ADDRESS": "127.0.0.1:1"})
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: TEMPORAL_ADDRESS is set")
    assert done.stderr.count(b"\n") == 1


def test_down_with_nothing_running_says_only_that(env: dict[str, str]) -> None:
    done = run("down", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"nothing was running\n")


def test_without_a_command_there_is_plain_help_and_exit_code_2(env: dict[str, str]) -> None:
    done = run(env=env)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"Usage: towline ")
    assert done.stderr.rstrip() == run("--help", env=env).stdout.rstrip()
    assert b"error: " not in done.stderr


def test_bytes_that_are_no_text_are_no_job_id(env: dict[str, str]) -> None:
    for arguments in ([b"status", b"\xff"], [b"launch", b"--job-id", b"a\xff", b"no-such-file.yaml"]):
        command = [*map(os.fsencode, COMMAND), *arguments]
        done = subprocess.run(command, env=env, capture_output=True, check=False)
        assert done.returncode == 2
        assert b"UTF-8" in done.stderr
        assert b"Traceback" not in done.stderr


def test_a_fault_of_ours_is_one_line_and_a_private_file_with_the_traceback(tmp_path: Path) -> None:
    script = """
from towline.cli.border import guarded, leave
def broken():
    raise RuntimeError("first line\\nsecond \\x1b[31mline")
leave(guarded(broken))
"""
    home = tmp_path / "home"
    done = subprocess.run([sys.executable, "-c", script], env=environment(home), capture_output=True, check=False)
    assert done.returncode == 70
    (path,) = (home / "log").iterdir()
    assert done.stderr.decode().startswith(f"error: a fault of Towline's own, please report it with {path}: ")
    assert done.stderr.count(b"\n") == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert "RuntimeError: first line" in path.read_text()


def test_a_full_disk_behind_standard_output_is_said(env: dict[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, "schema"], env=env, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr == b"error: output: No space left on device\n"


@pytest.mark.parametrize("argument", ["schema", "--help"])
def test_a_reader_who_leaves_is_no_news(env: dict[str, str], argument: str) -> None:
    process = subprocess.Popen([*COMMAND, argument], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=60)
    assert said == b""
    assert process.returncode == 141


def test_closed_streams_do_no_harm(env: dict[str, str]) -> None:
    command = " ".join(COMMAND)
    done = subprocess.run(
        ["sh", "-c", f"{command} schema >&- && {command} schema 2>&- <&-"], env=env, capture_output=True, check=False
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)


def test_it_runs_as_a_module_from_anywhere(env: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "--version"], env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("towline, version ")
    assert (ROOT / "towline" / "__main__.py").exists()
