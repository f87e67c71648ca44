"""Every error of Towline, by who must act.

TowlineError
├── UsageError                 the user: input, arguments, configuration       exit code 2
│   └── InvalidJob             the job's YAML or JSON, all problems at once
├── JobNotFound                the user: no such job                            exit code 102
├── ServerUnreachable          the user: no Temporal server answers             exit code 3
├── PrecheckFailed             the user: no provider can ever satisfy this      FAILED_PRECHECKS
├── NoCapacity                 the cloud: wait, or the next offer               retried
├── ProviderUnavailable        the cloud: its API does not answer, or errs      retried
├── ConnectionLost             the network: outcome unknown, look again         retried
│   └── HostKeyChanged         the host is not the node that was created        the node is lost
├── SecretUnreadable           who deploys workers: a key is missing            refused at first, then waited for
├── NodeCommandFailed          ourselves: a node script ended unexpectedly      FAILED_CONTROLLER
├── AttemptSuperseded          ourselves: a newer attempt exists; detach
├── TaskClosed                 ourselves: the task is closed on its node; start nothing
└── LogStoreError              the log store: full, or unreachable              retried, never in the way
"""

from __future__ import annotations


class TowlineError(Exception):
    """Base of all errors of ours; `str()` is the message for a person."""


class UsageError(TowlineError):
    """Wrong input or usage. The message says what, where, and what to do."""


class InvalidJob(UsageError):
    """A job that is refused. `problems` holds one line per problem, in the order of the input."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class JobNotFound(TowlineError):
    """No job of this id on the server; see `towline queue`."""


class ServerUnreachable(TowlineError):
    """No Temporal server answers at the configured address; `towline up` or TEMPORAL_ADDRESS."""


class PrecheckFailed(TowlineError):
    """No provider can ever satisfy the request; change `resources`, or see `towline check`."""


class NoCapacity(TowlineError):
    """There is none now; there may be later, or elsewhere."""


class ProviderUnavailable(TowlineError):
    """The provider did not answer, so nothing is known; ask again."""


class ConnectionLost(TowlineError):
    """The connection to a node broke or could not be made; says nothing about the node or its task."""


class HostKeyChanged(ConnectionLost):
    """Another machine answers at the node's address; nothing may be run or read there."""


class SecretUnreadable(TowlineError):
    """A secret was sealed for a key that this worker does not have. Names the key and what to do, never a value."""


class NodeCommandFailed(TowlineError):
    """A command of ours ran on a node and ended in a way it never should."""


class AttemptSuperseded(TowlineError):
    """A newer attempt of the task exists on the node: the caller is out of date and must let go."""


class TaskClosed(TowlineError):
    """The task was closed on the node, by a cancel or its end: no attempt starts there any more."""


class LogStoreError(TowlineError):
    """The log store could not be written or read; the task itself is not concerned."""
