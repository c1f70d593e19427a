"""What `check_pipeline` takes as tolerances."""

from __future__ import annotations

import math

import pytest

from ipujax.errors import PipelineError
from ipujax.pipelining_ops import check_pipeline


@pytest.mark.parametrize("name", ["rtol", "atol"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1e-9])
def test_tolerances_that_tell_nothing_are_refused(name: str, value: float) -> None:
    with pytest.raises(PipelineError, match=f"{name}=.*a tolerance is a number from 0 on"):
        check_pipeline([lambda x: x], 2, **{name: value})
