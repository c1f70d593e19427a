"""Splits a program's stacked arrays into parts, where its IPUs have JAX devices of their own."""

from __future__ import annotations

from typing import Any

import jax

from ipujax.driver.call_arguments import Settings, Signature
from ipujax.driver.stacked_arrays import ROWS_AXIS, StackedArrays, list_devices
from ipujax.system import LogicalDevice
from lowering import RowSplit, count_ipus_and_replicas, jaxpr, split_stacked_arguments


def split_stacked_arrays(
    closed: jaxpr.ClosedJaxpr, signature: Signature, settings: Settings, device: LogicalDevice
) -> tuple[jaxpr.ClosedJaxpr, Signature]:
    """Returns a function that takes and gives stacked arrays in parts, and its signature.

    Nothing is split where results are brought together, where several replicas or processes run
    the program, where one device has rows of several IPUs (an array is sharded evenly), or where
    the meshes have an axis `ROWS_AXIS` themselves.
    """
    stays_apart = not settings.gather and settings.engine != "fused"
    takes_axis = not any(ROWS_AXIS in mesh.axis_names for mesh in settings.meshes)
    if not stays_apart or not takes_axis or settings.instance.count > 1 or signature.refs.positions:
        return closed, signature

    def has_devices_of_their_own(split: RowSplit) -> bool:
        if not split.has_equal_parts or max(split.ipus) >= device.num_ipus:
            return False
        devices = [d for ipu in split.ipus for d in _devices_of_ipu(ipu, settings, device)]
        return len(set(devices)) == len(devices)

    program = split_stacked_arguments(closed, has_devices_of_their_own)
    if program.closed is closed:
        return closed, signature
    on_meshes = bool(settings.meshes)
    _, replicas = count_ipus_and_replicas(
        closed, device.num_ipus, settings.replicas, on_meshes=on_meshes
    )
    if replicas > 1:
        return closed, signature
    stacked = StackedArrays(program.arguments, program.results)
    return program.closed, signature.split_arrays(stacked)


def _devices_of_ipu(ipu: int, settings: Settings, device: LogicalDevice) -> list[Any]:
    """Returns the JAX devices on which an IPU of a device runs."""
    if settings.meshes:
        return list_devices(settings.meshes[ipu])
    pool = jax.local_devices()
    return [pool[(device.first + ipu) % len(pool)]]
