"""Recurrent layers: LSTM, GRU, and the GRUs that know the lengths of their sequences.

A layer is an object without parameters of its own: `build` makes them, a call takes them. It runs
as one product for the inputs of all time steps and one scan; its gradients are one scan back, and
one product over all steps for each weight. All of JAX's derivatives work, in both modes and nested.
Source: seed section 18.14.9 and the facts `rnn.*`.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
