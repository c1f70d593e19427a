"""The data loaders of PopTorch, which batch a data set for one call and may read it ahead."""

from __future__ import annotations

from ipujax.poptorch.data.accessor import AsynchronousDataAccessor as AsynchronousDataAccessor
from ipujax.poptorch.data.loader import DataLoader as DataLoader
