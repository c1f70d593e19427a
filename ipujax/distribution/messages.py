"""Messages between the processes of a program: bytes that only those who have its key can send.

`ipurun` makes a key for each program, and hands it to its instances by their standard input. Where
a scheduler has started the processes, the first one makes it and JAX tells the others.
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
"""By which a sealed message is longer than what it says."""


class ForgedMessageError(Exception):
    """A message whose sender does not have the program's key, or that was for somebody else."""


def make_key() -> str:
    """A new key, as `KEY_VARIABLE` holds it."""
    return secrets.token_hex(_KEY_BYTES)


def read_key() -> bytes | None:
    """The key that a launcher has handed to this process; None if none has."""
    handed = os.environ.get(KEY_VARIABLE)
    return hashlib.sha256(handed.encode()).digest() if handed else None


def seal(key: bytes, address: tuple[object, ...], content: bytes) -> bytes:
    """A message: its content behind a proof that the sender has the key.

    Args:
      key: the program's.
      address: what the message is, from whom, and for whom: it is good for nothing else.
      content: what it says.
    """
    return _proof(key, address, content) + content


def open_sealed(key: bytes, address: tuple[object, ...], message: bytes) -> bytes:
    """What a message says, once it is known who has sent it.

    Raises:
      ForgedMessageError: its sender does not have the key.
    """
    proof, content = message[:SEAL_BYTES], message[SEAL_BYTES:]
    if not hmac.compare_digest(proof, _proof(key, address, content)):
        raise ForgedMessageError
    return content


def number_of(key: bytes, address: tuple[object, ...]) -> int:
    """The number under which something is offered: whoever has no key cannot ask for it."""
    digest = hashlib.blake2b(repr(address).encode(), digest_size=7, key=key)
    return int.from_bytes(digest.digest())


def _proof(key: bytes, address: tuple[object, ...], content: bytes) -> bytes:
    return hmac.digest(key, repr(address).encode() + b"\0" + content, "sha256")
