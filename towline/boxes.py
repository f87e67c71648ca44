"""Encryption, as libsodium does it: bytes in, bytes out. The only door to PyNaCl."""

from __future__ import annotations

from nacl import secret
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox
from nacl.utils import random

KEY_BYTES = 32


class Unopened(Exception):
    """Not made with this key, or changed since. Says nothing of what was tried."""


def new_private_key() -> bytes:
    """A private key for sealed boxes (X25519)."""
    return bytes(PrivateKey.generate())


def public_key(private: bytes) -> bytes:
    """The public key that belongs to a private one."""
    return bytes(PrivateKey(private).public_key)


def seal(data: bytes, public: bytes) -> bytes:
    """`data` for the holder of the private key alone; another text each time."""
    return bytes(SealedBox(PublicKey(public)).encrypt(data))


def unseal(data: bytes, private: bytes) -> bytes:
    """What was sealed. Raises Unopened."""
    try:
        return bytes(SealedBox(PrivateKey(private)).decrypt(data))
    except (CryptoError, ValueError, TypeError):
        raise Unopened from None


def new_shared_key() -> bytes:
    """A key for both sides (XChaCha20-Poly1305)."""
    return random(KEY_BYTES)


def encrypt(data: bytes, key: bytes, label: bytes) -> bytes:
    """`data` for whoever has the key. `label` is not hidden, but cannot be changed either."""
    return bytes(secret.Aead(key).encrypt(data, label))


def decrypt(data: bytes, key: bytes, label: bytes) -> bytes:
    """What was encrypted under this label. Raises Unopened."""
    try:
        return bytes(secret.Aead(key).decrypt(data, label))
    except (CryptoError, ValueError, TypeError):
        raise Unopened from None
