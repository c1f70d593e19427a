"""The choice of engine and JAX devices for a program."""

from __future__ import annotations

import dataclasses as dc
import functools

import jax

from ipujax.engine.choose import choose_engine, spreading_pays
from ipujax.engine.device_placement import Placement, make_placement
from ipujax.engine.host_callbacks import Watch
from ipujax.engine.host_code import HostCode
from ipujax.engine.one_kernel import OneKernel
from ipujax.engine.replay import Machine
from ipujax.engine.transfers import TOGETHER, Apart
from ipujax.ground import ALONE, Instance
from lowering import (
    fuse,
    ir,
    is_one_kernel,
    meet_at_collectives,
    move_channels_last,
    rewrite_convolutions_as_products,
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
    """

    program: ir.Program
    engine_option: str
    first: int
    watch: Watch
    instance: Instance = ALONE

    @functools.cached_property
    def host_code(self) -> HostCode:
        """The code that the program runs on the host."""
        return HostCode.collect_host_code(self.program, self.watch)

    @functools.cached_property
    def placement(self) -> Placement:
        """The JAX devices of the program's IPUs."""
        # Replicas that share a table of the host meet at it, in order, if they share a device.
        shared, p = "uses a table of the host" if self.host_code.tables else "", self.program
        is_free = self.engine_option == "auto" and self.instance.num_replica_groups == 1
        if is_free and p.replicas > 1 and not shared and not spreading_pays(p):
            shared = "computes too little to be spread"
        return make_placement(self.first, p.ipus, p.replicas, shared, self.instance)

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
        if self.placement.spread:
            program = meet_at_collectives(program)
        if jax.default_backend() != "cpu":
            return program
        # Products first: filters that they take as they are need no transpose.
        return move_channels_last(rewrite_convolutions_as_products(program))

    @functools.cached_property
    def is_one_kernel(self) -> bool:
        """True if the program is a plain JAX function of flat arguments."""
        is_looked_after = bool(self.host_code)  # each run is
        return not is_looked_after and _is_one_kernel(
            self.engine_program, self.engine, self.placement
        )

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


def compile_loaded(
    read: ir.Program, engine: str, first: int, ipus: int, donated: tuple[int, ...]
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
    placement = make_placement(first, ipus, read.replicas, "has been saved", ALONE)
    reader = OneKernel if _is_one_kernel(read, engine, placement) else Machine
    return _compile_functions(reader(read, _engine_placement(placement, engine), donated))


def _engine_placement(placement: Placement, engine: str) -> Placement:
    """Returns the placement of the program that an engine reads."""
    return placement.on_first_ipu() if engine == "fused" else placement


def _compile_functions(machine: OneKernel | Machine) -> OneKernel | Machine:
    machine.compilation.compile_all()
    return machine


def _is_one_kernel(read: ir.Program, engine: str, placement: Placement) -> bool:
    """Returns whether an engine's program is a plain JAX function on JAX's first device."""
    return (
        not read.faults
        and engine == "fused"
        and placement.uses_one_device
        and placement.devices[0] == jax.local_devices()[0]
        and is_one_kernel(read)
    )
