"""Keys in files and variables: one a line, each with a prefix that says what it is, so that none is taken for another.

A file may hold several: the first is used for what is new, all of them for what is old. That is how keys are rotated.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from towline import boxes
from towline.errors import UsageError

PRIVATE = "towline-private-"
PUBLIC = "towline-public-"
SHARED = "towline-codec-"
_WORDS = {PRIVATE: "private key", PUBLIC: "public key", SHARED: "codec key"}
_ID_DIGITS = 16


@dataclass(frozen=True)
class Key:
    """A key and its id, which tells nothing of it. `repr` does not show it either."""

    id: str
    data: bytes

    def __repr__(self) -> str:
        return f"Key(id={self.id!r})"


def parse(text: str, prefix: str, where: str) -> Key:
    """The key in `text`. Raises UsageError, which never repeats the text."""
    wanted = f"{where}: must be a {_WORDS[prefix]}, {prefix}... as `towline keygen` prints it"
    text = text.strip()
    if not text.startswith(prefix):
        other = next((words for each, words in _WORDS.items() if text.startswith(each)), None)
        raise UsageError(f"{wanted}{f', not a {other}' if other else ''}")
    try:
        data = base64.b64decode(text.removeprefix(prefix), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(f"{wanted}; it is damaged") from None
    if len(data) != boxes.KEY_BYTES:
        raise UsageError(f"{wanted}; it is damaged")
    return Key(key_id(boxes.public_key(data) if prefix == PRIVATE else data), data)


def show(data: bytes, prefix: str) -> str:
    """A key as it is written."""
    return prefix + base64.urlsafe_b64encode(data).decode()


def key_id(data: bytes) -> str:
    """The name of a key: of a pair, that of its public key."""
    return hashlib.sha256(b"towline key id\0" + data).hexdigest()[:_ID_DIGITS]


def public_of(private: Key) -> Key:
    """The other half of a pair."""
    data = boxes.public_key(private.data)
    return Key(key_id(data), data)


def read(path: Path, prefix: str, where: str) -> list[Key]:
    """The keys in a file, in order; none where there is no file. Raises UsageError when others may read it."""
    try:
        text = path.read_text()
        mode = path.stat().st_mode
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"{where} {path}: cannot be read: {said}") from None
    if mode & 0o007:  # a group may be how an orchestrator hands the file to a worker
        raise UsageError(f"{where} {path}: may be read by everybody; chmod 600 it")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return [parse(line, prefix, f"{where} {path}:{number}") for number, line in lines if not line.startswith("#")]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One at a time changes the file. Raises UsageError when that is not possible there."""
    lock = FileLock(f"{path}.lock", mode=0o600)
    try:
        lock.acquire()
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        lock.release()


def add(path: Path, prefix: str, make: Callable[[], bytes]) -> Key:
    """A new key, as the first in the file, which is its owner's alone. Raises UsageError when it cannot be written."""
    data = make()
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        before = path.read_text() if path.exists() else ""
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{show(data, prefix)}\n{before}")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    return parse(show(data, prefix), prefix, str(path))
