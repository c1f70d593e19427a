"""Enumerations of options, with the original's names and numbers."""

import enum


class ReductionType(enum.Enum):
    """How many values become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class RecomputationType(enum.Enum):
    """Which activations are computed again in the backward pass."""

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    Pipeline = 3
    RecomputeAll = 4


class VirtualGraphMode(enum.Enum):
    """Who says on which IPU nodes run: nobody, `Builder.virtualGraph`, or the session."""

    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3


class SyntheticDataMode(enum.Enum):
    """What takes the place of the user's data."""

    Off = 0
    Zeros = 1
    RandomNormal = 2
    RandomUniform = 3


class SubgraphCopyingStrategy(enum.Enum):
    """When inputs of subgraphs are copied."""

    OnEnterAndExit = 0
    JustInTime = 1
