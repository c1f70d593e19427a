"""Named types of numbers that must not be mixed up."""

from __future__ import annotations

from typing import NewType

ValueId = NewType("ValueId", int)
"""Identifies a value of a `Program`; an index into `Program.values`."""

IpuId = NewType("IpuId", int)
"""A shard: the position of an IPU within one replica, or `HOST`."""

HOST = IpuId(-1)
"""The host: arguments come from it, results go to it, and outside-compilation runs on it."""
