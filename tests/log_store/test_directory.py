"""What is particular to the log store in a directory."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import sys
from pathlib import Path

import pytest

from towline.directory_log_store import DirectoryLogStore
from towline.errors import LogStoreError
from towline.log_store import LogEnd, LogKey

LOG = LogKey("job-1", 0, 1, 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "logs"


@pytest.fixture
def store(root: Path) -> DirectoryLogStore:
    return DirectoryLogStore(root)


async def test_the_layout_is_the_documented_one(store: DirectoryLogStore, root: Path) -> None:
    await store.append(LogKey("job-1", 3, 2, 1), 0, b"abc")
    await store.finish(LogKey("job-1", 3, 2, 1), LogEnd(3, complete=True))
    attempt = root / "job-1" / "3" / "attempt-2"
    assert sorted(each.name for each in attempt.iterdir()) == ["node-1.end", "node-1.log"]
    assert (attempt / "node-1.log").read_bytes() == b"abc"


async def test_only_the_owner_can_read_whatever_the_umask(store: DirectoryLogStore, root: Path) -> None:
    before = os.umask(0)
    try:
        await store.append(LOG, 0, b"abc")
        await store.finish(LOG, LogEnd(3, complete=True))
    finally:
        os.umask(before)
    made = [root, *root.rglob("*")]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()}
    assert modes == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o600}


@pytest.mark.parametrize("key", ["", "..", "a/b", "a\0b", "job\n", "/etc", ".", "é", "x" * 101])
async def test_no_job_key_leads_out_of_the_directory(store: DirectoryLogStore, key: str) -> None:
    with pytest.raises(LogStoreError, match="not a job key"):
        await store.logs(key)
    with pytest.raises(LogStoreError, match="not a job key"):
        await store.append(LogKey(key, 0, 1, 0), 0, b"x")


async def test_a_full_disk_is_an_error_with_path_and_number_and_what_fitted_stays(root: Path) -> None:
    script = f"""
import asyncio, resource, signal
from pathlib import Path
from towline.directory_log_store import DirectoryLogStore
from towline.errors import LogStoreError
from towline.log_store import LogKey
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5, 5))
store, log = DirectoryLogStore(Path({str(root)!r})), LogKey("job-1", 0, 1, 0)
try:
    asyncio.run(store.append(log, 0, b"0123456789"))
except LogStoreError as error:
    print(error)
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    said = (await asyncio.wait_for(process.communicate(), 60))[0].decode()
    assert f"errno {errno.EFBIG}" in said
    assert str(root / "job-1" / "0" / "attempt-1" / "node-0.log") in said
    store = DirectoryLogStore(root)
    assert await store.size(LOG) == 5
    assert await store.append(LOG, 0, b"0123456789") == 10
    assert await store.read(LOG, 0, 100) == b"0123456789"


async def test_a_path_that_cannot_be_used_is_an_error_of_the_log_store(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the directory should be")
    store = DirectoryLogStore(tmp_path / "logs")
    with pytest.raises(LogStoreError, match="errno"):
        await store.append(LOG, 0, b"x")
    assert await store.logs("job-1") == []


async def test_a_torn_or_foreign_end_counts_as_none(store: DirectoryLogStore, root: Path) -> None:
    await store.append(LOG, 0, b"abc")
    end = root / "job-1" / "0" / "attempt-1" / "node-0.end"
    for content in ("", "{", "[]", "{}", '{"size": null}', "3"):
        end.write_text(content)
        assert await store.end(LOG) is None
    await store.finish(LOG, LogEnd(3, complete=True))
    assert await store.end(LOG) == LogEnd(3, complete=True)


async def test_no_part_of_an_end_is_left_behind(store: DirectoryLogStore, root: Path) -> None:
    for complete in (False, False, True, False):
        await store.finish(LOG, LogEnd(0, complete=complete, note="why"))
    assert [each.name for each in (root / "job-1" / "0" / "attempt-1").iterdir()] == ["node-0.end"]


async def test_strange_names_in_the_directory_are_passed_over(store: DirectoryLogStore, root: Path) -> None:
    await store.append(LOG, 0, b"abc")
    for name in ("lost+found", "1", "0/attempt-x", "0/attempt-2", "0/attempt-1/node-0.end.1.part", "0/attempt-1/n.log"):
        (root / "job-1" / name).write_text("")
    assert await store.logs("job-1") == [LOG]
