"""Secrets masked in a stream of bytes: each byte of a value becomes `*`, so that every other byte keeps its offset.

A byte is masked when it lies within any occurrence of any value. Whether it does depends only on the bytes around it,
so the result is the same wherever reading begins, if it begins `context` bytes earlier.
"""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST_VALUE = 4
"""Bytes: a shorter value is not masked, since it would be found everywhere."""
SHORTEST_LINE = 8
MOST_LINES = 200
"""Of a value of several lines, such as a private key, each line of some length is masked for itself, too."""

_MASK = b"*"


class Mask:
    """The values to be masked."""

    def __init__(self, values: Iterable[str]) -> None:
        self._patterns = [_Pattern(each) for each in sorted(_patterns(values), key=len, reverse=True)]
        self.context = max((len(each.text) - 1 for each in self._patterns), default=0)

    def stream(self) -> MaskedStream:
        """Masks one stream, from wherever reading it begins."""
        return MaskedStream(self)

    def found_in(self, data: bytes) -> bool:
        """Whether any value is in `data`."""
        return any(each.text in data for each in self._patterns)

    def cover(self, data: bytes, masked: bytearray) -> None:
        """Mask in `masked` what `data`, of the same length, has of the values."""
        for pattern in self._patterns:
            text = pattern.text
            at, covered = data.find(text), 0
            while at >= 0:
                begin, covered = max(at, covered), at + len(text)
                masked[begin:covered] = _MASK * (covered - begin)
                at = data.find(text, at + 1)

    def begun_at_the_end_of(self, data: bytes) -> int:
        """How many bytes at the end of `data` may be the beginning of a value."""
        return max((each.begun_at_the_end_of(data) for each in self._patterns), default=0)


class MaskedStream:
    """One stream: bytes go in, and come out masked. What may be the beginning of a value is held back until more of the
    stream, or its end, has told."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._raw = b""
        self._masked = bytearray()

    def feed(self, data: bytes) -> bytes:
        """The next masked bytes; perhaps fewer than came in, or none."""
        self._raw += data
        self._masked += data
        self._mask.cover(self._raw, self._masked)
        known = len(self._raw) - self._mask.begun_at_the_end_of(self._raw)
        out = bytes(self._masked[:known])
        self._raw = self._raw[known:]
        del self._masked[:known]
        return out

    def flush(self) -> bytes:
        """What was held back: the stream has ended, so it is no value."""
        out = bytes(self._masked)
        self._raw = b""
        self._masked.clear()
        return out


class _Pattern:
    """A value's bytes. `_fallback[n]`: the length of the longest proper prefix that ends its first n bytes too."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._fallback = [0, 0]
        length = 0
        for index in range(1, len(text)):
            length = self._longer(length, text[index])
            self._fallback.append(length)

    def begun_at_the_end_of(self, data: bytes) -> int:
        """The length of the longest end of `data` that is a beginning of the value, short of all of it."""
        length = 0
        for byte in data[max(0, len(data) - len(self.text) + 1) :]:
            length = self._longer(length, byte)
        return length

    def _longer(self, length: int, byte: int) -> int:
        while length and self.text[length] != byte:
            length = self._fallback[length]
        return length + 1 if self.text[length] == byte else 0


def _patterns(values: Iterable[str]) -> set[bytes]:
    found: set[bytes] = set()
    for value in values:
        whole = value.encode("utf-8", "surrogateescape")
        found |= {each for each in (whole, whole.strip()) if len(each) >= SHORTEST_VALUE}
        lines = [each.strip() for each in whole.splitlines()]
        if 1 < len(lines) <= MOST_LINES:
            found |= {each for each in lines if len(each) >= SHORTEST_LINE}
    return found
