"""`python -m tests.fuzz`: more random programs, for as long as you like.

Half of them run on one JAX device, and half, in a process of their own, on four.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import subprocess
import sys
import threading
import time

from tests.quick_xla import FLAGS

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", FLAGS)

import jax

from tests.fuzz.generate import generate
from tests.fuzz.run import check
from tests.fuzz.shrink import shrunk
from tests.fuzz.source import Program
from tests.fuzz.values import FEATURES

DEVICES = "--xla_force_host_platform_device_count"
REPORT_EVERY = 30.0  # seconds
FORGET_EVERY = 100  # programs, after which JAX's caches are emptied


def main(arguments: list[str] | None = None) -> int:
    """Runs programs; 1 if one of them failed.

    Args:
      arguments: what is asked for, of this process; None for the command line's, in processes with
        as many JAX devices as they say.
    """
    options = _options(arguments)
    if arguments is not None or options.here:
        return _run(options)
    devices = [options.devices] if options.devices else [1, 4]
    return max(_in_process(options, each, len(devices)) for each in devices)


def _in_process(options: argparse.Namespace, devices: int, shares: int) -> int:
    """Runs a share of the programs in a process with so many JAX devices."""
    given = [*sys.argv[1:], "--here"]
    if options.program is None and shares > 1:
        if options.count is not None:
            half = options.count // 2
            first, count = (
                (0, options.count - half) if devices == 1 else (options.count - half, half)
            )
            given += ["--first", str(options.first + first), "--count", str(count)]
        if options.seconds is not None:
            given += ["--seconds", str(options.seconds / shares)]
    environment = {**os.environ, "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} {DEVICES}={devices}"}
    command = [sys.executable, "-m", "tests.fuzz", *given]
    return subprocess.run(command, env=environment, check=False).returncode


def _run(options: argparse.Namespace) -> int:
    numbers = range(options.first, options.first + options.count) if options.count else None
    begin = told = time.monotonic()
    done, failed, index = 0, 0, options.first
    while numbers is None or index in numbers:
        now = time.monotonic()
        if options.seconds is not None and now - begin >= options.seconds:
            break
        if now - told >= REPORT_EVERY:
            told = now
            print(
                f"{done} programs, {failed} failed, {now - begin:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        failed += _failed(options, index)
        done += 1
        index += 1
        if done % FORGET_EVERY == 0:
            jax.clear_caches()
        if failed >= options.failures:
            break
    seconds = time.monotonic() - begin
    print(f"{done / max(seconds, 1e-9):.2f} programs per second", file=sys.stderr)
    print(f"{done} programs")
    return 1 if failed else 0


def _failed(options: argparse.Namespace, index: int) -> bool:
    program = generate(options.seed, index, options.without, options.size)
    if options.show:
        print(program.script())
    again = f"python -m tests.fuzz --seed {options.seed} --program {index}"
    again += f" --size {options.size}" if options.size else ""
    again += f" --devices {jax.device_count()}"
    again += "".join(f" --without {name}" for name in options.without)
    watch = threading.Timer(options.limit, _stuck, (program, again))
    watch.daemon = True
    watch.start()
    try:
        failure = check(program)
    finally:
        watch.cancel()
    if failure is None:
        return False
    print(f"FAILED: {program.title}, engine {failure.engine}: {failure.kind}\n{failure.message}")
    if options.shrink > 0:
        program = shrunk(program, failure, options.shrink)
    print(f"{program.script()}\nagain: {again}\n", flush=True)
    return True


def _stuck(program: Program, again: str) -> None:
    """Says which program does not end, and where it is; nothing else would end it."""
    print(
        f"FAILED: {program.title}: it does not end\n{program.script()}\nagain: {again}\n",
        flush=True,
    )
    faulthandler.dump_traceback()
    os._exit(1)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other programs")
    parser.add_argument("--first", type=int, default=0, help="the first program's number")
    parser.add_argument("--count", type=int, help="how many programs")
    parser.add_argument("--program", type=int, help="run this one alone")
    parser.add_argument(
        "--without", action="append", default=[], choices=FEATURES, help="leave a feature out"
    )
    parser.add_argument(
        "--devices", type=int, help="JAX devices; without, half of the programs on 1, half on 4"
    )
    parser.add_argument("--here", action="store_true", help="in this process, on its devices")
    parser.add_argument("--size", type=int, help="statements of a program, at most")
    parser.add_argument("--failures", type=int, default=1, help="stop after so many failures")
    parser.add_argument("--shrink", type=float, default=30.0, help="seconds to make one smaller")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one program")
    parser.add_argument("--show", action="store_true", help="print every program")
    options = parser.parse_args(arguments)
    if options.program is not None:
        options.first, options.count = options.program, 1
        options.devices = options.devices or 1
    if options.seconds is None and options.count is None:
        options.count = 100
    return options


if __name__ == "__main__":
    logging.getLogger("ipujax").setLevel(logging.WARNING)  # each program attaches to its IPUs
    sys.exit(main())
