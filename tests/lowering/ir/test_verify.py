"""Programs broken by hand: each promise of `verify` is missed, and says so."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from lowering import ir
from lowering.ground import HOST, InternalError, IpuId, ValueId
from lowering.jaxprs import ClosedJaxpr, JaxprVerifier, map_sub_jaxprs
from tests.lowering.samples import trace

VECTOR = jax.typeof(jnp.zeros(3, jnp.float32))
MATRIX = jax.typeof(jnp.zeros((2, 3), jnp.float32))
NUMBER = jax.typeof(jnp.int32(0))
FLAG = jax.typeof(jnp.bool_(False))
ZERO, ONE = IpuId(0), IpuId(1)


def ids(*numbers: int) -> tuple[ValueId, ...]:
    return tuple(map(ValueId, numbers))


def kernel(*avals: Any) -> ir.Kernel:
    return ir.Kernel(trace(lambda *xs: [x + 0 if x.dtype != bool else ~x for x in xs], *avals))


def run(reads: int, writes: int, ipu: IpuId = ZERO, aval: Any = VECTOR) -> ir.Execute:
    return ir.Execute(kernel(aval), ipu, ids(reads), ids(writes))


def copy(value: int, source: IpuId, target: IpuId) -> ir.Copy:
    return ir.Copy(ids(value), source, target)


def carry(ipu: IpuId = ZERO, initial: int = 0, leaving: int = 2) -> ir.Carry:
    return ir.Carry(*ids(initial, 1, leaving, 3), ipu=ipu)


def repeat(*steps: ir.Node, carried: ir.Carry | None = None, **fields: Any) -> ir.Repeat:
    fields = {"count": 2, **fields}
    return ir.Repeat(body=ir.Sequence(steps), carry=(carried or carry(),), **fields)


def program(*steps: ir.Node, avals: Any = None, outputs: Any = (), **fields: Any) -> ir.Program:
    fields = {"ipus": 2, "replicas": 1, "inputs": ids(0), **fields}
    return ir.Program(
        name="broken",
        avals=tuple(avals or [VECTOR] * 10),
        constants=(),
        body=ir.Sequence(steps),
        outputs=ids(*outputs),
        **fields,
    )


HERE = copy(0, HOST, ZERO)


def loop_of_one_step(**fields: Any) -> ir.Repeat:
    return repeat(run(1, 2), **fields)


def test_a_good_program_passes():
    back = copy(3, ZERO, HOST)
    ir.verify(program(HERE, loop_of_one_step(), back, outputs=[3]))


BROKEN: dict[str, tuple[ir.Program, str]] = {
    "read where it is not": (program(run(0, 1)), "execute reads %0 on ipu 0"),
    "read before it is written": (program(HERE, run(5, 1)), "execute reads %5 on ipu 0"),
    "read on another ipu": (program(HERE, run(0, 1), run(1, 2, ONE)), "%1 on ipu 1"),
    "written twice": (program(HERE, run(0, 1), run(0, 1)), "writes %1, which is written already"),
    "argument overwritten": (program(HERE, run(0, 0)), "writes %0, which is written already"),
    "copy of nothing": (program(copy(1, ZERO, ONE)), "copy reads %1 on ipu 0"),
    "result is not on the host": (
        program(HERE, run(0, 1), outputs=[1]),
        "outputs reads %1 on host",
    ),
    "result that nobody wrote": (program(outputs=[7]), "outputs reads %7 on host"),
    "kernel takes another shape": (
        program(copy(0, HOST, ZERO), run(0, 1, aval=MATRIX)),
        "execute takes",
    ),
    "kernel gives another shape": (
        program(HERE, run(0, 1), avals=[VECTOR, MATRIX]),
        "execute gives",
    ),
    "kernel takes another number of values": (
        program(HERE, ir.Execute(kernel(VECTOR), ZERO, ids(0, 0), ids(1))),
        "execute takes",
    ),
    "ipu that is not there": (program(copy(0, HOST, IpuId(2))), "ipu 2 of a program over 2 IPUs"),
    "kernel on an ipu that is not there": (
        program(run(0, 1, IpuId(5))),
        "ipu 5 of a program over 2 IPUs",
    ),
    "no ipus": (program(ipus=0), "1 replicas of 0 IPUs"),
    "no replicas": (program(replicas=0), "0 replicas of 2 IPUs"),
    "stream-in of a value that is there": (
        program(ir.StreamIn(None, ZERO, ids(0))),  # pyright: ignore[reportArgumentType]
        "stream-in writes %0",
    ),
    "stream-out of a value that is elsewhere": (
        program(HERE, ir.StreamOut(None, ONE, ids(0), None)),  # pyright: ignore[reportArgumentType]
        "stream-out reads %0 on ipu 1",
    ),
    "stream on an ipu that is not there": (
        program(ir.StreamIn(None, IpuId(3), ids(1))),  # pyright: ignore[reportArgumentType]
        "ipu 3 of a program over 2 IPUs",
    ),
    "host call in a loop": (
        program(HERE, repeat(ir.HostCall("save", kernel(VECTOR), ids(1), ids(2)))),
        "host-call save inside control flow",
    ),
    "host call without its operand": (
        program(HERE, run(0, 1), ir.HostCall("save", kernel(VECTOR), ids(1), ids(2))),
        "host-call reads %1 on host",
    ),
    "loop variable is elsewhere": (
        program(HERE, loop_of_one_step(carried=carry(ONE))),
        "carry reads %0 on ipu 1",
    ),
    "loop variable of two shapes": (
        program(HERE, loop_of_one_step(), avals=[VECTOR, VECTOR, VECTOR, MATRIX]),
        "carry",
    ),
    "loop variable never computed": (program(HERE, repeat()), "repeat reads %2 on ipu 0"),
    "loop without a count": (program(HERE, loop_of_one_step(count=None)), "either a static count"),
    "loop with two counts": (
        program(HERE, loop_of_one_step(trips=ValueId(0))),
        "either a static count",
    ),
    "trip count that nobody wrote": (
        program(HERE, loop_of_one_step(count=None, trips=ValueId(8))),
        "repeat reads %8 before it is written",
    ),
    "value of a body read after it": (
        program(HERE, repeat(run(1, 2), run(2, 4)), run(4, 5)),
        "execute reads %4 on ipu 0",
    ),
    "slice of the wrong length": (
        program(
            HERE,
            repeat(run(1, 2), slices=(ir.Slice(*ids(0, 4), ipu=ZERO),)),
        ),
        "%0 is not %4 stacked 2 times",
    ),
    "slice of what is elsewhere": (
        program(
            HERE,
            repeat(run(1, 2), slices=(ir.Slice(*ids(0, 4), ipu=ONE),)),
        ),
        "slice reads %0 on ipu 1",
    ),
    "stack of the wrong length": (
        program(
            HERE,
            repeat(run(1, 2), count=3, stacks=(ir.Stack(*ids(2, 4), ipu=ZERO),)),
            avals=[VECTOR] * 4 + [MATRIX],
        ),
        "%4 is not %2 stacked 3 times",
    ),
    "stack of what is elsewhere": (
        program(
            HERE,
            repeat(run(1, 2), stacks=(ir.Stack(*ids(2, 4), ipu=ONE),)),
            avals=[VECTOR] * 4 + [MATRIX],
        ),
        "repeat reads %2 on ipu 1",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_promises_are_caught(name):
    broken, message = BROKEN[name]
    with pytest.raises(InternalError) as error:
        ir.verify(broken)
    assert message in str(error.value)


# --- while and switch -----------------------------------------------------------------------------

AVALS = [VECTOR, VECTOR, VECTOR, VECTOR, FLAG, FLAG, NUMBER, VECTOR, VECTOR, MATRIX]


def while_loop(predicate: int = 5, body: ir.Node | None = None) -> ir.While:
    test = ir.Execute(kernel(FLAG), ZERO, ids(4), ids(5))
    return ir.While(
        condition=ir.Sequence((test,)),
        predicate=ValueId(predicate),
        body=ir.Sequence((body or run(1, 2),)),
        carry=(carry(),),
    )


def switch(results: tuple[int, int] = (1, 2), ipus: tuple[IpuId, ...] = (ZERO,)) -> ir.Switch:
    branches = [
        ir.Branch(ir.Sequence((run(0, 1),)), ids(results[0])),
        ir.Branch(ir.Sequence((run(0, 2),)), ids(results[1])),
    ]
    return ir.Switch(index=ValueId(6), branches=tuple(branches), writes=ids(3), ipus=ipus)


def controlled(*steps: ir.Node, inputs: tuple[int, ...] = (0, 4, 6)) -> ir.Program:
    here = ir.Copy(ids(*inputs), HOST, ZERO)
    return program(here, *steps, avals=AVALS, inputs=ids(*inputs))


def test_good_control_flow_passes():
    ir.verify(controlled(while_loop()))
    ir.verify(controlled(switch()))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (while_loop(predicate=8), "while reads %8 before it is written"),
        (while_loop(body=run(7, 2)), "execute reads %7 on ipu 0"),
        (switch(results=(1, 1)), "switch reads %1 on ipu 0"),
        (switch(results=(1, 7)), "switch reads %7 on ipu 0"),
        (switch(results=(1, 4)), "branch gives"),
        (switch(ipus=(ONE,)), "switch reads %1 on ipu 1"),
        (dc.replace(switch(), index=ValueId(8)), "switch reads %8 before it is written"),
        (dc.replace(switch(), writes=ids(0)), "switch writes %0"),
    ],
)
def test_broken_control_flow_is_caught(node, message):
    with pytest.raises(InternalError) as error:
        ir.verify(controlled(node))
    assert message in str(error.value)


def test_a_value_of_the_condition_is_not_there_in_the_body():
    with pytest.raises(InternalError, match="execute reads %5 on ipu 0"):
        ir.verify(controlled(while_loop(body=run(5, 2, aval=FLAG))))


def test_switches_name_one_ipu_for_each_result():
    with pytest.raises(InternalError, match="do not pair up"):
        ir.verify(controlled(switch(ipus=(ZERO, ONE))))


@pytest.mark.parametrize("where", ["carry", "switch"])
def test_ipus_of_branches_exist(where):
    node = switch(ipus=(IpuId(9),)) if where == "switch" else while_loop()
    if where == "carry":
        node = dc.replace(node, carry=(carry(IpuId(9)),))
    with pytest.raises(InternalError, match="ipu 9"):
        ir.verify(controlled(node))


def test_a_jaxpr_binds_each_variable_once():
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(1.0).jaxpr
    twice = ClosedJaxpr(jaxpr.replace(eqns=[jaxpr.eqns[0], *jaxpr.eqns]), ())
    with pytest.raises(
        InternalError, match=r"`sin` binds a variable of ~float32\[\] for the second"
    ):
        JaxprVerifier().verify(twice)


def test_a_jaxpr_returns_what_it_binds():
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(1.0).jaxpr
    with pytest.raises(InternalError, match="returns a variable that nothing binds"):
        JaxprVerifier().verify(ClosedJaxpr(jaxpr.replace(eqns=jaxpr.eqns[:1]), ()))


def test_broken_bodies_of_a_jaxpr_are_found():
    closed = jax.make_jaxpr(jax.jit(lambda x: jnp.sin(x) + 1))(1.0)

    def drop_first_equation(body: ClosedJaxpr) -> ClosedJaxpr:
        return ClosedJaxpr(body.jaxpr.replace(eqns=body.jaxpr.eqns[1:]), ())

    eqns = [map_sub_jaxprs(eqn, drop_first_equation) for eqn in closed.jaxpr.eqns]
    broken = ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), ())
    with pytest.raises(InternalError, match="`add` reads a variable, operand 0"):
        JaxprVerifier().verify(broken)
