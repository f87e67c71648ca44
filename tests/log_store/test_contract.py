"""What every log store promises, run on each of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.memory_log_store import MemoryLogStore
from towline.directory_log_store import DirectoryLogStore
from towline.errors import LogStoreError
from towline.log_store import LogEnd, LogKey, LogStore

LOG = LogKey("job-1", 0, 1, 0)
WRITTEN = bytes(range(256)) * 40


@pytest.fixture(params=["directory", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    return DirectoryLogStore(tmp_path / "logs") if request.param == "directory" else MemoryLogStore()


async def test_what_was_appended_is_read_byte_for_byte(store: LogStore) -> None:
    assert await store.append(LOG, 0, WRITTEN[:100]) == 100
    assert await store.append(LOG, 100, WRITTEN[100:]) == len(WRITTEN)
    assert await store.size(LOG) == len(WRITTEN)
    assert await store.read(LOG, 0, len(WRITTEN) * 2) == WRITTEN
    assert await store.read(LOG, 300, 7) == WRITTEN[300:307]


async def test_nothing_is_there_before_the_first_byte(store: LogStore) -> None:
    assert await store.size(LOG) == 0
    assert await store.read(LOG, 0, 10) == b""
    assert await store.end(LOG) is None
    assert await store.logs("job-1") == []


async def test_reading_at_or_beyond_the_end_gives_nothing(store: LogStore) -> None:
    await store.append(LOG, 0, b"abc")
    assert await store.read(LOG, 3, 10) == b""
    assert await store.read(LOG, 30, 10) == b""


async def test_bytes_that_are_kept_are_left_alone_and_only_newer_ones_added(store: LogStore) -> None:
    await store.append(LOG, 0, b"abcdef")
    assert await store.append(LOG, 0, b"XYZ") == 6
    assert await store.append(LOG, 4, b"XXgh") == 8
    assert await store.read(LOG, 0, 100) == b"abcdefgh"


async def test_a_hole_is_refused(store: LogStore) -> None:
    await store.append(LOG, 0, b"abc")
    with pytest.raises(LogStoreError, match="hole"):
        await store.append(LOG, 4, b"e")
    assert await store.read(LOG, 0, 100) == b"abc"


async def test_overlapping_writers_end_with_the_bytes_once(store: LogStore) -> None:
    async def write(step: int) -> None:
        for offset in range(0, len(WRITTEN), step):
            await store.append(LOG, offset, WRITTEN[offset : offset + step])

    await asyncio.gather(write(97), write(1000), write(333))
    assert await store.read(LOG, 0, 2 * len(WRITTEN)) == WRITTEN


async def test_an_end_is_kept(store: LogStore) -> None:
    await store.append(LOG, 0, b"abc")
    await store.finish(LOG, LogEnd(3, complete=True))
    assert await store.end(LOG) == LogEnd(3, complete=True)


async def test_a_complete_end_is_never_replaced_by_an_incomplete_one(store: LogStore) -> None:
    await store.finish(LOG, LogEnd(3, complete=True))
    await store.finish(LOG, LogEnd(1, complete=False, note="node lost"))
    assert await store.end(LOG) == LogEnd(3, complete=True)


async def test_an_incomplete_end_gives_way_to_a_complete_one(store: LogStore) -> None:
    await store.finish(LOG, LogEnd(1, complete=False, note="node lost"))
    assert await store.end(LOG) == LogEnd(1, complete=False, note="node lost")
    await store.finish(LOG, LogEnd(3, complete=True))
    assert await store.end(LOG) == LogEnd(3, complete=True)


async def test_logs_are_listed_in_the_order_of_numbers_not_of_letters(store: LogStore) -> None:
    keys = [LogKey("job-1", task, attempt, rank) for task in (2, 10) for attempt in (2, 10) for rank in (0, 11, 2)]
    for key in keys:
        await store.append(key, 0, b"x")
    await store.append(LogKey("job-2", 0, 1, 0), 0, b"another job's")
    assert await store.logs("job-1") == sorted(keys)
    assert await store.logs("job-1", 10) == sorted(key for key in keys if key.task_index == 10)


async def test_a_log_that_ended_without_a_byte_is_listed(store: LogStore) -> None:
    await store.finish(LOG, LogEnd(0, complete=True))
    assert await store.logs("job-1") == [LOG]


async def test_waiting_returns_when_the_log_grows(store: LogStore) -> None:
    await store.append(LOG, 0, b"abc")
    waiting = asyncio.create_task(store.wait_for_growth(LOG, 3, 60))
    await store.append(LOG, 3, b"d")
    await asyncio.wait_for(waiting, 20)


async def test_waiting_returns_when_the_log_ends(store: LogStore) -> None:
    waiting = asyncio.create_task(store.wait_for_growth(LOG, 0, 60))
    await store.finish(LOG, LogEnd(0, complete=True))
    await asyncio.wait_for(waiting, 20)


async def test_waiting_for_what_is_there_already_returns_at_once(store: LogStore) -> None:
    await store.append(LOG, 0, b"abc")
    await asyncio.wait_for(store.wait_for_growth(LOG, 2, 60), 20)


async def test_waiting_gives_up_after_its_time(store: LogStore) -> None:
    await asyncio.wait_for(store.wait_for_growth(LOG, 0, 0.01), 20)
