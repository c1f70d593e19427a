"""How a program runs on the JAX devices that there are."""

from __future__ import annotations

import dataclasses as dc
import functools

import jax

from ipujax.distribution.instance import ALONE, Instance
from ipujax.engine.callbacks import Watch
from ipujax.engine.choose import choose_engine, spreading_pays
from ipujax.engine.host_code import HostCode
from ipujax.engine.one_kernel import OneKernel
from ipujax.engine.placement import Placement, make_placement
from ipujax.engine.replay import Machine
from ipujax.engine.transfers import TOGETHER, Apart
from lowering import as_products, channels_last, fuse, ir, is_one_kernel, meet_at_collectives


@dc.dataclass(frozen=True, eq=False)
class Execution:
    """How a program runs; each part is found when first asked for, as some take a while.

    Attributes:
      program: for all IPUs of its device.
      asked: the engine, as it was asked for.
      first: its first IPU's place among those of all logical devices.
      watch: on its callbacks.
      among: this process, among those that run it together.
    """

    program: ir.Program
    asked: str
    first: int
    watch: Watch
    among: Instance = ALONE

    @functools.cached_property
    def host_code(self) -> HostCode:
        """What the program runs on the host."""
        return HostCode.of(self.program, self.watch)

    @functools.cached_property
    def placement(self) -> Placement:
        """The JAX devices of the program's IPUs."""
        # Replicas that share a table of the host meet at it, in order, if they share a device.
        shared, p = "uses a table of the host" if self.host_code.tables else "", self.program
        is_free = self.asked == "auto" and self.among.shares_of_replicas == 1
        if is_free and p.replicas > 1 and not shared and not spreading_pays(p):
            shared = "computes too little to be spread"
        return make_placement(self.first, p.ipus, p.replicas, shared, self.among)

    @functools.cached_property
    def engine(self) -> str:
        """The engine that runs the program."""
        return choose_engine(self.asked, self.program, self.placement)

    @functools.cached_property
    def read(self) -> ir.Program:
        """The program that the engine reads; for `fused`, that for one device."""
        program = self.program
        if self.engine == "fused":
            program = fuse(program, ir.streams)
            ir.verify(program)
        if self.placement.spread:
            program = meet_at_collectives(program)
        if jax.default_backend() != "cpu":
            return program
        # Products first: filters that they take as they are need no transpose.
        return channels_last(as_products(program))

    @functools.cached_property
    def is_one_kernel(self) -> bool:
        """Whether the program is a plain JAX function of flat arguments."""
        is_looked_after = bool(self.host_code)  # each run is
        return not is_looked_after and _is_one_kernel(self.read, self.engine, self.placement)

    def compiled(self, donated: tuple[int, ...], apart: Apart = TOGETHER) -> OneKernel | Machine:
        """What runs the program.

        Args:
          donated: which flat arguments may be overwritten.
          apart: what of its arguments and results one process alone has; a single kernel wants all.
        """
        placement = _reduced(self.placement, self.engine)
        if self.is_one_kernel:
            return _finished(OneKernel(self.read, placement, donated))
        return _finished(Machine(self.read, placement, donated, apart))


def loaded(
    read: ir.Program, engine: str, first: int, ipus: int, donated: tuple[int, ...]
) -> OneKernel | Machine:
    """What runs a program that has been read from a file.

    Its replicas share the devices of the first one: their collectives are compiled so.

    Args:
      read: what the engine read when the program was compiled.
      engine: that runs it.
      first: its first IPU's place among those of all logical devices.
      ipus: of one replica.
      donated: which flat arguments may be overwritten.
    """
    placement = make_placement(first, ipus, read.replicas, "has been saved", ALONE)
    reader = OneKernel if _is_one_kernel(read, engine, placement) else Machine
    return _finished(reader(read, _reduced(placement, engine), donated))


def _reduced(placement: Placement, engine: str) -> Placement:
    """Where what an engine reads runs."""
    return placement.of_first_ipu() if engine == "fused" else placement


def _finished(machine: OneKernel | Machine) -> OneKernel | Machine:
    machine.compilation.finish()
    return machine


def _is_one_kernel(read: ir.Program, engine: str, placement: Placement) -> bool:
    """Whether what an engine reads is a plain JAX function, on JAX's first device."""
    return (
        not read.faults
        and engine == "fused"
        and placement.uses_one_device
        and placement.devices[0] == jax.local_devices()[0]
        and is_one_kernel(read)
    )
