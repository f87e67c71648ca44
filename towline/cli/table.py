"""Tables that fit the terminal: columns give way in the order of their worth, first in width, then altogether."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from towline.cli.session import plain

WIDTH_WITHOUT_TERMINAL = 160
_GAP = 2
_NARROWEST = 4


@dataclass
class Column:
    """A column of plain text. `least` is the width to which it may shrink (None: not at all); the column with the
    largest `expendable` is left out first, one with 0 never."""

    name: str
    cells: list[str]
    least: int | None = None
    expendable: int = 0
    wraps: bool = False

    def __post_init__(self) -> None:
        self.cells = [plain(cell) for cell in self.cells]
        self.natural = max(cell_len(text) for text in [self.name, *self.cells])
        self.narrowest = self.natural if self.least is None else min(self.least, self.natural)


def print_table(columns: list[Column], styled: Callable[[str, str], Text] = lambda _, cell: Text(cell)) -> None:
    """Print the columns that hold anything, as far as they fit. `styled` makes the text of a cell of a column."""
    console = Screen()
    widths = fit([column for column in columns if any(column.cells)], console.width)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for column, width in widths:
        overflow = "fold" if column.wraps else "ellipsis"
        table.add_column(column.name, width=width, no_wrap=not column.wraps, overflow=overflow)  # type: ignore[arg-type]
    for cells in zip(*(column.cells for column, _ in widths), strict=True):
        table.add_row(*(styled(column.name, cell) for (column, _), cell in zip(widths, cells, strict=True)))
    console.print(table)


def fit(columns: list[Column], width: int) -> list[tuple[Column, int]]:
    """The columns that are shown, each with its width."""
    shown = list(columns)
    while sum(column.narrowest for column in shown) + _gaps(shown) > width:
        expendable = max(shown, key=lambda column: column.expendable, default=None)
        if expendable is None or expendable.expendable == 0:
            break
        shown.remove(expendable)
    widths = [column.natural for column in shown]
    for floors in ([column.narrowest for column in shown], [min(_NARROWEST, each) for each in widths]):
        _shrink(widths, floors, sum(widths) + _gaps(shown) - width)
    return list(zip(shown, widths, strict=True))


def _gaps(columns: list[Column]) -> int:
    return _GAP * max(0, len(columns) - 1)


def _shrink(widths: list[int], floors: list[int], excess: int) -> None:
    """Take `excess` from the widths, always from the one that is furthest above its floor."""
    while excess > 0:
        index = max(range(len(widths)), key=lambda each: widths[each] - floors[each], default=None)
        if index is None or widths[index] <= floors[index]:
            return
        widths[index] -= 1
        excess -= 1


class Screen:
    """Standard output as rich sees it. Written by click, so that a reader who has left is an error like any other."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        width = None if terminal or os.environ.get("COLUMNS") else WIDTH_WITHOUT_TERMINAL
        self._console = Console(
            file=io.StringIO(), force_terminal=terminal, width=width, highlight=False, markup=False, emoji=False
        )

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return self._console.width

    def print(self, what: Text | Table | str) -> None:
        """Print it, without spaces at the ends of lines."""
        with self._console.capture() as captured:
            self._console.print(what)
        click.echo("".join(line.rstrip() + "\n" for line in captured.get().splitlines()), nl=False)
