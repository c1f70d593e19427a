"""The assignment of a program's IPUs to meshes of JAX devices, within which XLA shares the work.

IPU i of the device runs on the i-th mesh. How a value is sharded over the mesh of its IPU is not
said anywhere: XLA chooses it for the results of each kernel, from the shardings of its operands and
the program's constraints. A value that goes to another IPU keeps its sharding, over that mesh.

Replicas of an IPU form one mesh with one more axis in front, `REPLICAS`.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ipujax.engine.device_placement import Axis, PerReplica, Placement, copy_shards, replica_spec
from ipujax.ground import DeviceMeshError, Instance
from ipujax.system import join_replicas


@dc.dataclass(frozen=True)
class MeshPlacement(Placement):
    """The meshes of a program's IPUs, replica after replica, all with the same axes."""

    _mesh_of_ipu: dict[int, Mesh] = dc.field(default_factory=dict[int, Mesh], compare=False)
    _shardings: dict[tuple[int, PartitionSpec], NamedSharding] = dc.field(
        default_factory=dict[tuple[int, PartitionSpec], NamedSharding], compare=False
    )

    @property
    def uses_one_device(self) -> bool:
        """False: a program on meshes is never fused for one device."""
        return False

    @functools.cached_property
    def is_default(self) -> bool:
        """False: every array is committed to a mesh."""
        return False

    def replica_mesh(self, ipu: int) -> Mesh:
        """Returns the mesh of an IPU; with replicas, of all of them, along a first axis."""
        if ipu not in self._mesh_of_ipu:
            meshes = self.meshes[ipu :: self.ipus]
            mesh = join_replicas(meshes) if self.replicas > 1 else meshes[0]
            self._mesh_of_ipu[ipu] = mesh
        return self._mesh_of_ipu[ipu]

    def sharding(self, ipu: int, axis: Axis = 0) -> jax.sharding.Sharding:
        """Returns the sharding of an IPU's value that is whole on each device of its mesh."""
        spec = PartitionSpec() if self.replicas == 1 else replica_spec(axis)
        return self.sharding_by_spec(ipu, spec)

    def sharding_by_spec(self, ipu: int, spec: PartitionSpec) -> NamedSharding:
        """Returns the sharding over the mesh of an IPU that a spec describes."""
        key = ipu, spec
        if key not in self._shardings:
            self._shardings[key] = NamedSharding(self.replica_mesh(ipu), spec)
        return self._shardings[key]

    def _move_host_array(self, array: Any, ipu: int) -> jax.Array:
        """Moves an argument or constant to an IPU's mesh, unless it is there.

        An array that is sharded over another IPU's mesh is sharded likewise over this one; any
        other becomes whole on each device of the mesh.
        """
        if isinstance(array, PerReplica):
            return jax.device_put(array.array, self.sharding(ipu))
        target = self.sharding_by_spec(ipu, self._spec_to_keep(array))
        return array if array.sharding == target else jax.device_put(array, target)

    def place_argument(self, array: jax.Array, ipu: int) -> jax.Array:
        """Moves an argument to the mesh of an IPU in the first replica, unless it is there.

        It is sharded as an argument that `move_to_ipu` moves.
        """
        target = NamedSharding(self.meshes[ipu], self._spec_to_keep(array))
        return array if array.sharding == target else jax.device_put(array, target)

    def move_between_ipus(self, arrays: Sequence[Any], ipu: int) -> list[jax.Array]:
        """Moves arrays from another IPU to this one, where they are sharded likewise."""
        targets = [self.sharding_by_spec(ipu, array.sharding.spec) for array in arrays]
        return copy_shards(arrays, targets)

    def share_devices(self, ipu: int, other_ipu: int) -> bool:
        """Returns whether two IPUs have the same mesh, so that moves between them are free."""
        return self.replica_mesh(ipu) == self.replica_mesh(other_ipu)

    def move_to_host(self, arrays: Sequence[jax.Array]) -> Sequence[Any]:
        """Returns results as the host has them: where they are, or replicated on the first mesh."""
        if self.replicas > 1:
            return list(map(PerReplica, arrays))
        return self.gather_results(list(arrays)) if self.gather else arrays

    def gather_results(self, arrays: list[jax.Array]) -> list[jax.Array]:
        """Replicates results on the first mesh.

        They go there sharded as they are, and are gathered there: otherwise JAX would move them
        through the host.
        """
        first = self.meshes[0]
        shardings: list[Any] = [array.sharding for array in arrays]
        targets = [NamedSharding(first, sharding.spec) for sharding in shardings]
        return jax.device_put(
            jax.device_put(arrays, targets), NamedSharding(first, PartitionSpec())
        )

    def take_first_replica(self, array: Any) -> Any:
        """Returns the value of the first replica behind an axis of length 1, on its own mesh."""
        if not isinstance(array, jax.Array):
            return array[:1]
        sharding: Any = array.sharding
        all_replicas: Mesh = sharding.mesh
        first = next(m for m in self.meshes if (m.devices == all_replicas.devices[0]).all())
        devices = set(first.devices.flat)
        shards = [shard.data for shard in array.addressable_shards if shard.device in devices]
        spec = PartitionSpec(None, *tuple(sharding.spec)[1:])
        shape = (1, *array.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(first, spec), shards)

    def result_shardings(self, ipu: int, axes: Sequence[Axis]) -> None:
        """Returns None: XLA chooses the shardings of results."""
        del ipu, axes

    def _spec_to_keep(self, array: jax.Array) -> PartitionSpec:
        """Returns how an array is sharded over a mesh like those of the IPUs, or as a whole."""
        sharding = array.sharding
        if not isinstance(sharding, NamedSharding) or sharding.is_fully_replicated:
            return PartitionSpec()
        return sharding.spec if sharding.mesh.shape == self.meshes[0].shape else PartitionSpec()


def make_mesh_placement(
    meshes: Sequence[Mesh], ipus: int, replicas: int, instance: Instance, *, gather: bool
) -> MeshPlacement:
    """Assigns virtual IPUs to meshes of devices, one to each.

    Raises:
      DeviceMeshError: a mesh with devices of another process than the one that runs its IPU;
        replicas in several processes.
    """
    if instance.num_replica_groups > 1:
        raise DeviceMeshError(
            f"{replicas} replicas are in {instance.num_replica_groups} processes, and IPUs with "
            "meshes have all of their replicas in one",
            fix="start ipurun with --spread ipus, or let an axis of the meshes share the data",
        )
    used = tuple(meshes[: ipus * replicas])
    devices = tuple(mesh.devices.flat[0] for mesh in used)
    placement = MeshPlacement(
        devices, ipus, replicas, replicas > 1, instance, gather=gather, meshes=used
    )
    for number, mesh in enumerate(used):
        process_of_ipu = placement.process_of_ipu
        if process_of_ipu and process_of_ipu[number % ipus] != instance.index:
            continue
        foreign = [d for d in mesh.devices.flat if d.process_index != jax.process_index()]
        if foreign:
            raise DeviceMeshError(
                f"meshes[{number}] has {foreign[0]}, which is a device of process "
                f"{foreign[0].process_index}, and IPU {number} runs in process "
                f"{jax.process_index()}",
                fix="give each IPU devices of the process that runs it: build the meshes from "
                "jax.local_devices()",
            )
    return placement
