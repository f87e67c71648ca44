"""The statuses of a task and of a job, and the one rule that derives the second from the first."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Status(StrEnum):
    """What a user must tell apart. Everything else is in the `reason` beside it."""

    PENDING = "PENDING"  # not begun: an earlier task still runs
    STARTING = "STARTING"  # nodes are being provisioned for the first attempt
    RUNNING = "RUNNING"  # an attempt's setup or run is on its nodes, or a restart is due
    RECOVERING = "RECOVERING"  # the infrastructure failed; lost nodes are being replaced
    CANCELLING = "CANCELLING"  # cancel accepted; processes and nodes are being taken away
    SUCCEEDED = "SUCCEEDED"  # run ended with exit code 0
    CANCELLED = "CANCELLED"  # cancelled by a person, or never started because an earlier task did not succeed
    FAILED = "FAILED"  # run ended with another exit code and no restart is left
    FAILED_SETUP = "FAILED_SETUP"  # setup ended with another exit code and no restart is left
    FAILED_PRECHECKS = "FAILED_PRECHECKS"  # the job is invalid or can never be satisfied; nothing was started
    FAILED_NO_RESOURCE = "FAILED_NO_RESOURCE"  # no nodes to be had within what the job allows
    FAILED_CONTROLLER = "FAILED_CONTROLLER"  # a fault of Towline's own; the reason says what to report

    @property
    def final(self) -> bool:
        """Whether nothing follows this status."""
        return self in FINAL


FINAL = frozenset(
    {
        Status.SUCCEEDED,
        Status.CANCELLED,
        Status.FAILED,
        Status.FAILED_SETUP,
        Status.FAILED_PRECHECKS,
        Status.FAILED_NO_RESOURCE,
        Status.FAILED_CONTROLLER,
    }
)


def job_status(tasks: Iterable[Status]) -> Status:
    """The status of the first task that is not SUCCEEDED, else SUCCEEDED."""
    return next((status for status in tasks if status is not Status.SUCCEEDED), Status.SUCCEEDED)


class ExitCode:
    """Exit codes of the command line; scripts rely on them."""

    SUCCEEDED = 0
    USAGE = 2
    SERVER_UNREACHABLE = 3
    FAILED = 100
    NOT_FINISHED = 101
    NOT_FOUND = 102
    CANCELLED = 103


def exit_code(status: Status) -> int:
    """The exit code of `launch` and `logs` for a job in `status`."""
    if status is Status.SUCCEEDED:
        return ExitCode.SUCCEEDED
    if status is Status.CANCELLED:
        return ExitCode.CANCELLED
    return ExitCode.FAILED if status.final else ExitCode.NOT_FINISHED
