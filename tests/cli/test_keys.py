"""`keygen`: keys that are their owner's alone, the newest first."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from towline import keys
from towline.cli import towline
from towline.errors import UsageError


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(towline, arguments, catch_exceptions=False, standalone_mode=False)


def test_a_pair_is_made_and_only_its_public_half_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    made = invoke("keygen", str(file))
    (private,) = keys.read(file, keys.PRIVATE, "file")
    public = keys.parse(made.stdout, keys.PUBLIC, "stdout")
    assert public == keys.public_of(private)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert keys.show(private.data, keys.PRIVATE) not in made.output


def test_a_further_key_goes_before_those_that_are_there(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    invoke("keygen", str(file))
    file.write_text("# the first one\n" + file.read_text())
    second = json.loads(invoke("keygen", "--json", str(file)).stdout)
    known = keys.read(file, keys.PRIVATE, "file")
    assert len(known) == 2
    assert known[0].id == second["key"]
    assert second["public_key"].startswith("towline-public-")


def test_a_codec_key_is_no_pair_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    made = invoke("keygen", "--codec", str(file))
    (key,) = keys.read(file, keys.SHARED, "file")
    assert made.stdout == ""
    assert key.id in made.stderr
    assert json.loads(invoke("keygen", "--codec", "--json", str(file)).stdout)["public_key"] is None


def test_nothing_is_put_before_what_is_no_key_or_a_key_of_another_kind(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    invoke("keygen", "--codec", str(file))
    before = file.read_bytes()
    with pytest.raises(UsageError, match="must be a private key, .* not a codec key"):
        invoke("keygen", str(file))
    assert file.read_bytes() == before
    with pytest.raises(UsageError, match="cannot be written: "):
        invoke("keygen", "/proc/none/keys")


def test_the_codec_server_needs_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOWLINE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="there is no key: set TOWLINE_CODEC_KEY_FILE"):
        invoke("codec-server")
    monkeypatch.setenv("TOWLINE_CODEC_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="holds no key"):
        invoke("codec-server")
