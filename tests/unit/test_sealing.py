"""Keys, and values sealed for who has them."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from towline import boxes, keys
from towline.config import Config
from towline.errors import SecretUnreadable, UsageError
from towline.keys import PRIVATE, PUBLIC, SHARED
from towline.sealing import Opener, Sealer, ensure_key_pair, seal

CANARY = "s3cr3t-canary"


def config(home: Path, **more: str) -> Config:
    home.mkdir(mode=0o700, exist_ok=True)
    return Config.from_environment({"TOWLINE_HOME": str(home), "HOME": str(home), **more})


def test_what_is_sealed_is_opened_by_who_has_the_key_and_looks_different_each_time(tmp_path: Path) -> None:
    key = ensure_key_pair(config(tmp_path))
    values = {"A": CANARY, "B": "zwei\nZeilen ü", "C": "x" * 100_000}
    sealed = {name: seal(value, keys.public_of(key)) for name, value in values.items()}
    assert Opener(config(tmp_path)).open(sealed) == values
    assert CANARY not in str(sealed)
    assert seal(CANARY, keys.public_of(key)) != sealed["A"]


def test_the_pair_of_a_home_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    first = ensure_key_pair(config(tmp_path))
    assert ensure_key_pair(config(tmp_path)) == first
    assert stat.S_IMODE((tmp_path / "secrets.keys").stat().st_mode) == 0o600
    assert Sealer(config(tmp_path))("A", CANARY).key == first.id


def test_a_client_elsewhere_needs_only_the_public_key(tmp_path: Path) -> None:
    worker = config(tmp_path / "worker")
    public = keys.show(keys.public_of(ensure_key_pair(worker)).data, PUBLIC)
    client = config(tmp_path / "client", TOWLINE_SECRETS_PUBLIC_KEY=public, TEMPORAL_ADDRESS="elsewhere:7233")
    sealed = Sealer(client)("A", CANARY)
    assert Opener(worker).open({"A": sealed}) == {"A": CANARY}
    assert not (client.home / "secrets.keys").exists()


def test_a_new_key_is_used_from_then_on_and_the_old_one_still_opens_what_was_sealed_before(tmp_path: Path) -> None:
    settings = config(tmp_path)
    old = Sealer(settings)("A", CANARY)
    opener = Opener(settings)
    opener.open({"A": old})
    keys.add(settings.secrets_private_keys, PRIVATE, boxes.new_private_key)
    new = Sealer(settings)("A", CANARY)
    assert new.key != old.key
    assert opener.open({"old": old, "new": new}) == {"old": CANARY, "new": CANARY}


def test_a_worker_without_the_key_says_which_and_what_to_do(tmp_path: Path) -> None:
    sealed = Sealer(config(tmp_path / "one"))("TOKEN", CANARY)
    for home in ("none", "two"):
        other = config(tmp_path / home)
        if home == "two":
            ensure_key_pair(other)
        with pytest.raises(SecretUnreadable) as refused:
            Opener(other).open({"TOKEN": sealed})
        assert f"secret TOKEN is sealed for key {sealed.key}, which this worker does not have" in str(refused.value)
        assert "TOWLINE_SECRETS_PUBLIC_KEY" in str(refused.value)


@pytest.mark.parametrize("damage", ["", "AAAA", "no base64", "A" * 200])
def test_a_damaged_value_is_said_and_not_shown(tmp_path: Path, damage: str) -> None:
    sealed = replace(Sealer(config(tmp_path))("TOKEN", CANARY), sealed=damage)
    with pytest.raises(SecretUnreadable, match="secret TOKEN cannot be opened with key") as refused:
        Opener(config(tmp_path)).open({"TOKEN": sealed})
    assert not damage or damage not in str(refused.value)


@pytest.mark.parametrize(("value", "words"), [("a\0b", "must not contain a NUL byte"), ("x" * 200_000, "is too large")])
def test_what_cannot_be_in_an_environment_is_refused_whoever_sealed_it(tmp_path: Path, value: str, words: str) -> None:
    sealed = seal(value, keys.public_of(ensure_key_pair(config(tmp_path))))
    with pytest.raises(SecretUnreadable, match=f"secret TOKEN {words}"):
        Opener(config(tmp_path)).open({"TOKEN": sealed})


def test_without_any_key_a_client_of_a_server_elsewhere_is_told_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="set TOWLINE_SECRETS_PUBLIC_KEY to the public key of the workers"):
        Sealer(config(tmp_path, TEMPORAL_ADDRESS="elsewhere:7233"))("A", CANARY)


def test_checking_makes_no_key(tmp_path: Path) -> None:
    Sealer(config(tmp_path), only_checking=True)("A", CANARY)
    assert list(tmp_path.iterdir()) == []


def test_a_key_of_another_kind_is_refused_by_name_and_never_shown(tmp_path: Path) -> None:
    private = keys.show(boxes.new_private_key(), PRIVATE)
    with pytest.raises(UsageError, match="must be a public key, .* not a private key") as refused:
        keys.parse(private, PUBLIC, "TOWLINE_SECRETS_PUBLIC_KEY")
    assert private.removeprefix(PRIVATE) not in str(refused.value)


@pytest.mark.parametrize("text", ["towline-codec-", "towline-codec-AAAA", "towline-codec-!!!!", "", "key"])
def test_a_damaged_key_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be a codec key"):
        keys.parse(text, SHARED, "x")


def test_a_file_of_keys_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    ensure_key_pair(config(tmp_path))
    (tmp_path / "secrets.keys").chmod(0o644)
    with pytest.raises(UsageError, match="may be read by everybody; chmod 600 it"):
        ensure_key_pair(config(tmp_path))
    sealed = seal(CANARY, keys.public_of(keys.parse(keys.show(boxes.new_private_key(), PRIVATE), PRIVATE, "x")))
    with pytest.raises(SecretUnreadable, match="chmod 600"):
        Opener(config(tmp_path)).open({"A": sealed})


def test_a_key_does_not_show_itself() -> None:
    data = boxes.new_private_key()
    key = keys.parse(keys.show(data, PRIVATE), PRIVATE, "x")
    assert repr(key) == f"Key(id={key.id!r})"


def test_what_is_encrypted_is_read_with_its_key_and_label_alone() -> None:
    key = boxes.new_shared_key()
    data = boxes.encrypt(b"payload", key, b"label")
    assert boxes.decrypt(data, key, b"label") == b"payload"
    for wrong in ((data, boxes.new_shared_key(), b"label"), (data, key, b"other"), (data[:-1], key, b"label")):
        with pytest.raises(boxes.Unopened):
            boxes.decrypt(*wrong)
    with pytest.raises(boxes.Unopened):
        boxes.unseal(b"short", boxes.new_private_key())
