"""What a task does is what the job says: exit codes, bytes, environment, leftovers."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.system import System, own_seconds, statuses, with_budget
from towline.status import Status

EXIT_CODES = {
    "plain": ("exit 7", 7),
    "failing last line": ("true\nfalse", 1),
    "exec false": ("exec false", 1),
    "set -e": ("set -e; false; exit 0", 1),
    "trap": ("trap 'exit 3' EXIT", 3),
    "killed": ("kill -9 $$", 137),
    "trailing backslash": ("exit 5 \\", 5),
    "open here-document": ("cat <<END\nhello\nexit 9", 0),
    "code after exit": ("exit 4\nexit 0", 4),
    "empty stdin": ("cat > /dev/null; exit 6", 6),
    "beyond a byte": ("exit 300", 44),
    "large": ("# " + "x" * 400_000 + "\nexit 8", 8),
    "quotes": ("""[ "it's" = 'it'"'"'s' ] && [ '"' = "\\"" ] && exit 11""", 11),
}


async def test_the_exit_code_that_is_reported_is_the_one_of_the_task_whatever_it_prints_or_traps(
    system: System,
) -> None:
    async def one(run: str) -> int | None:
        document = await system.run({"run": run})
        assert (document["status"] == Status.SUCCEEDED) == (document["tasks"][0]["exit_code"] == 0)
        return document["tasks"][0]["exit_code"]

    codes = await asyncio.gather(*(one(run) for run, _ in EXIT_CODES.values()))
    assert dict(zip(EXIT_CODES, codes, strict=True)) == {name: code for name, (_, code) in EXIT_CODES.items()}


async def test_every_byte_that_a_task_prints_is_in_the_log_and_on_the_stdout_of_logs(system: System) -> None:
    odd = (
        r"printf 'nul \0 bad \377\376 cr \r\n'; head -c 5000000 /dev/zero | tr '\0' x; "
        r"printf '\nlast \303\251 without newline'"
    )
    expected = b"nul \0 bad \xff\xfe cr \r\n" + b"x" * 5_000_000 + b"\nlast \xc3\xa9 without newline"
    job_id = await system.submit({"run": odd})
    await system.ended(job_id)
    assert await system.log(job_id) == expected
    assert (await system.cli("logs", job_id)).out == expected
    assert (await system.cli("logs", job_id, "--no-follow")).out == expected


async def test_environment_values_arrive_byte_for_byte(system: System) -> None:
    values = {
        "LINES_OF": "one\ntwo\n\n",
        "QUOTES": """it's "so" \\ $(id) `id` $HOME""",
        "EMOJI": "🚣 é",
        "LONG": "y" * 100_000,
        "EMPTY": "",
        "SPACES": "  a  b  ",
    }
    run = "\n".join(f'printf %s "${name}" | sha256sum' for name in values)
    job_id = await system.submit({"run": run, "envs": values})
    await system.ended(job_id)
    import hashlib

    digests = [hashlib.sha256(value.encode()).hexdigest() for value in values.values()]
    assert [line.split()[0] for line in (await system.log(job_id)).decode().splitlines()] == digests


async def test_a_task_sees_who_it_is_in_towlines_words_and_in_skypilots(system: System) -> None:
    job_id = await system.submit(
        {"name": "who", "run": "env | grep -E '^(TOWLINE|SKYPILOT)_' | sort; pwd; ls -d ~/towline_workdir"}
    )
    document = await system.ended(job_id)
    seen = (await system.log(job_id)).decode().splitlines()
    for line in (
        f"TOWLINE_JOB_ID={job_id}",
        f"TOWLINE_TASK_ID={job_id}-0",
        "TOWLINE_TASK_NAME=who",
        "TOWLINE_ATTEMPT=1",
        "TOWLINE_RESTARTS=0",
        "TOWLINE_RECOVERIES=0",
        "TOWLINE_NUM_NODES=1",
        "TOWLINE_NODE_IPS=127.0.0.1",
        f"SKYPILOT_TASK_ID={job_id}-0",
        "SKYPILOT_NODE_RANK=0",
        "SKYPILOT_NUM_GPUS_PER_NODE=0",
    ):
        assert line in seen
    assert seen[-2].endswith("/sky_workdir")
    assert document["status"] == Status.SUCCEEDED


@pytest.mark.parametrize("where", ["setup", "run"])
async def test_what_a_task_leaves_behind_holds_nothing_open_and_dies_with_its_node(system: System, where: str) -> None:
    seconds = own_seconds()
    leaves = f"nohup sleep {seconds} >/dev/null 2>&1 & setsid sleep {seconds} &\ntrue"
    task = {"setup": "true", "run": "true", where: leaves}
    document = await system.run(task)
    assert document["status"] == Status.SUCCEEDED
    assert system.held_nodes() == []
    assert system.processes_of(f"sleep {seconds}") == []


async def test_leftovers_of_a_failed_attempt_are_gone_before_the_next_one_begins(system: System) -> None:
    seconds = own_seconds()
    run = f"setsid sleep {seconds} & [ $TOWLINE_ATTEMPT = 2 ] || exit 1; ps -ef | grep -c '[s]leep {seconds}'"
    job_id = await system.submit(with_budget(1, run=run))
    document = await system.ended(job_id)
    assert document["status"] == Status.SUCCEEDED
    assert (await system.log(job_id, attempt=2)) == b"1\n"


async def test_first_middle_and_last_task_restart_in_one_stream_and_a_failed_setup_restarts_too(system: System) -> None:
    fails_once = "echo $TOWLINE_TASK_INDEX.$TOWLINE_ATTEMPT; [ $TOWLINE_ATTEMPT = 2 ]"
    tasks = [
        with_budget(1, run=fails_once),
        with_budget(1, setup=fails_once, run="true"),
        with_budget(1, run=fails_once),
    ]
    job_id = await system.submit(*tasks)
    followed = await system.cli("logs", job_id)
    assert followed.out == b"0.1\n0.2\n1.1\n1.2\n2.1\n2.2\n"
    assert followed.code == 0
    document = await system.ended(job_id)
    assert [task["restarts"] for task in document["tasks"]] == [1, 1, 1]
    assert document["tasks"][1]["attempts"][0]["status"] == Status.FAILED_SETUP


async def test_a_task_with_setup_and_no_run_does_its_setup(system: System) -> None:
    document = await system.run({"setup": "exit 0"}, {"setup": "exit 3"})
    assert statuses(document) == [Status.SUCCEEDED, Status.FAILED_SETUP]
    assert document["tasks"][1]["exit_code"] == 3
