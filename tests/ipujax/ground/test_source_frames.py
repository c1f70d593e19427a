"""Calls on behalf of source lines."""

from __future__ import annotations

import functools
import time
import traceback

import jax
import jax.numpy as jnp
import pytest

from ipujax.ground import SourceFrame, call_on_behalf
from lowering.jaxprs import call_path

OUTER = SourceFrame("/project/train.py", 31, "<module>")
INNER = SourceFrame("/project/model.py", 17, "Net.forward")


def test_jax_records_the_frames_behind_what_is_traced() -> None:
    def double(x: jax.Array) -> jax.Array:
        return call_on_behalf((OUTER, INNER), lambda: x + x)

    (eqn,) = jax.make_jaxpr(double)(jnp.ones(3)).eqns
    *_, last = call_path(eqn)
    assert __file__ in last
    assert [frame for frame in call_path(eqn) if "/project/" in frame] == [
        "/project/train.py:31 (<module>)",
        "/project/model.py:17 (Net.forward)",
    ]


def test_errors_and_results_pass_through() -> None:
    assert call_on_behalf((), lambda: 3) == 3
    assert call_on_behalf((OUTER, INNER), lambda: 4) == 4
    with pytest.raises(ZeroDivisionError) as caught:
        call_on_behalf((OUTER, INNER), lambda: 1 // 0)
    frames = traceback.extract_tb(caught.value.__traceback__)
    shown = [SourceFrame(f.filename, f.lineno or 0, f.name) for f in frames]
    assert shown[-3:-1] == [OUTER, SourceFrame(INNER.file, INNER.line, INNER.function)]


def test_errors_may_leave_the_frames_out() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        call_on_behalf((OUTER, INNER), lambda: 1 // 0, shows_in_errors=False)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files[0] == files[-1] == __file__
    assert not any("/project/" in file for file in files)


def test_c_code_imports_below_a_given_line() -> None:
    parsed = call_on_behalf((OUTER,), functools.partial(time.strptime, "2026", "%Y"))
    assert parsed.tm_year == 2026
