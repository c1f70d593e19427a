"""Classical models: scikit-learn's, converted by skl2onnx, predict what scikit-learn does."""

import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn")
pytest.importorskip("skl2onnx", reason="needs skl2onnx")

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

from ipujax.errors import FrontendError
from ipujax.frontends import from_onnx

FLOWERS, CLASSES = load_iris(return_X_y=True)
X = FLOWERS.astype(np.float32)
INTEGERS = {"zipmap": False}


def predicted(model, options=None):
    """What the converted model gives."""
    proto = to_onnx(model, X[:1], options=options)
    converted = from_onnx(proto, shapes={"X": X.shape})
    return converted.apply(converted.variables, X)[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("model", "labels"),
    [
        (make_pipeline(StandardScaler(), LogisticRegression()), CLASSES),
        (make_pipeline(Normalizer("l1"), LogisticRegression()), (CLASSES == 1) * 4 + 3),
        (LogisticRegression(), CLASSES == 2),
    ],
    ids=["scaled", "two classes", "booleans"],
)
def test_classifiers(model, labels):
    model.fit(X, labels)
    found, shares = predicted(model, INTEGERS)
    np.testing.assert_array_equal(found, model.predict(X))
    np.testing.assert_allclose(shares, model.predict_proba(X), atol=2e-6)


def test_classifier_without_probabilities():
    model = make_pipeline(MinMaxScaler(), RidgeClassifier()).fit(X, CLASSES)
    np.testing.assert_array_equal(predicted(model)[0], model.predict(X))


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (make_pipeline(Normalizer(), LinearRegression()), X[:, 0]),
        (make_pipeline(Normalizer("max"), StandardScaler(), Ridge()), X[:, :2]),
    ],
    ids=["one target", "two targets"],
)
def test_regressors(model, targets):
    wanted = model.fit(X, targets).predict(X)
    (found,) = predicted(model)
    np.testing.assert_allclose(np.reshape(found, wanted.shape), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.exhaustive
def test_dictionaries_and_names_of_classes_say_how_to_convert():
    model = LogisticRegression().fit(X, CLASSES)
    with pytest.raises(FrontendError, match=r"skl2onnx, options=\{'zipmap': False\}"):
        predicted(model)
    model.fit(X, np.asarray(["a", "b", "c"])[CLASSES])
    with pytest.raises(FrontendError, match="integers as labels"):
        predicted(model, INTEGERS)
