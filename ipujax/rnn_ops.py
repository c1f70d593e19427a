"""Recurrent layers: LSTM, GRU, and the GRUs that know the lengths of their sequences.

A layer is an object without parameters of its own: `build` makes them, a call takes them. It runs
as one product for the inputs of all time steps and one scan; its gradients are one scan back, and
one product over all steps for each weight. All of JAX's derivatives work, in both modes and nested.
Source: seed section 18.14.9 and the facts `rnn.*`.
"""

from __future__ import annotations

from ipujax.operators import recurrent_layers as _rnn_ops

__all__ = [
    "LSTMStateTuple",
    "PopnnAUGRU",
    "PopnnDynamicGRU",
    "PopnnGRU",
    "PopnnLSTM",
]


def __dir__() -> list[str]:
    return __all__


LSTMStateTuple = _rnn_ops.LSTMStateTuple
PopnnAUGRU = _rnn_ops.PopnnAUGRU
PopnnDynamicGRU = _rnn_ops.PopnnDynamicGRU
PopnnGRU = _rnn_ops.PopnnGRU
PopnnLSTM = _rnn_ops.PopnnLSTM
