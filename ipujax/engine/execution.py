"""The choice of engine and JAX devices for a program."""

from __future__ import annotations

import dataclasses as dc
import functools

import jax
from jax.sharding import Mesh

from ipujax.engine.choose import choose_engine, is_faster_with_device_per_replica
from ipujax.engine.device_placement import Placement, make_placement
from ipujax.engine.host_callbacks import Watch
from ipujax.engine.host_code import HostCode
from ipujax.engine.mesh_placement import make_mesh_placement
from ipujax.engine.one_kernel import OneKernel
from ipujax.engine.replay import Machine
from ipujax.engine.transfers import TOGETHER, Apart
from ipujax.ground import ALONE, Instance
from lowering import (
    align_replicas_at_collectives,
    exchange_sums_of_two_replicas,
    fuse,
    ir,
    is_one_kernel,
    move_channels_last,
    rewrite_convolutions_as_products,
    rewrite_window_maxima,
)


@dc.dataclass(frozen=True, eq=False)
class Execution:
    """The engine, devices and host code of one program, each found when first read.

    Attributes:
      program: the program for all IPUs of its device.
      engine_option: the engine that the user asked for.
      first: its first IPU's place among those of all logical devices.
      watch: records what its callbacks raise.
      instance: this process, among those that run it together.
      meshes: the mesh of each IPU of the device; none if each has one JAX device.
      gather: whether a call brings its results together.
    """

    program: ir.Program
    engine_option: str
    first: int
    watch: Watch
    instance: Instance = ALONE
    meshes: tuple[Mesh, ...] = ()
    _: dc.KW_ONLY
    gather: bool = True

    @functools.cached_property
    def host_code(self) -> HostCode:
        """The code that the program runs on the host."""
        return HostCode.collect_host_code(self.program, self.watch)

    @functools.cached_property
    def placement(self) -> Placement:
        """The JAX devices of the program's IPUs."""
        p = self.program
        if self.meshes:
            return make_mesh_placement(
                self.meshes, p.ipus, p.replicas, self.instance, gather=self.gather
            )
        # Replicas that share a table of the host meet at it, in order, if they share a device.
        shared = "uses a table of the host" if self.host_code.tables else ""
        is_free = self.engine_option == "auto" and self.instance.num_replica_groups == 1
        if is_free and p.replicas > 1 and not shared and not is_faster_with_device_per_replica(p):
            shared = "computes too little to be spread"
        return make_placement(
            self.first, p.ipus, p.replicas, shared, self.instance, gather=self.gather
        )

    @functools.cached_property
    def engine(self) -> str:
        """The engine that runs the program."""
        return choose_engine(self.engine_option, self.program, self.placement)

    @functools.cached_property
    def engine_program(self) -> ir.Program:
        """The program that the engine reads; for `fused`, the program of one device."""
        program = self.program
        if self.engine == "fused":
            program = fuse(program, ir.needs_host)
        if self.placement.spread and not self.meshes:
            program = align_replicas_at_collectives(program)
        if jax.default_backend() != "cpu":
            return program
        if self.placement.spans_processes and len(self.placement.replicas_of_process) == 1:
            program = exchange_sums_of_two_replicas(program)
        # Products first: filters that they take as they are need no transpose.
        return rewrite_window_maxima(move_channels_last(rewrite_convolutions_as_products(program)))

    @functools.cached_property
    def is_one_kernel(self) -> bool:
        """True if the program is a plain JAX function of flat arguments."""
        is_looked_after = bool(self.host_code)  # each run is
        return not is_looked_after and _is_one_kernel(self.engine_program, self.placement)

    def compile_machine(
        self, donated: tuple[int, ...], apart: Apart = TOGETHER
    ) -> OneKernel | Machine:
        """Compiles the program and returns the object that runs it.

        Args:
          donated: which flat arguments may be overwritten.
          apart: what of its arguments and results one process alone has; a single kernel wants all.
        """
        placement = _engine_placement(self.placement, self.engine)
        if self.is_one_kernel:
            return _compile_functions(OneKernel(self.engine_program, placement, donated))
        return _compile_functions(Machine(self.engine_program, placement, donated, apart))


def compile_loaded_program(
    program: ir.Program, engine: str, first: int, ipus: int, donated: tuple[int, ...]
) -> OneKernel | Machine:
    """Compiles a program that was read from a file, and returns the object that runs it.

    Its replicas share the devices of the first one: their collectives are compiled so.

    Args:
      read: what the engine read when the program was compiled.
      engine: the engine that runs the program.
      first: its first IPU's place among those of all logical devices.
      ipus: the number of IPUs of one replica.
      donated: which flat arguments may be overwritten.
    """
    placement = make_placement(first, ipus, program.replicas, "has been saved", ALONE)
    reader = OneKernel if _is_one_kernel(program, placement) else Machine
    return _compile_functions(reader(program, _engine_placement(placement, engine), donated))


def _engine_placement(placement: Placement, engine: str) -> Placement:
    """Returns the placement of the program that an engine reads."""
    return placement.place_all_on_first_ipu() if engine == "fused" else placement


def _compile_functions(machine: OneKernel | Machine) -> OneKernel | Machine:
    machine.compilation.compile_all()
    return machine


def _is_one_kernel(program: ir.Program, placement: Placement) -> bool:
    """Returns whether an engine's program is a plain JAX function on JAX's first device."""
    return (
        not program.faults
        and placement.uses_one_device
        and placement.devices[0] == jax.local_devices()[0]
        and is_one_kernel(program)
    )
