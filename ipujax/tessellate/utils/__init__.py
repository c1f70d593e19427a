"""Devices and types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike as ArrayLike
from numpy.typing import DTypeLike as DTypeLike
from numpy.typing import NDArray as NDArray

from ipujax.tessellate.utils.ipu_device import IpuDevice as IpuDevice
from ipujax.tessellate.utils.ipu_device import IpuTargetType as IpuTargetType
from ipujax.tessellate.utils.ipu_device import is_ipu_model as is_ipu_model

DType = np.dtype[Any]
Shape = Sequence[int]
