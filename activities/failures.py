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
    SecretUnreadable,
    UsageError,
)
from towline.text import shorten

_TYPES: tuple[tuple[type[Exception], str, bool], ...] = (
    # error, failure type, retryable
    (InvalidJob, Failure.FAILED_PRECHECKS, False),
    (PrecheckFailed, Failure.FAILED_PRECHECKS, False),
    (UsageError, Failure.FAILED_PRECHECKS, False),
    (SecretUnreadable, Failure.SECRET_UNREADABLE, False),
    (NoCapacity, Failure.NO_CAPACITY, True),
    (ProviderUnavailable, Failure.PROVIDER_UNAVAILABLE, True),
    (ConnectionLost, Failure.PROVIDER_UNAVAILABLE, True),
    (LogStoreError, Failure.PROVIDER_UNAVAILABLE, True),
    (OSError, Failure.PROVIDER_UNAVAILABLE, True),  # out of descriptors, disk or network: it may pass
)


def failure(error: Exception, *details: Any, retry_bugs: bool = False) -> ApplicationError:
    """`error` as an ApplicationError. One that is neither ours nor the system's is a bug: FAILED_CONTROLLER.
    With `retry_bugs` nothing is final: for work that must be done some day, whatever stands in its way."""
    if isinstance(error, ApplicationError):
        return error
    for kind, name, retryable in _TYPES:
        if isinstance(error, kind):
            final = not (retryable or retry_bugs)
            return ApplicationError(shorten(str(error)), *details, type=name, non_retryable=final)
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" ({where[0].name}, line {where[0].lineno})" if where else ""
    activity.logger.error("a fault of Towline's own", exc_info=error)
    text = shorten(f"{type(error).__name__}: {error}{place}")
    return ApplicationError(text, *details, type=Failure.FAILED_CONTROLLER, non_retryable=not retry_bugs)
