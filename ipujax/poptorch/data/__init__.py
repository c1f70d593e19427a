"""What a wrapped model is fed with: a loader of combined batches, which may be read ahead."""

from __future__ import annotations

from ipujax.poptorch.data.accessor import AsynchronousDataAccessor as AsynchronousDataAccessor
from ipujax.poptorch.data.loader import DataLoader as DataLoader
