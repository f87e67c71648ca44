"""Encryption of all that jobs put into Temporal, where it is wanted: inputs, results, heartbeats, failures, memos.

`TOWLINE_CODEC_KEY_FILE` names the keys; clients and workers must have them. Whatever the keys, payloads that are not
encrypted are read as they are, so that encryption can begin while jobs run. What Temporal itself looks at stays
readable: ids, search attributes, names of types.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec

from towline import boxes, keys
from towline.errors import UsageError
from towline.keys import SHARED, Key

if TYPE_CHECKING:
    from towline.config import Config

VARIABLE = "TOWLINE_CODEC_KEY_FILE"
_ENCODING = b"binary/encrypted"
_KEY_ID = "encryption-key-id"


class EncryptingCodec(PayloadCodec):
    """Encrypts with the first key, decrypts with any; without a key it encrypts nothing."""

    def __init__(self, known: list[Key]) -> None:
        self._first = known[0] if known else None
        self._keys = {each.id: each for each in known}

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each payload whole, with its metadata, in one that names the key."""
        key = self._first
        return [_encrypted(each, key) for each in payloads] if key else list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads as they were. Raises UsageError when a key is missing."""
        return [self._decrypted(each) for each in payloads]

    def _decrypted(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != _ENCODING:
            return payload
        name = payload.metadata.get(_KEY_ID, b"").decode("utf-8", "replace")
        key = self._keys.get(name)
        if key is None:
            raise UsageError(f"this is encrypted with codec key {name[:64]}, which is not here; add it to {VARIABLE}")
        try:
            return Payload.FromString(boxes.decrypt(payload.data, key.data, name.encode()))
        except boxes.Unopened:
            raise UsageError(f"what is encrypted with codec key {name} is damaged") from None


def read_codec(config: Config) -> EncryptingCodec:
    """The codec of this configuration. Raises UsageError when its file is missing or wrong."""
    if config.codec_keys is None:
        return EncryptingCodec([])
    known = keys.read(config.codec_keys, SHARED, VARIABLE)
    if not known:
        raise UsageError(f"{VARIABLE} {config.codec_keys}: holds no key; `towline keygen --codec FILE` makes one")
    return EncryptingCodec(known)


def data_converter(config: Config) -> DataConverter:
    """Temporal's own converter with the codec; where there are keys, texts of failures are encrypted too."""
    plain = dataclasses.replace(DataConverter.default, payload_codec=read_codec(config))
    if config.codec_keys is None:
        return plain
    return dataclasses.replace(plain, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)


def _encrypted(payload: Payload, key: Key) -> Payload:
    data = boxes.encrypt(payload.SerializeToString(), key.data, key.id.encode())
    return Payload(metadata={"encoding": _ENCODING, _KEY_ID: key.id.encode()}, data=data)
