"""Where the last lines begin."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.memory_log_store import MemoryLogStore
from towline.log_store import LogKey
from towline.tail import tail_start


async def shown(contents: list[bytes], lines: int) -> bytes:
    store = MemoryLogStore()
    logs = [LogKey("job-1", 0, number + 1, 0) for number in range(len(contents))]
    for log, data in zip(logs, contents, strict=True):
        await store.append(log, 0, data)
    start = await tail_start(store, logs, lines)
    rest = [await store.read(log, start.offsets[log], 10**9) for log in logs if log not in start.skipped]
    return b"".join(rest)


@pytest.mark.parametrize(
    ("contents", "lines", "expected"),
    [
        ([b"a\nb\nc\n"], 2, b"b\nc\n"),
        ([b"a\nb\nc"], 2, b"b\nc"),
        ([b"a\nb\nc\n"], 3, b"a\nb\nc\n"),
        ([b"a\nb\nc\n"], 9, b"a\nb\nc\n"),
        ([b"a\nb\n"], 0, b""),
        ([b""], 3, b""),
        ([b"\n\n\n"], 2, b"\n\n"),
        ([b"a\nb\n", b"c\n"], 2, b"b\nc\n"),
        ([b"a\nb\n", b"", b"c\n"], 3, b"a\nb\nc\n"),
        ([b"a\n", b"b\nc\nd\n"], 2, b"c\nd\n"),
        ([b"x" * 200_000 + b"\n" + b"y" * 200_000 + b"\n"], 1, b"y" * 200_000 + b"\n"),
    ],
)
async def test_the_last_lines_are_shown(contents: list[bytes], lines: int, expected: bytes) -> None:
    assert await shown(contents, lines) == expected


async def test_of_several_nodes_each_has_its_own_last_lines() -> None:
    store = MemoryLogStore()
    logs = [LogKey("job-1", 0, 1, rank) for rank in (0, 1)]
    await store.append(logs[0], 0, b"a\nb\n")
    await store.append(logs[1], 0, b"c\nd\n")
    start = await tail_start(store, logs, 1)
    assert start.offsets == {logs[0]: 2, logs[1]: 2}


@settings(deadline=None, max_examples=100)
@given(
    data=st.lists(st.sampled_from([b"\n", b"a", b"bc\n", b"\r", b"\0" * 70_000]), max_size=12), lines=st.integers(0, 6)
)
async def test_one_log_is_cut_where_splitting_it_into_lines_would_cut_it(data: list[bytes], lines: int) -> None:
    whole = b"".join(data)
    kept = [each + b"\n" for each in whole.split(b"\n")]
    kept[-1] = kept[-1][:-1]
    if not kept[-1]:
        kept.pop()
    assert await shown([whole], lines) == b"".join(kept[max(0, len(kept) - lines) :])
