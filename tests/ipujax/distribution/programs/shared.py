"""What the programs of these tests have in common: their data, dealt, and what they tell."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np

import ipujax as ipu

STEPS, BATCHES = 6, 4
DATA = np.random.default_rng(0).normal(size=(96, 4, 8)).astype(np.float32)


def configured(ipus: int, config: ipu.config.IPUConfig | None = None) -> None:
    """The IPUs of this process, once it has met the others, and what else is configured."""
    ipu.popdist.init()
    config = config or ipu.config.IPUConfig()
    config.auto_select_ipus = ipus * ipu.popdist.getNumLocalReplicas()
    config.configure_ipu_system()
    distribution = ipu.utils.get_ipu_config()[0].experimental.multi_replica_distribution
    if ipu.popdist.getNumInstances() > 1:
        assert distribution.process_count == ipu.popdist.getNumInstances()
        assert distribution.process_index == ipu.popdist.getInstanceIndex()


def own_data(count: int) -> list[Any]:
    """Of elements that replicas take in turn, those of this process."""
    total, local = ipu.popdist.getNumTotalReplicas(), ipu.popdist.getNumLocalReplicas()
    mine = ipu.popdist.getInstanceIndex()
    return [DATA[n % len(DATA)] for n in range(count) if (n % total) // local == mine]


def tell(weights: Any, losses: Any) -> None:
    """Prints what has been learned."""
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(weights)])
    (leaf,) = jax.tree.leaves(losses)
    told = {
        "index": ipu.popdist.getInstanceIndex(),
        "weights": flat.tolist(),
        "losses": np.asarray(leaf).tolist(),
    }
    print(json.dumps(told), flush=True)


def tell_replicas(dequeued: Any) -> None:
    """Prints what the replicas of this process have sent, `[local replicas, iterations, ...]`."""
    leaves = jax.tree_util.tree_leaves_with_path(dequeued)
    alone = ipu.popdist.getNumLocalReplicas() == 1
    of_replicas = {
        jax.tree_util.keystr(path): leaf[np.newaxis] if alone else np.moveaxis(leaf, 1, 0)
        for path, leaf in leaves
    }
    told = {name: np.asarray(leaf).tolist() for name, leaf in of_replicas.items()}
    print(json.dumps({"index": ipu.popdist.getInstanceIndex(), "told": told}), flush=True)
