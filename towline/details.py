"""A job in Markdown: what the Temporal Web UI shows as the execution's current details."""

from __future__ import annotations

from towline.state import JobState, TaskState

_MOST_ROWS = 60  # the Web UI takes at most 20,000 bytes


def details(state: JobState) -> str:
    """The job's status, its reason, and a table of the tasks; around the current one when there are very many."""
    first = max(0, min(state.current - _MOST_ROWS // 2, len(state.tasks) - _MOST_ROWS))
    shown = list(enumerate(state.tasks))[first : first + _MOST_ROWS]
    lines = [
        f"**{state.status}**" + (f": {_cell(state.reason)}" if state.reason else ""),
        "",
        "| task | status | attempts | restarts | recoveries | node | reason |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_row(index, len(state.tasks), task) for index, task in shown),
    ]
    if len(shown) < len(state.tasks):
        lines.append(f"\n{len(shown)} of {len(state.tasks)} tasks are shown.")
    return "\n".join(lines)


def _row(index: int, total: int, task: TaskState) -> str:
    nodes = ", ".join(f"{each.node.node_id} ({each.state})" for each in task.nodes)
    cells = [
        f"{index + 1}/{total} {task.name}",
        str(task.status),
        str(task.ledger.last_attempt),
        f"{task.restarts}/{task.max_restarts}",
        str(task.recoveries),
        nodes,
        task.reason,
    ]
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")[:200]
