"""Secrets on their way from who submits a job to a worker: sealed here, opened there, and nowhere in between.

A value is sealed for a public key; only workers have the private one. `TOWLINE_SECRETS_PUBLIC_KEY` and
`TOWLINE_SECRETS_PRIVATE_KEY_FILE` name them, by default the pair that is made under `$TOWLINE_HOME`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING

from towline import boxes, keys
from towline.contract import SealedSecret
from towline.errors import SecretUnreadable, UsageError
from towline.keys import PRIVATE, PUBLIC, Key
from towline.masking import SHORTEST_VALUE
from towline.task_envs import value_problem

if TYPE_CHECKING:
    from towline.config import Config

_PUBLIC_VARIABLE = "TOWLINE_SECRETS_PUBLIC_KEY"
_PRIVATE_VARIABLE = "TOWLINE_SECRETS_PRIVATE_KEY_FILE"


class Sealer:
    """Seals values for the workers of this installation; the same value once. `too_short_to_mask` names those that
    logs will show."""

    def __init__(self, config: Config, *, only_checking: bool = False) -> None:
        self._config = config
        self._only_checking = only_checking
        self._key: Key | None = None
        self._sealed: dict[tuple[str, str], SealedSecret] = {}
        self.too_short_to_mask: set[str] = set()

    def __call__(self, name: str, value: str) -> SealedSecret:
        """The value of the secret `name`, sealed. Raises UsageError when there is no key to seal it with."""
        if len(value.encode()) < SHORTEST_VALUE:
            self.too_short_to_mask.add(name)
        known = self._sealed.get((name, value))
        if known is None:
            self._key = self._key or self._find()
            known = self._sealed[(name, value)] = seal(value, self._key)
        return known

    def _find(self) -> Key:
        """The key that workers can open; with `only_checking` one that nobody can, rather than to make any."""
        config = self._config
        if config.secrets_public_key:
            return keys.parse(config.secrets_public_key, PUBLIC, _PUBLIC_VARIABLE)
        found = keys.read(config.secrets_private_keys, PRIVATE, _PRIVATE_VARIABLE)
        if found:
            return keys.public_of(found[0])
        if config.temporal_configured:
            raise UsageError(
                f"a secret cannot be sealed: set {_PUBLIC_VARIABLE} to the public key of the workers "
                "(`towline keygen FILE` makes a pair)"
            )
        if self._only_checking:
            data = boxes.public_key(boxes.new_private_key())
            return Key(keys.key_id(data), data)
        config.make_home()
        return keys.public_of(ensure_key_pair(config))


def seal(value: str, public: Key) -> SealedSecret:
    """A value for the holder of the private key alone."""
    data = boxes.seal(value.encode(), public.data)
    return SealedSecret(sealed=base64.b64encode(data).decode(), key=public.id)


class Opener:
    """Opens what was sealed for this worker. The file is read at each call that needs it, so that keys may be added
    while it works."""

    def __init__(self, config: Config) -> None:
        self._path = config.secrets_private_keys

    def key_ids(self) -> list[str]:
        """The keys it has now. Raises UsageError when they cannot be read."""
        return [each.id for each in keys.read(self._path, PRIVATE, _PRIVATE_VARIABLE)]

    def open(self, secrets: Mapping[str, SealedSecret]) -> dict[str, str]:
        """The values. Raises SecretUnreadable, which names the secret and the key, and what to do."""
        if not secrets:
            return {}
        try:
            known = {each.id: each for each in keys.read(self._path, PRIVATE, _PRIVATE_VARIABLE)}
        except UsageError as error:
            raise SecretUnreadable(f"secrets cannot be opened: {error}") from None
        return {name: self._open(name, sealed, known) for name, sealed in secrets.items()}

    def _open(self, name: str, secret: SealedSecret, known: dict[str, Key]) -> str:
        key = known.get(secret.key)
        if key is None:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise SecretUnreadable(
                f"secret {name} is sealed for key {secret.key}, which this worker does not have ({has}); submit with "
                f"the workers' public key in {_PUBLIC_VARIABLE}, or add the key to {self._path} on the workers"
            )
        try:
            value = boxes.unseal(base64.b64decode(secret.sealed, validate=True), key.data).decode()
        except (boxes.Unopened, binascii.Error, ValueError):
            text = f"secret {name} cannot be opened with key {secret.key}: it is damaged; submit the job again"
            raise SecretUnreadable(text) from None
        problem = value_problem(name, value)
        if problem:
            raise SecretUnreadable(f"secret {name} {problem}")
        return value


def ensure_key_pair(config: Config) -> Key:
    """The private key that new secrets are sealed for; made when there is none yet."""
    path = config.secrets_private_keys
    with keys.locked(path):
        found = keys.read(path, PRIVATE, _PRIVATE_VARIABLE)
        return found[0] if found else keys.add(path, PRIVATE, boxes.new_private_key)
