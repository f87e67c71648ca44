"""`tail_logs`: from a node to the log store, beside `run_task` and never in its way."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.failures import failure
from activities.heartbeat import WorkerStopping, beating, until_worker_stops
from towline.contract import Activity, Failure, TailLogsHeartbeat, TailLogsInput, from_json, to_json
from towline.log_store import LogStore
from towline.masking import Mask
from towline.providers.registry import Providers
from towline.sealing import Opener
from towline.ssh.client import SshClient
from towline.tailing import Tailing, TailProgress, last_lines

_TAKEN_AWAY = "the node was taken away before its last byte was read"


class TailLogsActivity:
    """`tail_logs`, bound to a worker's SSH client and log store."""

    def __init__(self, providers: Providers, ssh: SshClient, log_store: LogStore, opener: Opener) -> None:
        self._providers = providers
        self._ssh = ssh
        self._log_store = log_store
        self._opener = opener

    @activity.defn(name=Activity.TAIL_LOGS)
    async def tail_logs(self, request: TailLogsInput) -> None:
        """Returns when the task is closed on the node and all it printed is kept. A cancel marks the log incomplete."""
        progress = TailProgress(_first_attempt(request))
        async with beating(lambda: _heartbeat(progress)) as report:
            try:
                provider = self._providers.get(request.node.provider)
                mask = Mask(self._opener.open(request.secrets).values())
                tailing = Tailing(request, self._ssh, provider, self._log_store, mask, progress, report)
                await until_worker_stops(tailing.run())
            except asyncio.CancelledError:
                details = activity.cancellation_details()
                if details and details.cancel_requested:
                    await tailing.mark_incomplete(progress.note or _TAKEN_AWAY)
                raise
            except WorkerStopping:
                text = "this worker stops; the log is followed elsewhere"
                raise ApplicationError(text, type=Failure.WORKER_SHUTDOWN) from None
            except Exception as error:  # the border to Temporal: everything becomes a typed failure
                raise failure(error, retry_bugs=True) from error


def _first_attempt(request: TailLogsInput) -> int:
    """Where an earlier activity attempt was: an attempt before it has been followed to its end."""
    details = activity.info().heartbeat_details
    earlier = from_json(TailLogsHeartbeat, details[0]) if details else None
    return max(request.first_attempt, earlier.attempt if earlier else 0)


def _heartbeat(progress: TailProgress) -> dict[str, Any]:
    lines = last_lines(bytes(progress.recent))
    return to_json(TailLogsHeartbeat(progress.attempt, progress.offset, lines, progress.note[:300]))
