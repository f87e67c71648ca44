"""Text made fit to be shown and to be sent."""

from __future__ import annotations

LONGEST_REASON = 500


def shorten(text: str, limit: int = LONGEST_REASON) -> str:
    """One line of at most `limit` characters, for reasons and failure messages."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
