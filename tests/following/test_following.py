"""A job's logs as one stream, on a log store in memory and a job that is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.memory_log_store import MemoryLogStore
from tests.support.told_jobs import KEY, ToldJobs
from towline.errors import JobNotFound
from towline.following import Ended, Event, Follower, LogBytes, LogEnded, Notice, Selection
from towline.log_store import LogEnd, LogKey


def log(task: int, attempt: int = 1, rank: int = 0) -> LogKey:
    return LogKey(KEY, task, attempt, rank)


class Reader:
    """Reads a follow, event by event."""

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self.events = events
        self.seen: list[Event] = []

    async def until_bytes(self, data: bytes) -> None:
        """Read on until `data` has been shown."""
        while data not in self.bytes:
            await self._next()

    async def until_notice(self, text: str) -> None:
        """Read on until Towline has said `text`."""
        while text not in self.notices:
            await self._next()

    async def rest(self) -> None:
        """Read on to the end."""
        while not (self.seen and isinstance(self.seen[-1], Ended)):
            await self._next()

    async def _next(self) -> None:
        self.seen.append(await asyncio.wait_for(anext(self.events), 20))

    @property
    def bytes(self) -> bytes:
        return b"".join(event.data for event in self.seen if isinstance(event, LogBytes))

    @property
    def notices(self) -> str:
        return "\n".join(event.text for event in self.seen if isinstance(event, Notice))


@pytest.fixture
def store() -> MemoryLogStore:
    return MemoryLogStore()


async def write(store: MemoryLogStore, key: LogKey, data: bytes, *, end: bool = True) -> None:
    size = await store.append(key, await store.size(key), data)
    if end:
        await store.finish(key, LogEnd(size, complete=True))


async def all_of(follower: Follower) -> Reader:
    reader = Reader(follower.follow())
    await reader.rest()
    return reader


async def test_an_ended_job_is_shown_whole_in_the_order_of_tasks_and_attempts(store: MemoryLogStore) -> None:
    jobs = ToldJobs(tasks=12)
    for task in range(12):
        for attempt in (1, 2, 10):
            await write(store, log(task, attempt), b"%d.%d\n" % (task, attempt))
        jobs.task(task, "SUCCEEDED")
    jobs.end()
    reader = await all_of(Follower(jobs, store, "job"))
    assert reader.bytes == b"".join(b"%d.%d\n" % (task, attempt) for task in range(12) for attempt in (1, 2, 10))
    assert isinstance(reader.seen[-1], Ended)
    assert reader.seen[-1].document["status"] == "SUCCEEDED"


async def test_it_follows_live_through_a_restart_a_recovery_and_the_next_task(store: MemoryLogStore) -> None:
    jobs = ToldJobs(tasks=2)
    reader = Reader(Follower(jobs, store, "job").follow())
    jobs.task(0, "STARTING")
    await reader.until_notice("task 1/2 t0: STARTING (waiting for nodes)")
    jobs.task(0, "RUNNING")
    jobs.attempt(0, 1)
    await write(store, log(0, 1), b"first ", end=False)
    await reader.until_bytes(b"first ")
    await write(store, log(0, 1), b"half\n")
    jobs.attempt(0, 1, 1, "user")
    await reader.until_notice("task 1/2 t0: attempt 1 FAILED: exit code 1")
    jobs.task(0, "RECOVERING", "node n0 lost: spot interruption")
    await reader.until_notice("task 1/2 t0: RECOVERING (node n0 lost: spot interruption)")
    await write(store, log(0, 2), b"second\n")
    jobs.attempt(0, 2, 0, "user")
    jobs.task(0, "SUCCEEDED")
    await reader.until_bytes(b"second\n")
    await reader.until_notice("task 1/2 t0: SUCCEEDED")
    jobs.task(1, "RUNNING")
    await write(store, log(1, 1), b"third\n")
    await reader.until_bytes(b"third\n")
    jobs.attempt(1, 1, 0, "user")
    jobs.task(1, "SUCCEEDED")
    jobs.end()
    await reader.rest()
    assert reader.bytes == b"first half\nsecond\nthird\n"


async def test_bytes_written_after_the_end_of_the_job_are_still_shown(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    reader = Reader(Follower(jobs, store, "job").follow())
    await write(store, log(0), b"early ", end=False)
    await reader.until_bytes(b"early ")
    jobs.task(0, "SUCCEEDED")
    jobs.end()
    await reader.until_notice("SUCCEEDED")
    await write(store, log(0), b"late")
    await reader.rest()
    assert reader.bytes == b"early late"
    assert "incomplete" not in reader.notices


async def test_a_log_that_appears_after_the_end_of_the_job_is_waited_for(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    jobs.attempt(0, 1, 0, "user")
    jobs.task(0, "SUCCEEDED")
    jobs.end()
    reader = Reader(Follower(jobs, store, "job").follow())
    await reader.until_notice("SUCCEEDED")
    await write(store, log(0), b"slow to be seen\n")
    await reader.rest()
    assert reader.bytes == b"slow to be seen\n"


async def test_an_end_that_never_comes_is_waited_for_only_so_long_and_said(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    await write(store, log(0), b"cut sho", end=False)
    jobs.task(0, "CANCELLED")
    jobs.end()
    reader = await all_of(Follower(jobs, store, "job", limit_s=0.2))
    assert reader.bytes == b"cut sho"
    assert (
        "log incomplete: task 1, attempt 1, node 0: its end was never written; the workers' log says why"
        in reader.notices
    )


async def test_the_end_of_a_lost_node_is_given_up_once_the_next_attempt_writes(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    await write(store, log(0, 1), b"lost\n", end=False)
    await write(store, log(0, 2), b"found\n", end=False)
    reader = Reader(Follower(jobs, store, "job", limit_s=0.2).follow())
    await reader.until_bytes(b"lost\nfound\n")
    assert "task 1, attempt 1, node 0: its end was never written; the workers' log says why" in reader.notices


async def test_an_incomplete_log_is_said_with_its_reason(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    await store.append(log(0), 0, b"some\n")
    await store.finish(log(0), LogEnd(5, complete=False, note="the node was preempted"))
    jobs.task(0, "FAILED")
    jobs.end()
    reader = await all_of(Follower(jobs, store, "job"))
    assert "log incomplete: task 1, attempt 1, node 0: the node was preempted" in reader.notices


async def test_a_log_store_that_is_not_the_workers_is_said(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    jobs.attempt(0, 1, 0, "user")
    jobs.task(0, "SUCCEEDED")
    jobs.end()
    reader = await all_of(Follower(jobs, store, "job", limit_s=0.1))
    assert "TOWLINE_LOG_STORE must be the one that the workers use" in reader.notices


async def test_a_task_whose_log_is_nowhere_does_not_hide_those_after_it(store: MemoryLogStore) -> None:
    jobs = ToldJobs(tasks=5)
    reader = Reader(Follower(jobs, store, "job").follow())
    await write(store, log(0), b"one\n")
    await reader.until_bytes(b"one\n")
    for task in range(4):
        jobs.attempt(task, 1, 0, "user")
        jobs.task(task, "SUCCEEDED")
    await write(store, log(3), b"four\n")
    await reader.until_bytes(b"one\nfour\n")


async def test_the_last_lines_come_before_the_words_on_their_attempt(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    reader = Reader(Follower(jobs, store, "job").follow())
    jobs.task(0, "RUNNING")
    await write(store, log(0), b"begin\n", end=False)
    await reader.until_notice("RUNNING")
    await reader.until_bytes(b"begin\n")
    jobs.attempt(0, 1, 1, "user")
    await write(store, log(0), b"Traceback\n")
    await reader.until_notice("attempt 1 FAILED")
    assert reader.bytes == b"begin\nTraceback\n"


async def test_bytes_flow_while_the_server_does_not_answer(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    reader = Reader(Follower(jobs, store, "job").follow())
    jobs.task(0, "RUNNING")
    await reader.until_notice("RUNNING")
    jobs.unreachable = True
    await reader.until_notice("no Temporal server answers at nowhere; waiting for it, the job goes on")
    await write(store, log(0), b"meanwhile\n")
    await reader.until_bytes(b"meanwhile\n")
    jobs.unreachable = False
    await reader.until_notice("the Temporal server answers again")
    jobs.task(0, "SUCCEEDED")
    jobs.end()
    await reader.rest()
    assert reader.bytes == b"meanwhile\n"


async def test_the_final_status_is_known_even_if_the_server_leaves_just_then(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    jobs.unreachable = True
    jobs.task(0, "FAILED")
    jobs.end()
    reader = await all_of(Follower(jobs, store, "job", limit_s=0.2))
    last = reader.seen[-1]
    assert isinstance(last, Ended)
    assert last.document["status"] == "FAILED"


async def test_trouble_with_the_log_store_is_said_and_outlasted_without_a_byte_twice(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    reader = Reader(Follower(jobs, store, "job").follow())
    await write(store, log(0), b"before ", end=False)
    await reader.until_bytes(b"before ")
    store.broken = "stale file handle"
    await reader.until_notice("the log store cannot be read: stale file handle; trying again")
    store.broken = None
    await write(store, log(0), b"after")
    jobs.task(0, "SUCCEEDED")
    jobs.end()
    await reader.rest()
    assert reader.bytes == b"before after"


async def test_every_byte_comes_once_with_its_offset(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    data = bytes(range(256)) * 5000
    reader = Reader(Follower(jobs, store, "job").follow())
    for offset in range(0, len(data), 100_001):
        await write(store, log(0), data[offset : offset + 100_001], end=False)
        await reader.until_bytes(data[offset : offset + 100_001][-1000:])
    await store.finish(log(0), LogEnd(len(data), complete=True))
    jobs.task(0, "SUCCEEDED")
    jobs.end()
    await reader.rest()
    assert reader.bytes == data
    offset = 0
    for event in reader.seen:
        if isinstance(event, LogBytes):
            assert event.offset == offset
            offset += len(event.data)


async def test_a_selected_task_and_attempt_is_all_that_is_shown(store: MemoryLogStore) -> None:
    jobs = ToldJobs(tasks=3)
    for task in range(3):
        for attempt in (1, 2):
            await write(store, log(task, attempt), b"%d.%d\n" % (task, attempt))
        jobs.task(task, "SUCCEEDED")
    jobs.end()
    assert (await all_of(Follower(jobs, store, "job", Selection(task_index=1)))).bytes == b"1.1\n1.2\n"
    assert (await all_of(Follower(jobs, store, "job", Selection(attempt=2)))).bytes == b"0.2\n1.2\n2.2\n"
    assert (await all_of(Follower(jobs, store, "job", Selection(2, 1)))).bytes == b"2.1\n"


async def test_a_selection_that_nothing_matches_is_said(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    await write(store, log(0), b"x")
    jobs.task(0, "SUCCEEDED")
    jobs.end()
    reader = await all_of(Follower(jobs, store, "job", Selection(attempt=7)))
    assert "has no log of what is asked for" in reader.notices


async def test_several_nodes_are_followed_side_by_side(store: MemoryLogStore) -> None:
    jobs = ToldJobs(nodes=2)
    jobs.task(0, "RUNNING")
    reader = Reader(Follower(jobs, store, "job").follow())
    await reader.until_notice("RUNNING")
    await write(store, log(0, rank=1), b"one\n", end=False)
    await reader.until_bytes(b"one\n")
    await write(store, log(0, rank=0), b"zero\n", end=False)
    await reader.until_bytes(b"zero\n")
    await write(store, log(0, rank=1), b"one again\n")
    await write(store, log(0, rank=0), b"zero again\n")
    jobs.task(0, "SUCCEEDED")
    jobs.end()
    await reader.rest()
    shown = [event for event in reader.seen if isinstance(event, LogBytes)]
    assert all(event.several for event in shown)
    assert {event.log.rank for event in reader.seen if isinstance(event, LogEnded)} == {0, 1}
    assert sorted(reader.bytes.split()) == sorted(b"one zero one again zero again".split())


async def test_one_selected_node_is_shown_as_if_alone(store: MemoryLogStore) -> None:
    jobs = ToldJobs(nodes=2)
    for rank in (0, 1):
        await write(store, log(0, rank=rank), b"%d\n" % rank)
    jobs.task(0, "SUCCEEDED")
    jobs.end()
    reader = await all_of(Follower(jobs, store, "job", Selection(rank=1)))
    assert reader.bytes == b"1\n"
    assert not any(event.several for event in reader.seen if isinstance(event, LogBytes))


async def test_a_tail_begins_with_the_last_lines_and_goes_on_live(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    await write(store, log(0, 1), b"a\nb\nc\n")
    await write(store, log(0, 2), b"d\n", end=False)
    reader = Reader(Follower(jobs, store, "job", tail=2).follow())
    await reader.until_bytes(b"c\nd\n")
    await write(store, log(0, 2), b"e\n")
    jobs.task(0, "SUCCEEDED")
    jobs.end()
    await reader.rest()
    assert reader.bytes == b"c\nd\ne\n"


async def test_what_is_there_is_shown_without_waiting(store: MemoryLogStore) -> None:
    jobs = ToldJobs(tasks=2)
    await write(store, log(0), b"a\nb\n")
    await write(store, log(1), b"c", end=False)

    async def present(**options: int) -> bytes:
        events = [event async for event in Follower(jobs, store, "job", **options).present()]
        return b"".join(event.data for event in events if isinstance(event, LogBytes))

    assert await present() == b"a\nb\nc"
    assert await present(tail=2) == b"b\nc"
    assert await present(tail=0) == b""


async def words_of_present(jobs: ToldJobs, store: MemoryLogStore, selection: Selection | None = None) -> list[str]:
    events = [event async for event in Follower(jobs, store, "job", selection).present()]
    return [event.text for event in events if isinstance(event, Notice)]


async def test_what_is_there_is_not_all_where_the_log_store_is_not_the_workers(store: MemoryLogStore) -> None:
    jobs = ToldJobs(tasks=2)
    for task in range(2):
        jobs.attempt(task, 1, 0, "user")
        jobs.task(task, "SUCCEEDED")
    await write(store, log(1), b"two\n")
    said = ["log incomplete: the log store has nothing of task 1, attempt 1; "]
    said[0] += "TOWLINE_LOG_STORE must be the one that the workers use"
    assert await words_of_present(jobs, store) == said
    assert await words_of_present(jobs, store, Selection(task_index=1)) == []


async def test_of_a_job_that_has_ended_nothing_is_said_to_come_yet(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    jobs.task(0, "RUNNING")
    assert await words_of_present(jobs, store) == ["job job has printed nothing yet that is asked for"]
    jobs.task(0, "CANCELLED")
    assert await words_of_present(jobs, store) == ["job job has no log"]
    assert await words_of_present(jobs, store, Selection(attempt=2)) == ["job job has no log of what is asked for"]


async def test_the_notices_of_a_selected_task_are_its_own(store: MemoryLogStore) -> None:
    jobs = ToldJobs(tasks=2)
    for task in range(2):
        await write(store, log(task), b"%d" % task)
        jobs.attempt(task, 1, 0, "user")
        jobs.task(task, "SUCCEEDED")
    jobs.end()
    reader = await all_of(Follower(jobs, store, "job", Selection(task_index=1)))
    assert "task 2/2 t1: SUCCEEDED" in reader.notices
    assert "task 1/2" not in reader.notices


async def test_an_unknown_job_is_an_error_at_once(store: MemoryLogStore) -> None:
    with pytest.raises(JobNotFound):
        await anext(Follower(ToldJobs(), store, "other").follow())


async def test_leaving_a_follow_leaves_nothing_running(store: MemoryLogStore) -> None:
    jobs = ToldJobs()
    events = Follower(jobs, store, "job").follow()
    before = asyncio.all_tasks()
    jobs.task(0, "RUNNING")
    await Reader(events).until_notice("RUNNING")
    await events.aclose()  # type: ignore[attr-defined]
    await asyncio.gather(*(asyncio.all_tasks() - before), return_exceptions=True)
    assert asyncio.all_tasks() <= before
