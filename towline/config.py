"""The configuration: environment variables, and what follows from them. docs/configuration.md says it to users."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from towline.contract import DEFAULT_TASK_QUEUE, WorkerSettings
from towline.errors import UsageError

_LARGEST = 10**9


@dataclass(frozen=True)
class Config:
    """What this process works with. Durations are in seconds.

    `temporal_configured`: Temporal's own environment configuration names a server, so nothing is started by itself.
    `codec_keys` is None where payloads are not encrypted.
    """

    home: Path
    log_store: Path
    task_queue: str
    temporal_configured: bool
    heartbeat_interval_s: float
    graceful_shutdown_s: float
    max_activities: int
    sweep_interval_s: float
    node_lease_s: float
    secrets_public_key: str
    secrets_private_keys: Path
    codec_keys: Path | None
    settings: WorkerSettings

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> Config:
        """The configuration in `env` (default: this process's). Raises UsageError that names the variable."""
        env = os.environ if env is None else env
        home = _path(env, "TOWLINE_HOME", "~/.towline")
        configured = _temporal_configured(env)
        return cls(
            home=home,
            log_store=_log_store(env, home),
            task_queue=env.get("TOWLINE_TASK_QUEUE") or DEFAULT_TASK_QUEUE,
            temporal_configured=configured,
            heartbeat_interval_s=_seconds(env, "TOWLINE_HEARTBEAT_INTERVAL", 10.0 if configured else 1.0),
            graceful_shutdown_s=_seconds(env, "TOWLINE_GRACEFUL_SHUTDOWN", 10.0),
            max_activities=_count(env, "TOWLINE_MAX_ACTIVITIES", 4000),
            sweep_interval_s=_seconds(env, "TOWLINE_SWEEP_INTERVAL", 30.0),
            node_lease_s=_seconds(env, "TOWLINE_NODE_LEASE", 24 * 3600.0),
            secrets_public_key=env.get("TOWLINE_SECRETS_PUBLIC_KEY") or "",
            secrets_private_keys=_path(env, "TOWLINE_SECRETS_PRIVATE_KEY_FILE", str(home / "secrets.keys")),
            codec_keys=_path(env, "TOWLINE_CODEC_KEY_FILE", "") if env.get("TOWLINE_CODEC_KEY_FILE") else None,
            settings=WorkerSettings(
                heartbeat_timeout_s=_seconds(env, "TOWLINE_HEARTBEAT_TIMEOUT", 30.0),
                unreachable_limit_s=_seconds(env, "TOWLINE_UNREACHABLE_LIMIT", 1800.0),
                stop_grace_s=_seconds(env, "TOWLINE_STOP_GRACE", 10.0),
                drain_limit_s=_seconds(env, "TOWLINE_DRAIN_LIMIT", 60.0),
            ),
        )

    def make_home(self) -> None:
        """Make the home directory, for its owner alone. Raises UsageError when it cannot be used."""
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"TOWLINE_HOME={self.home}: cannot be used: {error.strerror}") from None
        if not os.access(self.home, os.R_OK | os.W_OK | os.X_OK):
            raise UsageError(f"TOWLINE_HOME={self.home}: cannot be used: it is not writable")


def _temporal_configured(env: Mapping[str, str]) -> bool:
    """Whether Temporal's own environment configuration names a server: by an address, or by a profile."""
    if env.get("TEMPORAL_ADDRESS") or env.get("TEMPORAL_PROFILE"):
        return True
    file = Path(env["TEMPORAL_CONFIG_FILE"]) if env.get("TEMPORAL_CONFIG_FILE") else _default_config_file(env)
    return bool(_default_profile(file).get("address"))


def _default_config_file(env: Mapping[str, str]) -> Path:
    """Where Temporal's own programs look."""
    home = Path(env.get("HOME") or "~")
    if sys.platform == "darwin":
        directory = home / "Library" / "Application Support"
    else:
        directory = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    return directory / "temporalio" / "temporal.toml"


def _default_profile(file: Path) -> dict[str, Any]:
    try:
        profiles = tomllib.loads(file.read_text()).get("profile", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: Temporal's configuration cannot be read: {error}") from None
    profile = profiles.get("default") if isinstance(profiles, dict) else None
    return profile if isinstance(profile, dict) else {}


def _log_store(env: Mapping[str, str], home: Path) -> Path:
    value = env.get("TOWLINE_LOG_STORE")
    if not value:
        return home / "logs"
    if "://" in value:
        text = "object stores are not available in this version; give a directory"
        raise UsageError(f"TOWLINE_LOG_STORE={value}: {text}")
    return _path(env, "TOWLINE_LOG_STORE", value)


def _path(env: Mapping[str, str], name: str, default: str) -> Path:
    value = env.get(name) or default
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError:
        raise UsageError(f"{name}={value}: there is no such home directory") from None


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    value = env.get(name)
    if not value:
        return default
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number < _LARGEST:
        raise UsageError(f"{name}={value}: must be a positive number of seconds")
    return number


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    value = env.get(name)
    if not value:
        return default
    if not value.isdecimal() or not 0 < int(value) < _LARGEST:
        raise UsageError(f"{name}={value}: must be a positive whole number")
    return int(value)
