"""From errors of ours to failures that Temporal understands, at the border of every activity."""

from __future__ import annotations

import traceback
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from towline.contract import Failure
from towline.errors import (
    ConnectionLost,
    InvalidJob,
    LogStoreError,
    NoCapacity,
    PrecheckFailed,
    ProviderUnavailable,
    TowlineError,
    UsageError,
)
from towline.text import shorten

_TYPES: tuple[tuple[type[TowlineError], str, bool], ...] = (
    # error, failure type, retryable
    (InvalidJob, Failure.FAILED_PRECHECKS, False),
    (PrecheckFailed, Failure.FAILED_PRECHECKS, False),
    (UsageError, Failure.FAILED_PRECHECKS, False),
    (NoCapacity, Failure.NO_CAPACITY, True),
    (ProviderUnavailable, Failure.PROVIDER_UNAVAILABLE, True),
    (ConnectionLost, Failure.PROVIDER_UNAVAILABLE, True),
    (LogStoreError, Failure.PROVIDER_UNAVAILABLE, True),
)


def failure(error: Exception, *details: Any, retry_bugs: bool = False) -> ApplicationError:
    """`error` as an ApplicationError. One that is not ours is a bug: FAILED_CONTROLLER, final unless `retry_bugs`."""
    if isinstance(error, ApplicationError):
        return error
    for kind, name, retryable in _TYPES:
        if isinstance(error, kind):
            return ApplicationError(shorten(str(error)), *details, type=name, non_retryable=not retryable)
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" ({where[0].name}, line {where[0].lineno})" if where else ""
    activity.logger.error("a fault of Towline's own", exc_info=error)
    text = shorten(f"{type(error).__name__}: {error}{place}")
    return ApplicationError(text, *details, type=Failure.FAILED_CONTROLLER, non_retryable=not retry_bugs)
