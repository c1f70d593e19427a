"""Operators of `ai.onnx.ml`: classical models over [batch, features]."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array
Floats = Sequence[float]


def _softmax_zero(scores: Array) -> Array:
    """Returns the softmax of scores, in which scores of zero stay zero."""
    probabilities = jax.nn.softmax(scores, -1)
    return jnp.where(
        jnp.abs(scores) > 1e-7, probabilities, scores * jnp.exp(-scores.max(-1)[..., None])
    )


_TRANSFORMS: dict[str, Callable[[Array], Array]] = {
    "NONE": lambda scores: scores,
    "SOFTMAX": jax.nn.softmax,
    "LOGISTIC": jax.nn.sigmoid,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": jax.scipy.special.ndtri,
}


def apply_post_transform(scores: Array, transform_name: str) -> Array:
    """Returns scores after a `post_transform`."""
    if transform_name not in _TRANSFORMS:
        raise check.value_error(
            f"post_transform is {transform_name!r}", f"use one of {sorted(_TRANSFORMS)}"
        )
    return _TRANSFORMS[transform_name](scores)


def _to_float32_or_wider(x: Array) -> Array:
    return jnp.asarray(x, jnp.promote_types(x.dtype, jnp.float32))


def _linear_scores(
    x: Array, coefficients: Floats, intercepts: Floats | None, post_transform: str
) -> Array:
    wide = _to_float32_or_wider(x)
    weights = jnp.asarray(np.reshape(coefficients, (-1, x.shape[-1])), wide.dtype)
    scores = jnp.matmul(wide, weights.T)
    if intercepts:
        scores = scores + jnp.asarray(np.asarray(intercepts), wide.dtype)
    return apply_post_transform(scores, post_transform)


@operator("ai.onnx.ml.LinearRegressor")
def linear_regressor(
    x: Array,
    coefficients: Floats = (),
    intercepts: Floats | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Array:
    scores = _linear_scores(x, coefficients, intercepts, post_transform)
    if scores.shape[-1] != targets:
        raise check.value_error(
            f"LinearRegressor has coefficients for {scores.shape[-1]} targets, and targets is "
            f"{targets}",
            "give it as many as the features need",
        )
    return scores


@operator("ai.onnx.ml.LinearClassifier")
def linear_classifier(
    x: Array,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Floats = (),
    intercepts: Floats | None = None,
    multi_class: int = 0,  # describes the training, which has no effect here
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    """Returns labels [batch] and scores [batch, classes]."""
    if classlabels_strings:
        raise check.value_error(
            "the labels of LinearClassifier are strings",
            "train the classifier with integers as labels, and convert it with skl2onnx, "
            "options={'zipmap': False}",
        )
    scores = _linear_scores(x, coefficients, intercepts, "NONE")
    labels = jnp.asarray(np.asarray(classlabels_ints or (1,), np.int32))
    if scores.shape[1] == 1 and len(labels) == 2:
        scores = jnp.concatenate([-scores, scores], 1)
    scores = apply_post_transform(scores, post_transform)
    if scores.shape[1] > 1:
        return labels[jnp.argmax(scores, 1)], scores
    limit = 0 if post_transform == "NONE" else 0.5
    return jnp.where(scores[:, 0] >= limit, labels[0], 0), scores


@operator("ai.onnx.ml.Scaler")
def scaler(x: Array, offset: Floats = (0.0,), scale: Floats = (1.0,)) -> Array:
    wide = _to_float32_or_wider(x)
    return (wide - jnp.asarray(offset, wide.dtype)) * jnp.asarray(scale, wide.dtype)


@operator("ai.onnx.ml.Normalizer")
def normalizer(x: Array, norm: str = "MAX") -> Array:
    wide = _to_float32_or_wider(x)
    if norm not in ("MAX", "L1", "L2"):
        raise check.value_error(f"norm is {norm!r}", "use MAX, L1 or L2")
    if norm == "MAX":
        divisor = wide.max(-1, keepdims=True)
    elif norm == "L1":
        divisor = jnp.abs(wide).sum(-1, keepdims=True)
    else:
        squares = jnp.square(wide).sum(-1, keepdims=True)
        divisor = jnp.sqrt(jnp.where(squares == 0, 1, squares))
    return wide / jnp.where(divisor == 0, 1, divisor)


@operator("ai.onnx.ml.ArrayFeatureExtractor")
def array_feature_extractor(x: Array, indices: Array) -> Array:
    columns = jnp.take(x, jnp.ravel(indices), -1, mode="clip")
    return columns if x.ndim > 1 else columns[None]


@operator("ai.onnx.ml.Binarizer")
def binarizer(x: Array, threshold: float = 0.0) -> Array:
    return (jnp.asarray(x) > threshold).astype(x.dtype)


@operator("ai.onnx.ml.Imputer")
def imputer(
    x: Array,
    imputed_value_floats: Floats | None = None,
    imputed_value_int64s: Sequence[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Array:
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return jnp.where(x == replaced_value_int64, jnp.asarray(imputed_value_int64s, x.dtype), x)
    is_nan = replaced_value_float != replaced_value_float
    is_missing = jnp.isnan(x) if is_nan else x == replaced_value_float
    return jnp.where(is_missing, jnp.asarray(imputed_value_floats, x.dtype), x)


@operator("ai.onnx.ml.FeatureVectorizer")
def feature_vectorizer(*parts: Array, inputdimensions: Sequence[int] | None = None) -> Array:
    rows = [
        _to_float32_or_wider(p).reshape(1, -1) if p.ndim == 1 else _to_float32_or_wider(p)
        for p in parts
    ]
    sizes = [row.shape[1] for row in rows]
    if inputdimensions is not None and list(inputdimensions) != sizes:
        raise check.value_error(
            f"FeatureVectorizer is given {sizes} features", f"give it {list(inputdimensions)}"
        )
    return jnp.concatenate(rows, 1)


@operator("ai.onnx.ml.ZipMap")
def zip_map(x: Array, **labels: object) -> Operand:
    raise check.value_error(
        "ZipMap makes a list of dictionaries, which no device can",
        "convert the model with skl2onnx, options={'zipmap': False}",
    )
