"""What people are shown instead of secrets."""

from __future__ import annotations

from typing import Any

HIDDEN = "***"


def hidden(job_input: dict[str, Any]) -> dict[str, Any]:
    """The workflow's argument with `***` for each secret."""
    return {**job_input, "tasks": [_task(each) for each in job_input["tasks"]]}


def _task(task: dict[str, Any]) -> dict[str, Any]:
    return {**task, "secrets": dict.fromkeys(task["secrets"], HIDDEN)} if "secrets" in task else task
