"""The changes to save memory that cost more than time: precision, or more IPUs."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from ipujax.report.advice.change import Case, Change, Source, apply_model_cut
from ipujax.report.advice.evidence import DATA, Evidence
from lowering import jaxpr, machine, variants

_MOST_IPUS = 64


def list_costly_changes(
    case: Case, profile: machine.Profile, worst: Evidence, min_saved_bytes: float
) -> Iterator[Change]:
    """Offers half precision, and layers divided over other IPUs.

    Args:
      case: the program as it is.
      profile: its modelled profile.
      worst: evidence of the IPU with the fullest tile.
      min_saved_bytes: changes that cannot save as many bytes are left out.
    """
    if case.source is None:
        return
    single_precision_bytes = worst.single_share * sum(worst.held[name] for name in DATA)
    if (
        single_precision_bytes / 2 >= min_saved_bytes
        and variants.replace_float32_by_float16(case.source.closed) is not None
    ):
        yield Change(
            "half_precision",
            "half precision (float16) for arguments that are float32, and what is made of them",
            "float16",
            lambda case: case.with_function_change(_convert_to_half_precision),
            is_late=True,
        )
    for ipus in dict.fromkeys((profile.num_ipus, 2 * profile.num_ipus)):
        sharding_change = shard_layers_over_ipus(case.source, profile.num_ipus, ipus)
        if sharding_change is not None and ipus > 1:
            yield sharding_change


def _convert_to_half_precision(closed: jaxpr.ClosedJaxpr) -> jaxpr.ClosedJaxpr:
    return variants.replace_float32_by_float16(closed) or closed


def shard_layers_over_ipus(source: Source, ipus_now: int, ipus: int) -> Change | None:
    """Returns the change that divides a function's layers over so many IPUs; None if impossible.

    Args:
      source: the function and options that the program was lowered from.
      ipus_now: how many IPUs a replica has.
      ipus: how many a replica has after the change.
    """
    resharded = variants.distribute_layers(source.closed, ipus) if ipus <= _MOST_IPUS else None
    if resharded is None:
        return None
    counts = ", ".join(map(str, resharded.products))
    layers = f"{counts} products and convolutions of the forward pass, in their order"
    needs_more_ipus = ipus > ipus_now
    instruction = (
        f"split the model over {ipus} IPUs"
        if needs_more_ipus
        else f"redivide the layers of {ipus} IPUs"
    )
    return Change(
        "more_ipus" if needs_more_ipus else "move_work",
        f"{instruction}: scopes.ipu_shard(0), ipu_shard(1), ... around {layers}",
        f"{ipus} IPUs (ipu_shard)" if needs_more_ipus else "other shards",
        functools.partial(apply_model_cut, resharded),
        first=True,
        ipus=ipus,
        is_late=needs_more_ipus,
        make_stronger=lambda: (
            shard_layers_over_ipus(source, ipus_now, 2 * ipus) if needs_more_ipus else None
        ),
    )
