"""The public functions of JAX's numerical modules, found by walking them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import jax
from jax.scipy import stats
from jax.scipy.spatial import transform

MODULES = (
    "jax.lax",
    "jax.lax.linalg",
    "jax.numpy",
    "jax.numpy.fft",
    "jax.numpy.linalg",
    "jax.nn",
    "jax.nn.initializers",
    "jax.random",
    *sorted(found.name for found in pkgutil.walk_packages(jax.scipy.__path__, "jax.scipy.")),
)
ALSO = (
    "jax.experimental.ode.odeint",
    "jax.scipy.interpolate.RegularGridInterpolator",
    "jax.scipy.spatial.transform.Slerp",
)

_FILES = "reads or writes files, or memory that is not JAX's"
_TEXT = "makes text or settings of Python, no array"
_CONCRETE = "needs values, which a traced function has not got"
_TYPE = "an alias for type checkers, or a class of settings"
_MESH = "needs a mesh of devices"
_CUDA = "cuDNN's, or settings for it"
_HOST = "about where an array is, which a traced one does not know"
_TUPLE = "inherited from tuple"
_FIELDS = "what the estimator was made with"

LEFT_OUT = {
    "jax.lax": {
        "ConvGeneralDilatedDimensionNumbers DotDimensionNumbers PrecisionLike": _TYPE,
        "pbroadcast": "has no rule for the axis of a vmap",
        "rng_uniform": "draws other numbers at each run",
        "pcast precv psend ragged_all_to_all with_sharding_constraint": _MESH,
    },
    "jax.numpy": {
        "from_dlpack frombuffer fromfile fromiter fromstring load save savez": _FILES,
        "array_repr array_str get_printoptions printoptions set_printoptions": _TEXT,
        "trim_zeros": _CONCRETE,
    },
    "jax.nn": {"get_scaled_dot_general_config scaled_dot_general scaled_matmul": _CUDA},
    "jax.scipy.spatial.transform.Rotation": {
        "random": "not implemented in JAX",
        "count index quat single": _TUPLE,
    },
    "jax.scipy.stats.gaussian_kde": {
        "integrate_box set_bandwidth": "not implemented in JAX",
        "tree_flatten tree_unflatten": "how JAX takes it apart",
        "covariance d dataset inv_cov n neff weights": _FIELDS,
    },
    "jax.Array": {
        "item tobytes tolist": _CONCRETE,
        "addressable_data addressable_shards aval block_until_ready committed "
        "copy_to_host_async delete device device_buffer device_buffers global_shards "
        "is_deleted is_fully_addressable is_fully_replicated on_device_size_in_bytes "
        "platform sharding to_device traceback unsafe_buffer_pointer": _HOST,
        "flat": "not implemented in JAX",
        "at": "has examples of its own, as jax.Array.at",
    },
    "jax.Array.at": {"array index": "what `x.at[i]` was made of"},
}


def functions() -> set[str]:
    """The full names of all that has to have an example."""
    found: set[str] = set(ALSO)
    for module in MODULES:
        held = importlib.import_module(module)
        found |= {
            f"{module}.{name}"
            for name in _public(held)
            if callable(getattr(held, name)) and not inspect.isclass(getattr(held, name))
        }
    for name, held in classes().items():
        found |= {f"{name}.{member}" for member in _public(held)}
    return found - left_out()


def left_out() -> set[str]:
    """The full names of what has none."""
    return {
        f"{holder}.{name}"
        for holder, reasons in LEFT_OUT.items()
        for names in reasons
        for name in names.split()
    }


def classes() -> dict[str, type]:
    """The classes whose methods are functions for us, by their names here."""
    return {
        "jax.Array": jax.Array,
        "jax.Array.at": type(jax.numpy.zeros(1).at[0]),
        "jax.scipy.spatial.transform.Rotation": transform.Rotation,
        "jax.scipy.stats.gaussian_kde": stats.gaussian_kde,
    }


def _public(holder: Any) -> list[str]:
    return [name for name in dir(holder) if not name.startswith("_")]
