"""Libraries of custom operations that would crash the process: refused before they are called."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ipujax.custom_ops import precompiled_user_op
from ipujax.errors import CustomOpError
from ipujax.operators.custom import elf
from tests.ipujax.building import built, compiler

OUTS = {"output_types": [np.float32], "output_shapes": [[3]]}


def call(path: str | Path, symbol: str = "Negate") -> Any:
    return precompiled_user_op([jnp.ones(3)], path, outs=OUTS, op_name=symbol)[0]


def refused(path: str | Path, symbol: str = "Negate") -> str:
    """What the error says; the second attempt says the same."""
    texts: set[str] = set()
    for _ in range(2):
        with pytest.raises(CustomOpError) as caught:
            call(path, symbol)
        texts.add(str(caught.value))
    (text,) = texts
    assert "where: " in text
    assert "fix: " in text
    return text


@pytest.mark.parametrize("symbol", ["Data", "Nothing", "Sum", "Writes", "Aborts", "Ends"])
def test_what_is_no_handler(symbol: str) -> None:
    text = refused(built("others.cc"), symbol)
    assert f"{symbol!r} of the library {built('others.cc')!r} is no XLA FFI handler: " in text
    assert ("died of signal 6" in text) == (symbol == "Aborts")
    assert ("died of signal 11" in text) == (symbol == "Data")


def test_a_library_that_crashes_who_loads_it() -> None:
    assert "cannot be loaded: a process that tried died of signal 6" in refused(
        built("crashing.cc")
    )


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.01, 0.3, 0.6, 0.9, 0.99, 1.0])
def test_a_library_that_is_cut_off(kept: float, tmp_path: Path) -> None:
    whole = Path(built("functions.cc")).read_bytes()
    part = tmp_path / "part.so"
    part.write_bytes(whole[: min(int(kept * len(whole)), len(whole) - 1)])
    assert "cannot be loaded: it is" in refused(part)


def test_one_without_the_table_of_its_sections_is_whole_if_its_segments_are(tmp_path: Path) -> None:
    whole = bytearray(Path(built("functions.cc")).read_bytes())
    whole[40:48] = bytes(8)  # where the table is
    whole[58:64] = bytes(6)  # sizes and numbers
    stripped = tmp_path / "stripped.so"
    stripped.write_bytes(whole)
    assert not elf.find_library_fault(str(stripped))
    np.testing.assert_array_equal(call(stripped), [-1, -1, -1])
    stripped_part = tmp_path / "part.so"
    stripped_part.write_bytes(whole[: len(whole) // 2])
    assert "it is cut off" in refused(stripped_part)


def test_files_of_another_kind(tmp_path: Path) -> None:
    whole = Path(built("functions.cc")).read_bytes()
    other = tmp_path / "other.so"
    other.write_bytes(whole[:18] + b"\x08\x00" + whole[20:])  # MIPS
    assert "it was built for another machine" in refused(other)
    narrow = tmp_path / "narrow.so"
    narrow.write_bytes(whole[:4] + b"\1" + whole[5:])
    assert "it was built for another machine" in refused(narrow)
    source, object_file = tmp_path / "empty.cc", tmp_path / "empty.o"
    source.write_text("int empty;")
    subprocess.run([compiler(), "-c", "-o", object_file, source], check=True)
    assert "it is no shared library" in refused(object_file)
