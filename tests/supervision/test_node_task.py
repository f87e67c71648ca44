"""A task on a node behind OpenSSH, as the rest of the project sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.openssh import OpenSsh, open_ssh
from tests.support.shells import JOB, SHELLS, found, processes_at
from towline.errors import AttemptSuperseded, ConnectionLost, NodeCommandFailed, TaskClosed
from towline.ssh.client import SshClient
from towline.supervision import Commands, NodeAttempt, NodeTask

GATE = "until [ -e ~/{} ]; do sleep 0.02; done"


@asynccontextmanager
async def task_at(server: OpenSsh, index: int = 0) -> AsyncIterator[NodeTask]:
    async with SshClient().connect(server.access) as connection:
        yield NodeTask(connection, JOB, index)


def attempt_file(server: OpenSsh, name: str, attempt: int = 1) -> Path:
    return server.home / ".towline" / JOB / "0" / f"attempt-{attempt}" / name


def supervisor(server: OpenSsh) -> int:
    return int(attempt_file(server, "pid").read_text().split()[0])


async def until(condition: Callable[[], bool]) -> None:
    """For what the node does by itself and tells nobody."""
    while not condition():
        await asyncio.sleep(0.02)


def no_phase(_phase: str) -> None:
    """For who only wants the end."""


async def test_a_task_runs_is_watched_and_followed_to_its_end(openssh: OpenSsh) -> None:
    phases: list[str] = []
    async with task_at(openssh) as task:
        assert await task.attempts() == []
        commands = Commands("echo setup", "echo run $GREETING; exit 3", {"GREETING": "it's $HOME"})
        started = await task.ensure(1, commands)
        ended = await task.watch(1, phases.append)
        assert (ended.state, ended.phase, ended.exit_code) == ("ended", "run", 3)
        assert ended.started_at == started.started_at
        assert phases in ([], ["run"], ["setup", "run"])
        assert await task.attempts() == [ended]
        assert b"".join([data async for data in task.follow(1, 0)]) == b"setup\nrun it's $HOME\n"
        assert await task.log_size(1) == 21


async def test_phases_are_told_as_they_begin(openssh: OpenSsh) -> None:
    phases: asyncio.Queue[str] = asyncio.Queue()
    async with task_at(openssh) as task:
        await task.ensure(1, Commands(GATE.format("a"), GATE.format("b"), {}))
        watching = asyncio.create_task(task.watch(1, phases.put_nowait))
        assert await phases.get() == "setup"
        (openssh.home / "a").touch()
        assert await phases.get() == "run"
        (openssh.home / "b").touch()
        assert (await watching).exit_code == 0


async def test_the_end_is_seen_at_once(openssh: OpenSsh) -> None:
    async with task_at(openssh) as task:
        await task.ensure(1, Commands(None, f"{GATE.format('go')}; touch ~/last", {}))
        watching = asyncio.create_task(task.watch(1, no_phase))
        await until(lambda: len(openssh.sessions()) == 1)
        (openssh.home / "go").touch()
        await watching
        seen_after = time.time() - (openssh.home / "last").stat().st_mtime
        assert seen_after < 0.7  # measured: 40 ms; what it must not be is a poll of seconds, or LAST_WORDS


@pytest.mark.parametrize("shell", SHELLS)
async def test_it_works_whatever_shell_the_node_has(shell: str, tmp_path: Path) -> None:
    with open_ssh(tmp_path / "node", shell=shell) as server:
        async with task_at(server) as task:
            await task.ensure(1, Commands("echo one", "echo two; exit 4", {}))
            assert (await task.watch(1, no_phase)).exit_code == 4
            assert b"".join([data async for data in task.follow(1, 0)]) == b"one\ntwo\n"
            await task.stop(0.1)


async def test_whatever_a_login_prints_is_not_taken_for_an_answer(openssh: OpenSsh) -> None:
    banner = "echo 'Welcome!'; echo 'attempt 1 ended run 0 - -'; printf 'no newline'; echo warning >&2\n"
    (openssh.home / ".bashrc").write_text(banner)
    async with SshClient().connect(openssh.access) as connection:
        assert b"Welcome!" in (await connection.run("true")).stdout
        task = NodeTask(connection, JOB, 0)
        await task.ensure(1, Commands(None, "printf '\\377\\0mine'; exit 5", {}))
        assert (await task.watch(1, no_phase)).exit_code == 5
        assert b"".join([data async for data in task.follow(1, 0)]) == b"\xff\0mine"
        assert await task.next_attempt(0) == 1
        assert not await task.is_closed()


async def test_a_cut_connection_leaves_the_task_alone_and_it_is_attached_to_again(openssh: OpenSsh) -> None:
    async with task_at(openssh) as task:
        started = await task.ensure(1, Commands(None, f"echo $$; {GATE.format('go')}; exit 7", {}))
        watching = asyncio.create_task(task.watch(1, no_phase))
        await until(lambda: len(openssh.sessions()) == 1)
        pid = supervisor(openssh)
        openssh.cut()
        with pytest.raises(ConnectionLost):
            await watching
    openssh.stop()
    os.kill(pid, signal.SIGHUP)
    openssh.start()
    async with task_at(openssh) as task:
        assert await task.ensure(1, Commands(None, "echo other", {})) == started
        assert supervisor(openssh) == pid
        (openssh.home / "go").touch()
        assert (await task.watch(1, no_phase)).exit_code == 7
        assert len(attempt_file(openssh, "log").read_text().split()) == 1


async def test_the_end_that_nobody_watched_is_found(openssh: OpenSsh) -> None:
    async with task_at(openssh) as task:
        await task.ensure(1, Commands(None, "exit 7", {}))
    await until(attempt_file(openssh, "exit").exists)
    async with task_at(openssh) as task:
        (found,) = await task.attempts()
        assert (found.state, found.exit_code) == ("ended", 7)


async def test_a_node_that_lost_power_while_it_ran_is_found_by_its_boot(openssh: OpenSsh) -> None:
    async with task_at(openssh) as task:
        await task.ensure(1, Commands(None, "sleep 1000", {}))
        attempt_file(openssh, "boot").write_text("an earlier boot\n")
        os.kill(supervisor(openssh), signal.SIGKILL)
        assert (await task.watch(1, no_phase)).state == "rebooted"
        assert [each.state for each in await task.attempts()] == ["rebooted"]


async def test_a_supervisor_that_is_killed_is_seen_at_once(openssh: OpenSsh) -> None:
    async with task_at(openssh) as task:
        await task.ensure(1, Commands(None, "sleep 1000", {}))
        watching = asyncio.create_task(task.watch(1, no_phase))
        await until(lambda: len(openssh.sessions()) == 1)
        os.kill(supervisor(openssh), signal.SIGKILL)
        assert (await watching).state == "supervisor_killed"
        await task.ensure(2, Commands(None, "true", {}))
        assert (await task.watch(2, no_phase)).exit_code == 0


async def test_thirty_at_once_over_five_connections_start_it_once(openssh: OpenSsh) -> None:
    commands = Commands(None, f"echo ran >> ~/ran; {GATE.format('go')}", {})

    async def ensure_six() -> set[NodeAttempt]:
        async with task_at(openssh) as task:
            return set(await asyncio.gather(*(task.ensure(1, commands) for _ in range(6))))

    (attempt,) = set().union(*await asyncio.gather(*(ensure_six() for _ in range(5))))
    assert attempt.state == "running"
    await until((openssh.home / "ran").exists)
    assert (openssh.home / "ran").read_text() == "ran\n"


async def test_the_outdated_and_the_closed_are_refused(openssh: OpenSsh) -> None:
    commands = Commands(None, "true", {})
    async with task_at(openssh) as task:
        await task.ensure(2, commands)
        with pytest.raises(AttemptSuperseded):
            await task.ensure(1, commands)
        await task.close()
        assert await task.is_closed()
        with pytest.raises(TaskClosed):
            await task.ensure(3, commands)
        await task.remove()
        assert await task.attempts() == []
        with pytest.raises(TaskClosed):
            await task.ensure(1, commands)


async def test_stop_leaves_nothing_and_says_how_it_ended(openssh: OpenSsh) -> None:
    async with task_at(openssh) as task:
        detached = "setsid sleep 1001 & (setsid sleep 1002 &) & nohup sleep 1003 &"
        run = f"{detached} echo ready; trap '' TERM; sleep 1004; sleep 1"
        await task.ensure(1, Commands(None, run, {}))
        async for _ in task.follow(1, 0):
            break
        await task.stop(0.2)
        (stopped,) = await task.attempts()
        assert (stopped.state, stopped.exit_code) == ("ended", 137)
        assert [each for each in processes_at(openssh.home) if "sleep" in each.words] == []
        assert await task.next_attempt(1) is None


async def test_a_stop_whose_client_vanishes_goes_on(openssh: OpenSsh) -> None:
    async with task_at(openssh) as task:
        await task.ensure(1, Commands(None, "trap '' TERM; echo ready; sleep 1000; sleep 1000", {}))
        async for _ in task.follow(1, 0):
            break
        stopping = asyncio.create_task(task.stop(0.5))
        await until((openssh.home / ".towline" / JOB / "0" / "closed").exists)
        openssh.cut()
        with pytest.raises(ConnectionLost):
            await stopping
    await until(attempt_file(openssh, "exit").exists)


async def test_following_is_live_and_exact(openssh: OpenSsh) -> None:
    run = f"""printf 'a\\377b\\0c\\r\\n'
{GATE.format("go")}
head -c 5000000 /dev/zero | tr '\\0' x
printf 'no newline'"""
    async with task_at(openssh) as task:
        await task.ensure(1, Commands(None, run, {}))
        received = b""
        async for data in task.follow(1, 0):
            received += data
            if received == b"a\xffb\0c\r\n":
                (openssh.home / "go").touch()
        assert received == attempt_file(openssh, "log").read_bytes()
        assert len(received) == 5_000_017
        assert b"".join([data async for data in task.follow(1, 4_999_990)]) == received[4_999_990:]


async def test_a_tail_that_is_killed_on_the_node_costs_nothing(openssh: OpenSsh) -> None:
    run = f"echo one; {GATE.format('a')}; echo two; {GATE.format('b')}; echo three"
    async with task_at(openssh) as task:
        await task.ensure(1, Commands(None, run, {}))
        received = b""
        async for data in task.follow(1, 0):
            received += data
            if received in (b"one\n", b"one\ntwo\n"):
                for process in processes_at(openssh.home):
                    if process.words[:1] == ("tail",):
                        process.send(signal.SIGKILL)
                (openssh.home / ("a" if received == b"one\n" else "b")).touch()
        assert received == b"one\ntwo\nthree\n"


async def test_waiting_for_the_next_attempt_ends_with_it_or_with_the_task(openssh: OpenSsh) -> None:
    async with task_at(openssh) as task:
        waiting = asyncio.create_task(task.next_attempt(0))
        await task.ensure(1, Commands(None, "exit 1", {}))
        assert await waiting == 1
        waiting = asyncio.create_task(task.next_attempt(1))
        await task.ensure(2, Commands(None, "exit 0", {}))
        assert await waiting == 2
        waiting = asyncio.create_task(task.next_attempt(2))
        await task.close()
        assert await waiting is None


@pytest.mark.parametrize("way", ["cut", "left"])
async def test_nobody_waits_on_the_node_for_a_client_that_is_gone(openssh: OpenSsh, way: str) -> None:
    async with task_at(openssh) as task:
        await task.ensure(1, Commands(None, "echo ready; exec sleep 1000", {}))
        await until(lambda: attempt_file(openssh, "log").read_bytes() == b"ready\n")
        theirs = {each.pid for each in processes_at(openssh.home)}

        async def follow() -> None:
            async for _ in task.follow(1, 0):
                pass

        waits = [task.watch(1, no_phase), task.next_attempt(1), follow()]
        waiting = [asyncio.create_task(each) for each in waits]
        await until(lambda: len(openssh.sessions()) == 3)
        if way == "cut":
            openssh.cut()
        else:
            for each in waiting:
                each.cancel()
        for each in waiting:
            with contextlib.suppress(ConnectionLost, asyncio.CancelledError):
                await each
        await until(lambda: {each.pid for each in processes_at(openssh.home)} <= theirs)


async def test_the_script_is_installed_once_and_by_any_number_at_once(openssh: OpenSsh) -> None:
    async def ask() -> list[NodeAttempt]:
        async with task_at(openssh) as task:
            return await task.attempts()

    assert await asyncio.gather(*(ask() for _ in range(8))) == [[]] * 8
    (installed,) = (openssh.home / ".towline" / "bin").iterdir()
    before = installed.stat()
    assert before.st_mode & 0o077 == 0
    await ask()
    assert installed.stat() == before


async def test_a_node_without_the_needed_tools_is_told_by_name(openssh: OpenSsh) -> None:
    (openssh.directory / "bin" / "sh").unlink()
    for tool in ("sh", "bash", "mkdir", "cat", "wc", "mv"):
        path = openssh.directory / "bin" / tool
        path.symlink_to(found(tool))
    openssh.stop()
    openssh.settings = [f'SetEnv HOME={openssh.home} PATH="{openssh.directory / "bin"}"']
    openssh.start()
    async with task_at(openssh) as task:
        with pytest.raises(NodeCommandFailed, match="the node lacks flock"):
            await task.ensure(1, Commands(None, "true", {}))


async def test_a_node_that_freezes_is_not_a_task_that_ended(openssh: OpenSsh) -> None:
    async with SshClient(keepalive_interval_s=0.2).connect(openssh.access) as connection:
        task = NodeTask(connection, JOB, 0)
        await task.ensure(1, Commands(None, GATE.format("go"), {}))
        openssh.freeze()
        with pytest.raises(ConnectionLost):
            await task.watch(1, no_phase)
    openssh.thaw()
    async with task_at(openssh) as again:
        assert [each.state for each in await again.attempts()] == ["running"]
        (openssh.home / "go").touch()
        assert (await again.watch(1, no_phase)).exit_code == 0
