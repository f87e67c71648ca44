"""Logs are whole whatever is printed and whoever dies, and trouble with them is never the task's."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cloud import Cloud
from tests.support.oracles import Diary, assert_counted, log_grows, processes_of_job
from tests.support.system import ROOT, System, until, with_budget
from towline.status import Status

PRINTS = {
    "characters split at every border": "python3 -c 'print(\"äöü€𝄞\" * 200_000)'",
    "bytes that are no text": "head -c 2000000 /dev/urandom",
    "nothing but NUL": "head -c 3000000 /dev/zero",
    "a line of five megabytes": "head -c 5000000 /dev/zero | tr '\\0' x; echo",
    "a progress bar": "for n in $(seq 200000); do printf 'step %d\\r' $n; done",
    "no newline at the end": "printf 'the end'",
}


@pytest.mark.parametrize("name", PRINTS)
async def test_every_byte_is_kept_once_though_workers_die_meanwhile(idle: System, tmp_path: Path, name: str) -> None:
    """The same bytes go to a file; what is printed in one go is read by several workers."""
    worker = await idle.worker()
    file = tmp_path / "printed"
    command = PRINTS[name]
    job_id = await idle.submit({"run": f"({command}) 2>&1 | tee {file}"})
    for _ in range(3):
        worker.send(signal.SIGKILL)
        worker = await idle.worker()
    assert (await idle.ended(job_id))["status"] == Status.SUCCEEDED
    assert _digest(await idle.log(job_id)) == _digest(file.read_bytes())


def _digest(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()


async def test_a_thousand_identical_lines_and_five_dead_workers_are_a_thousand_lines(
    idle: System, tmp_path: Path
) -> None:
    worker = await idle.worker()
    job_id = await idle.submit({"run": "for n in $(seq 1000); do echo same; sleep 0.02; done"})
    for _ in range(5):
        await log_grows(idle, job_id)
        worker.send(signal.SIGKILL)
        worker = await idle.worker()
    assert (await idle.ended(job_id))["status"] == Status.SUCCEEDED
    assert await idle.log(job_id) == b"same\n" * 1000


@pytest.mark.timeout(300)
async def test_after_two_hundred_megabytes_the_last_line_on_stderr_is_still_there(idle: System) -> None:
    import psutil

    worker = await idle.worker()
    size = 200_000_000
    job_id = await idle.submit({"run": f"head -c {size} /dev/zero; echo the last words >&2; exit 1"})
    document = await idle.ended(job_id, 200)
    assert (document["status"], document["tasks"][0]["exit_code"]) == (Status.FAILED, 1)
    path = await idle.log_path(job_id)
    assert path.stat().st_size == size + len("the last words\n")
    with path.open("rb") as log:
        log.seek(size)
        assert log.read() == b"the last words\n"
    assert psutil.Process(worker.process.pid).memory_info().rss < 400 << 20


async def test_a_tail_killed_on_the_node_again_and_again_loses_nothing(idle: System, diary: Diary) -> None:
    await idle.worker()
    job_id = await idle.submit({"run": diary.task})
    await diary.started()
    key = await idle.jobs.log_key(job_id)
    for _ in range(5):
        await log_grows(idle, job_id)
        killed = _kill_tails(key)
        assert killed
    diary.let_go()
    document = await idle.ended(job_id)
    assert document["status"] == Status.SUCCEEDED
    log = await idle.log(job_id)
    assert_counted(log)
    assert log == diary.printed()


def _kill_tails(job_key: str) -> int:
    import psutil

    killed = 0
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        if command[0] == "tail" and job_key in " ".join(command):
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
    return killed


async def test_a_child_that_holds_the_log_open_holds_nobody_up(idle: System) -> None:
    await idle.worker()
    job_id = await idle.submit({"run": "(sleep 3; echo too late; sleep 600) & echo done"}, {"run": "true"})
    document = await idle.ended(job_id, 30)
    assert document["status"] == Status.SUCCEEDED
    assert (await idle.log(job_id)).startswith(b"done\n")
    assert processes_of_job(await idle.jobs.log_key(job_id)) == []


@pytest.mark.parametrize(("place", "code"), [("before-stop", 4), ("before-log-end", 0)])
async def test_the_end_of_a_log_waits_for_as_long_as_no_worker_lives(
    clouded: System, cloud: Cloud, diary: Diary, place: str, code: int
) -> None:
    """The limits on stopping and draining count the time in which somebody tried."""
    clouded.extra_environment |= {"TOWLINE_DRAIN_LIMIT": "0.3", "TOWLINE_STOP_GRACE": "1"}
    doomed = await clouded.worker(FAULT_AT=place)
    job_id = await clouded.submit({"run": f"{diary.task}\nexit {code}"})
    await diary.started()
    await log_grows(clouded, job_id)
    diary.let_go()
    await until(lambda: doomed.process.poll() is not None, f"the worker dies: {place}")
    await asyncio.sleep(12)  # the fault itself: longer than either limit
    await clouded.worker()
    assert (await clouded.ended(job_id))["tasks"][0]["exit_code"] == code
    assert await clouded.log(job_id) == diary.printed()
    end = (await clouded.log_path(job_id)).with_suffix(".end")
    assert json.loads(end.read_text())["complete"] is True
    assert cloud.living() == []


async def test_a_log_that_can_never_be_read_is_marked_incomplete_and_the_task_succeeds(
    clouded: System, cloud: Cloud
) -> None:
    clouded.extra_environment["TOWLINE_DRAIN_LIMIT"] = "0.3"
    await clouded.worker(FAULT_AT="broken-tail")
    job_id = await clouded.submit({"run": "echo nobody reads this"})
    document = await clouded.ended(job_id)
    assert document["status"] == Status.SUCCEEDED
    shown = await clouded.cli("logs", job_id)
    assert shown.code == 0
    assert "incomplete" in shown.err or "missing" in shown.err, shown.err
    assert cloud.living() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A log store of one megabyte."""
    directory = tmp_path / "small"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("may not mount a small file system")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


async def test_a_full_log_store_holds_up_no_job_and_the_log_is_marked_incomplete(
    idle: System, small_disk: Path, diary: Diary
) -> None:
    idle.extra_environment |= {"TOWLINE_LOG_STORE": str(small_disk), "TOWLINE_DRAIN_LIMIT": "3"}
    await idle.worker()
    loud = await idle.submit({"run": "head -c 3000000 /dev/zero | tr '\\0' x; echo; exit 4"}, name="loud")
    assert (await idle.ended(loud))["tasks"][0]["exit_code"] == 4
    quiet = await idle.submit({"run": "echo quiet"}, name="quiet")
    assert (await idle.ended(quiet))["status"] == Status.SUCCEEDED
    assert idle.held_nodes() == []
    shown = await idle.cli("logs", loud)
    assert shown.code == 100
    assert "incomplete" in shown.err, shown.err


async def test_a_log_store_that_has_room_again_gets_the_rest(idle: System, small_disk: Path, diary: Diary) -> None:
    idle.extra_environment["TOWLINE_LOG_STORE"] = str(small_disk)
    filler = small_disk / "filler"
    await idle.worker()
    filler.write_bytes(b"x" * 900_000)
    job_id = await idle.submit({"run": f"head -c 500000 /dev/zero | tr '\\0' x; {diary.task}"})
    await diary.started()

    async def stuck() -> bool:
        described = await idle.client.get_workflow_handle(job_id).describe()
        beats = [each.heartbeat_details.payloads for each in described.raw_description.pending_activities]
        return any("No space left" in payload.data.decode() for payloads in beats for payload in payloads)

    await until(stuck, "the tail says what keeps it")
    filler.unlink()
    diary.let_go()
    assert (await idle.ended(job_id))["status"] == Status.SUCCEEDED
    log = await idle.log(job_id)
    assert log == b"x" * 500_000 + diary.printed()


async def test_followers_that_leave_take_nothing_with_them(idle: System, diary: Diary) -> None:
    """On the side of the workers: reading is from the log store, so that a follower is nothing to them."""
    import psutil

    worker = await idle.worker()
    job_id = await idle.submit({"run": diary.task})
    await diary.started()
    await log_grows(idle, job_id)
    process = psutil.Process(worker.process.pid)

    def held() -> tuple[int, int]:
        return process.num_fds(), len(process.children(recursive=True))

    before = held()
    followers = [
        await asyncio.create_subprocess_exec(
            *idle.command("logs", job_id),
            cwd=ROOT,
            env=idle.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(10)
    ]
    for each in followers:
        assert each.stdout is not None
        assert await each.stdout.readline() == b"line 1\n"
        each.kill()
        await each.wait()
    # the task itself comes and goes with a child or two
    await until(lambda: held()[0] <= before[0] + 3 and held()[1] <= before[1], "nothing is left of the followers")
    diary.let_go()
    assert (await idle.ended(job_id))["status"] == Status.SUCCEEDED


async def test_the_last_words_of_an_attempt_that_failed_are_there_before_the_next_begins_to_print(
    idle: System,
) -> None:
    await idle.worker()
    job_id = await idle.submit(with_budget(1, run="echo attempt $TOWLINE_ATTEMPT; echo last >&2; exit 1"))
    assert (await idle.ended(job_id))["status"] == Status.FAILED
    shown = await idle.cli("logs", job_id)
    assert shown.out == b"attempt 1\nlast\nattempt 2\nlast\n"
