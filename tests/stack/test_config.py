from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from towline.config import Config
from towline.errors import UsageError


def test_without_any_variable_everything_is_under_the_home_directory(tmp_path: Path) -> None:
    config = Config.from_environment({"TOWLINE_HOME": str(tmp_path), "HOME": str(tmp_path)})
    assert config.log_store == tmp_path / "logs"
    assert config.task_queue == "towline"
    assert not config.temporal_configured
    assert (config.settings.heartbeat_timeout_s, config.settings.unreachable_limit_s) == (30, 1800)
    assert (config.settings.stop_grace_s, config.graceful_shutdown_s, config.max_activities) == (10, 10, 4000)


def test_log_lines_are_shown_each_second_on_the_embedded_stack_and_less_often_elsewhere(tmp_path: Path) -> None:
    environment = {"TOWLINE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    assert Config.from_environment(environment).heartbeat_interval_s == 1
    assert Config.from_environment({**environment, "TEMPORAL_ADDRESS": "a:1"}).heartbeat_interval_s == 10
    assert Config.from_environment({**environment, "TOWLINE_HEARTBEAT_INTERVAL": "3.5"}).heartbeat_interval_s == 3.5


@pytest.mark.parametrize(
    "name",
    [
        "TOWLINE_HEARTBEAT_TIMEOUT",
        "TOWLINE_HEARTBEAT_INTERVAL",
        "TOWLINE_UNREACHABLE_LIMIT",
        "TOWLINE_STOP_GRACE",
        "TOWLINE_DRAIN_LIMIT",
        "TOWLINE_GRACEFUL_SHUTDOWN",
        "TOWLINE_MAX_ACTIVITIES",
    ],
)
@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan", "inf", "1e12"])
def test_a_bad_value_is_refused_by_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"^{name}={value}: must be a positive"):
        Config.from_environment({name: value, "HOME": "/none"})


def test_activities_are_counted_in_whole_numbers() -> None:
    with pytest.raises(UsageError, match="whole number"):
        Config.from_environment({"TOWLINE_MAX_ACTIVITIES": "0.5", "HOME": "/none"})


def test_an_object_store_is_refused_as_not_available_in_this_version() -> None:
    with pytest.raises(UsageError, match=r"s3://bucket.*not available in this version"):
        Config.from_environment({"TOWLINE_LOG_STORE": "s3://bucket/logs", "HOME": "/none"})


def test_temporal_is_configured_by_an_address_a_profile_or_the_default_profile_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "config" / "temporalio" / "temporal.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[profile.default]\naddress = "temporal.example:7233"\n')
    bare = {"HOME": "/none"}
    assert not Config.from_environment(bare).temporal_configured
    assert Config.from_environment({**bare, "TEMPORAL_ADDRESS": "a:1"}).temporal_configured
    assert Config.from_environment({**bare, "TEMPORAL_PROFILE": "prod"}).temporal_configured
    assert Config.from_environment({**bare, "TEMPORAL_CONFIG_FILE": str(file)}).temporal_configured
    assert Config.from_environment({**bare, "XDG_CONFIG_HOME": str(tmp_path / "config")}).temporal_configured
    file.write_text('[profile.other]\naddress = "temporal.example:7233"\n')
    assert not Config.from_environment({**bare, "TEMPORAL_CONFIG_FILE": str(file)}).temporal_configured


def test_temporals_file_that_is_no_toml_is_refused_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "temporal.toml"
    file.write_text("[profile")
    with pytest.raises(UsageError, match=r"temporal\.toml"):
        Config.from_environment({"TEMPORAL_CONFIG_FILE": str(file), "HOME": "/none"})


def test_the_home_is_its_owners_alone_and_a_home_that_cannot_be_is_refused(tmp_path: Path) -> None:
    config = Config.from_environment({"TOWLINE_HOME": str(tmp_path / "home"), "HOME": "/none"})
    config.make_home()
    assert config.home.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="TOWLINE_HOME="):
        Config.from_environment({"TOWLINE_HOME": str(tmp_path / "file"), "HOME": "/none"}).make_home()


def test_reading_the_configuration_and_the_stack_loads_nothing_of_temporal() -> None:
    code = "import sys, towline.config, towline.embedded; sys.exit('temporalio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
