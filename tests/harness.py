"""What the fixtures of conftest.py are made of."""

from __future__ import annotations

import ctypes
import difflib
import gc
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"
DEVICE_COUNT_FLAG = "--xla_force_host_platform_device_count"


@dataclass(frozen=True)
class Golden:
    """Compares texts with the files that hold what they should be.

    Attributes:
      module: the test module's file.
      test: the test's name, with its parameters if any.
      update: write the files instead of comparing.
      folder: where the files of all modules are.
    """

    module: Path
    test: str
    update: bool
    folder: Path = GOLDEN

    def path(self, suffix: str = "") -> Path:
        """The file of one text; a test that checks several gives each a suffix."""
        parts = [re.sub(r"[^\w.=+-]+", "-", part).strip("-") for part in (self.test, suffix)]
        name = "-".join(part for part in parts if part)
        return self.folder / self.module.relative_to(TESTS).with_suffix("") / f"{name}.txt"

    def __call__(self, text: str, suffix: str = "") -> None:
        """Fails with a diff unless `text` is what the file holds."""
        path, text = self.path(suffix), text.rstrip("\n") + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        hint = "If the new text is right: pytest --update-golden, and read the diff."
        if not path.exists():
            raise AssertionError(f"no golden file {path}\n{hint}\n\n{text}")
        wanted = path.read_text(encoding="utf-8")
        if text != wanted:
            diff = difflib.unified_diff(
                wanted.splitlines(), text.splitlines(), str(path), "this run", lineterm=""
            )
            raise AssertionError("\n".join(["golden text differs", *diff, hint]))


def device_flags(flags: str, count: int) -> str:
    """`XLA_FLAGS` that ask for `count` host devices and keep every other flag of `flags`."""
    kept = [flag for flag in flags.split() if not flag.startswith(DEVICE_COUNT_FLAG)]
    return " ".join([*kept, f"{DEVICE_COUNT_FLAG}={count}"])


def run_python(source: str | Path, devices: int, folder: Path, timeout: float = 300.0) -> str:
    """Runs a program in a process of its own with `devices` CPU devices; gives what it printed.

    `source` is a program's text or the path of one. Fails with everything the program wrote if it
    ends with an error or does not end in `timeout` seconds.
    """
    if isinstance(source, str):
        script = folder / "program.py"
        script.write_text(dedent(source), encoding="utf-8")
    else:
        script = source
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": device_flags(os.environ.get("XLA_FLAGS", ""), devices),
    }
    ended = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=environment,
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        raise AssertionError(
            f"{script} ended with {ended.returncode} on {devices} devices\n"
            f"--- standard output\n{ended.stdout}\n--- standard error\n{ended.stderr}"
        )
    return ended.stdout


def resident_megabytes() -> float:
    """The memory of this process that is in use, in MB; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def free_memory() -> None:
    """Drops what JAX has compiled, and gives what nobody holds back to the system, if it can."""
    if "jax" in sys.modules:
        import jax

        jax.clear_caches()
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def affordable_workers(cores: int, megabytes: float) -> int:
    """At most one worker for each core, and for so much of the memory that nobody uses now."""
    import psutil

    return max(1, min(cores, int(psutil.virtual_memory().available / 1e6 / megabytes)))
