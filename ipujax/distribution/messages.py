"""Seals messages between the processes of a program with the program's key.

`ipurun` makes a key for each program, and hands it to its instances by their standard input. Where
a scheduler has started the processes, the first one makes it and sends it to the others by JAX.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets

KEY_VARIABLE = "IPUJAX_KEY"
"""In the environment of an instance: its program's key, in hexadecimal digits."""

_KEY_BYTES = 32
SEAL_BYTES = hashlib.sha256().digest_size
"""The bytes that a seal adds to the content of a message."""


class ForgedMessageError(Exception):
    """An error of a message whose sender lacks the program's key, or meant another receiver."""


def make_program_key() -> str:
    """Returns a new key, as `KEY_VARIABLE` holds it."""
    return secrets.token_hex(_KEY_BYTES)


def read_program_key() -> bytes | None:
    """Returns the key that a launcher has given to this process; None without one."""
    key_text = os.environ.get(KEY_VARIABLE)
    return hashlib.sha256(key_text.encode()).digest() if key_text else None


def seal_message(key: bytes, address: tuple[object, ...], content: bytes) -> bytes:
    """Returns a message: its content behind a proof that the sender has the key.

    Args:
      key: the program's key.
      address: the kind, sender and receiver of the message; it is valid for these only.
      content: the content of the message.
    """
    return _compute_proof(key, address, content) + content


def open_sealed_message(key: bytes, address: tuple[object, ...], message: bytes) -> bytes:
    """Returns the content of a message, after checking its seal.

    Raises:
      ForgedMessageError: its sender does not have the key.
    """
    proof, content = message[:SEAL_BYTES], message[SEAL_BYTES:]
    if not hmac.compare_digest(proof, _compute_proof(key, address, content)):
        raise ForgedMessageError
    return content


def compute_offer_number(key: bytes, address: tuple[object, ...]) -> int:
    """Returns the number of an offer, which cannot be computed without the key."""
    digest = hashlib.blake2b(repr(address).encode(), digest_size=7, key=key)
    return int.from_bytes(digest.digest())


def _compute_proof(key: bytes, address: tuple[object, ...], content: bytes) -> bytes:
    return hmac.digest(key, repr(address).encode() + b"\0" + content, "sha256")
