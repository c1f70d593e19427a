"""The original's Keras layers, as layers of Keras 3 on our operators.

They work in any Keras model, in `IPUStrategy.scope()` or without it.
"""

from ipujax.keras.layers.dropout import Dropout as Dropout
from ipujax.keras.layers.embedding import Embedding as Embedding
from ipujax.keras.layers.gru import PopnnGRU as PopnnGRU
from ipujax.keras.layers.keras_normalization import GroupNormalization as GroupNormalization
from ipujax.keras.layers.keras_normalization import InstanceNormalization as InstanceNormalization
from ipujax.keras.layers.keras_normalization import LayerNormalization as LayerNormalization
from ipujax.keras.layers.lstm import PopnnLSTM as PopnnLSTM
from ipujax.keras.layers.recomputation_layer import (
    RecomputationCheckpoint as RecomputationCheckpoint,
)

__all__ = [
    "GRU",
    "LSTM",
    "Dropout",
    "Embedding",
    "GroupNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "PopnnGRU",
    "PopnnLSTM",
    "RecomputationCheckpoint",
]


def __dir__() -> list[str]:
    return __all__


GRU = PopnnGRU
LSTM = PopnnLSTM
