"""The configuration: environment variables, and what follows from them. docs/configuration.md says it to users."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from towline.contract import DEFAULT_TASK_QUEUE, WorkerSettings
from towline.errors import UsageError


@dataclass(frozen=True)
class Config:
    """What this process works with. Durations are in seconds."""

    home: Path
    log_store: Path
    task_queue: str
    temporal_configured: bool
    heartbeat_interval_s: float
    graceful_shutdown_s: float
    max_activities: int
    settings: WorkerSettings

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> Config:
        """The configuration in `env` (default: this process's). Raises UsageError that names the variable."""
        env = os.environ if env is None else env
        home = Path(env.get("TOWLINE_HOME") or "~/.towline").expanduser().absolute()
        configured = _temporal_configured(env)
        return cls(
            home=home,
            log_store=_log_store(env.get("TOWLINE_LOG_STORE"), home),
            task_queue=env.get("TOWLINE_TASK_QUEUE") or DEFAULT_TASK_QUEUE,
            temporal_configured=configured,
            heartbeat_interval_s=_seconds(env, "TOWLINE_HEARTBEAT_INTERVAL", 10.0 if configured else 1.0),
            graceful_shutdown_s=_seconds(env, "TOWLINE_GRACEFUL_SHUTDOWN", 10.0),
            max_activities=int(_seconds(env, "TOWLINE_MAX_ACTIVITIES", 4000)),
            settings=WorkerSettings(
                heartbeat_timeout_s=_seconds(env, "TOWLINE_HEARTBEAT_TIMEOUT", 30.0),
                unreachable_limit_s=_seconds(env, "TOWLINE_UNREACHABLE_LIMIT", 1800.0),
                stop_grace_s=_seconds(env, "TOWLINE_STOP_GRACE", 10.0),
                drain_limit_s=_seconds(env, "TOWLINE_DRAIN_LIMIT", 60.0),
            ),
        )

    def make_home(self) -> None:
        """Make the home directory, for its owner alone."""
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"TOWLINE_HOME {self.home} cannot be used: {error.strerror}") from None


def _temporal_configured(env: Mapping[str, str]) -> bool:
    """Whether Temporal's own environment configuration names a server: by address, or by a profile in its file."""
    if env.get("TEMPORAL_ADDRESS") or env.get("TEMPORAL_PROFILE"):
        return True
    file = env.get("TEMPORAL_CONFIG_FILE")
    return bool(file and Path(file).is_file())


def _log_store(value: str | None, home: Path) -> Path:
    if not value:
        return home / "logs"
    if "://" in value:
        raise UsageError(
            f"TOWLINE_LOG_STORE={value}: object stores are not supported in this version; give a directory"
        )
    return Path(value).expanduser().absolute()


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    value = env.get(name)
    if not value:
        return float(default)
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number < 10**9:
        raise UsageError(f"{name}={value}: must be a positive number")
    return number
