"""What a user could change at the cost of more than time: precision, or IPUs."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from ipujax.report.advice.change import Case, Change, Source, cut_again
from ipujax.report.advice.evidence import DATA, Evidence
from lowering import jaxpr, machine, variants

_MOST_IPUS = 64


def costly_changes(
    case: Case, profile: machine.Profile, worst: Evidence, least: float
) -> Iterator[Change]:
    """Half precision, and layers that are shared out to other IPUs.

    Args:
      case: the program as it is.
      profile: what the model says of it.
      worst: of the IPU with the fullest tile.
      least: bytes; what cannot take away as much is left out.
    """
    if case.source is None:
        return
    single = worst.single_share * sum(worst.held[name] for name in DATA)
    if single / 2 >= least and variants.with_halves(case.source.closed) is not None:
        yield Change(
            "half_precision",
            "half precision (float16) for arguments that are float32, and what is made of them",
            "float16",
            lambda case: case.traced(_halved),
            is_late=True,
        )
    for ipus in dict.fromkeys((profile.num_ipus, 2 * profile.num_ipus)):
        shared = share_layers(case.source, profile.num_ipus, ipus)
        if shared is not None and ipus > 1:
            yield shared


def _halved(closed: jaxpr.ClosedJaxpr) -> jaxpr.ClosedJaxpr:
    return variants.with_halves(closed) or closed


def share_layers(source: Source, ipus_now: int, ipus: int) -> Change | None:
    """The change that shares the layers of a function out to so many IPUs; None if it cannot be.

    Args:
      source: what the program was lowered from.
      ipus_now: how many IPUs a replica has.
      ipus: how many it has then.
    """
    resharded = variants.with_shards(source.closed, ipus) if ipus <= _MOST_IPUS else None
    if resharded is None:
        return None
    counts = ", ".join(map(str, resharded.products))
    layers = f"{counts} products and convolutions of the forward pass, in their order"
    more = ipus > ipus_now
    whole = f"split the model over {ipus} IPUs" if more else f"share the layers of {ipus} IPUs anew"
    return Change(
        "more_ipus" if more else "move_work",
        f"{whole}: scopes.ipu_shard(0), ipu_shard(1), ... around {layers}",
        f"{ipus} IPUs (ipu_shard)" if more else "other shards",
        functools.partial(cut_again, resharded),
        first=True,
        ipus=ipus,
        is_late=more,
        make_stronger=lambda: share_layers(source, ipus_now, 2 * ipus) if more else None,
    )
