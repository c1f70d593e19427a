"""The options of a Keras model for the queues between the host and the device."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ipujax.ground import Keywords
from ipujax.host import IPUInfeedQueue, IPUOutfeedQueue
from ipujax.keras.keras_checks import check
from ipujax.keras.model_stages import discard_programs

if TYPE_CHECKING:
    import keras

_INFEED = "_ipu_infeed_queue_options"
_OUTFEED = "_ipu_outfeed_queue_options"
_SET_BY_KERAS = ("dataset", "device_ordinal", "outfeed_mode")
"""Arguments of the queues that follow from the model, its data and its device."""


def prefetch_depth(model: keras.Model) -> int | None:
    """Returns the prefetch depth that `set_infeed_queue_options` has set."""
    return vars(model).get(_INFEED, {}).get("prefetch_depth")


def set_infeed_queue_options(model: keras.Model, **kwargs: Any) -> None:
    """Sets how a model's batches come to the device.

    Args:
      model: the model.
      kwargs: arguments of `IPUInfeedQueue`, of which `prefetch_depth` acts: the number of batches
        to fetch ahead. `optimise_latency` changes nothing.

    Raises:
      KerasError: (a `ValueError`) an argument that Keras sets.
      KerasTypeError: (a `TypeError`) an argument that there is not, or of a wrong type.
      FeedError: (a `ValueError`) a value that the queue cannot have.
    """
    options = _check_queue_arguments(kwargs, IPUInfeedQueue, "set_infeed_queue_options")
    IPUInfeedQueue([], **options)
    object.__setattr__(model, _INFEED, options)
    discard_programs(model)


def set_outfeed_queue_options(model: keras.Model, **kwargs: Any) -> None:
    """Checks options of the outfeed queue, which programs of the original set.

    Args:
      model: the model.
      kwargs: arguments of `IPUOutfeedQueue`. No argument changes the results: the queue always
        holds the results that the host has not read yet.

    Raises:
      KerasError: (a `ValueError`) an argument that Keras sets, or a `buffer_depth` below 1.
      KerasTypeError: (a `TypeError`) an argument that there is not, or of a wrong type.
      FeedError: (a `ValueError`) a value that the queue cannot have.
    """
    options = _check_queue_arguments(kwargs, IPUOutfeedQueue, "set_outfeed_queue_options")
    if "buffer_depth" in options:
        check.require_integer(options.pop("buffer_depth"), "buffer_depth", at_least=1)
    IPUOutfeedQueue(**options)
    object.__setattr__(model, _OUTFEED, options)


def _check_queue_arguments(arguments: Mapping[str, object], queue: type, method: str) -> Keywords:
    """Refuses arguments that a queue does not have, or that Keras gives it.

    Returns:
      The arguments without `optimise_latency`.
    """
    parameters = list(inspect.signature(queue).parameters)
    for name in arguments:
        if name in _SET_BY_KERAS and name in parameters:
            raise check.value_error(
                f"{name} is an argument of {queue.__name__} that Keras sets by itself",
                "leave it out",
            )
        if name not in parameters:
            raise check.type_error(
                f"{method} and {queue.__name__} have no argument {name}",
                f"give any of {', '.join(p for p in parameters if p not in _SET_BY_KERAS)}",
            )
    options = dict(arguments)
    if "optimise_latency" in options:
        check.require_flag(options.pop("optimise_latency"), "optimise_latency")
    return options
