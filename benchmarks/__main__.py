"""Measures, prints a table, writes JSON: `python -m benchmarks [FIGURE ...] [--quick] [--repeat N] [--json FILE]`."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import engine, load, logs, moments, start
from benchmarks.bench import running_bench
from benchmarks.figure import Figure, Measure

FIGURES: dict[str, Measure] = {
    "restart": moments.restart,
    "task-to-task": moments.task_to_task,
    "detection": moments.detection,
    "recovery": moments.recovery,
    "reattach": moments.reattach,
    "log-latency": logs.latency,
    "log-throughput": logs.throughput,
    "capacity": load.capacity,
    "burst": load.burst,
    "engine": engine.engine,
    "cold-start": start.cold_start,
}


@click.command()
@click.argument("names", nargs=-1, metavar="[FIGURE]...", type=click.Choice(list(FIGURES)))
@click.option("--quick", is_flag=True, help="Fewer jobs, fewer bytes: minutes become seconds.")
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="How often each is measured.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the values there.")
@click.option("--markdown", is_flag=True, help="Print a table for a Markdown file.")
def main(names: tuple[str, ...], quick: bool, repeat: int, json_file: Path | None, markdown: bool) -> None:
    """Measure Towline on this machine, beside what SSH and Temporal allow. Exit code 1: a limit was missed."""
    figures = asyncio.run(_measure(list(names) or list(FIGURES), quick, repeat))
    if json_file:
        document = {"machine": machine(), "quick": quick, "figures": [figure.to_json() for figure in figures]}
        json_file.write_text(json.dumps(document, indent=2) + "\n")
    if markdown:
        print("\n".join(_markdown(figures)))
    else:
        _print(figures)
    sys.exit(int(any(figure.met is False for figure in figures)))


async def _measure(names: list[str], quick: bool, repeat: int) -> list[Figure]:
    figures: list[Figure] = []
    for name in names:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="towline-bench-") as directory:
            async with running_bench(Path(directory), 1 if quick else repeat, quick) as bench:
                figures += await FIGURES[name](bench)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return figures


def machine() -> dict[str, Any]:
    """What it was measured on, and when."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _row(figure: Figure) -> list[str]:
    limit = "" if figure.limit is None else f"{'>=' if figure.at_least else '<='} {figure.limit:.3g}"
    met = {None: "", True: "yes", False: "NO"}[figure.met]
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    spread = f"{min(figure.values):.3g} to {max(figure.values):.3g}" if len(figure.values) > 1 else ""
    beside = ", ".join(f"{name} {value:.3g}" for name, value in figure.beside.items())
    how = f"{figure.how} ({beside})" if beside else figure.how
    return [figure.name, f"{figure.median:.3g} {figure.unit}", spread, limit, ratio, met, how]


_COLUMNS = ["figure", "median", "spread", "limit", "ratio", "met", "how"]


def _print(figures: list[Figure]) -> None:
    table = Table(*_COLUMNS[:-1])
    for figure in figures:
        table.add_row(*_row(figure)[:-1])
    Console().print(table)
    print(" ".join(f"{name}={value}" for name, value in machine().items()))


def _markdown(figures: list[Figure]) -> list[str]:
    rows = [_COLUMNS, ["---"] * len(_COLUMNS), *(_row(figure) for figure in figures)]
    return [f"| {' | '.join(row)} |" for row in rows]


if __name__ == "__main__":
    main()
