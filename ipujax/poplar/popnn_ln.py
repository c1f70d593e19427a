"""popnn.ln: norms of each image."""

from __future__ import annotations

from ipujax.poplar.popnn_norms import define_functions, define_statistics, group_norm

LAYER_NORM = group_norm("layerNorm", 1)
layerNormStatistics = define_statistics(LAYER_NORM, "image")
layerNormWhiten, layerNormalise, layerNormGradients, layerNormParamGradients = define_functions(
    "layer", lambda *_: LAYER_NORM
)
