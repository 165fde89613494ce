"""Names of a job's metrics, and those that follow from the loss."""

import keras
import numpy as np
import pytest

from vcdl.client.compile import compile_model
from vcdl.client.metrics import metric_names
from vcdl.wire.workunit import Named, Training

pytestmark = pytest.mark.keras


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        ([Named("acc"), Named("mse"), Named("AUC"), Named("MeanIoU", {"num_classes": 3})],
         ["accuracy", "mean_squared_error", "auc", "mean_iou"]),
        ([Named("auc"), Named("auc", {"curve": "PR"}), Named("auc", {"curve": "PR", "num_thresholds": 50})],
         ["auc", "auc_2", "auc_3"]),
        ([Named("accuracy"), Named("accuracy")], ["accuracy"]),
    ],
)  # fmt: skip
def test_a_metric_has_keras_name_and_a_second_of_its_class_a_number(metrics: list[Named], names: list[str]) -> None:
    assert list(metric_names(metrics)) == names


def measured(model: keras.Model, loss: Named, *metrics: Named, x: object, y: object) -> dict[str, float]:
    compile_model(model, Training(Named("sgd"), 0.1, 16, 1, loss, metrics))
    found: dict[str, float] = model.evaluate(x, y, verbose=0, return_dict=True)
    return found


@pytest.mark.parametrize("from_logits", [True, False])
def test_perplexity_is_exp_of_the_cross_entropy_over_all_samples(from_logits: bool) -> None:
    activation = None if from_logits else "softmax"
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(5, activation=activation)])
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40, 2)).astype(np.float32), rng.integers(0, 5, 40)
    loss = Named("sparse_categorical_crossentropy", {"from_logits": from_logits})
    found = measured(model, loss, Named("perplexity"), Named("crossentropy"), x=x, y=y)
    assert found["crossentropy"] == pytest.approx(found["loss"], rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(found["loss"]), rel=1e-5)


def test_the_accuracy_of_several_labels_is_that_of_each_and_not_of_the_largest() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Activation("sigmoid")])
    x, y = np.array([[1.0, 2.0], [-1.0, -2.0]], np.float32), np.array([[1, 1], [1, 0]])
    assert measured(model, Named("binary_crossentropy"), Named("accuracy"), x=x, y=y)["accuracy"] == 0.75


def test_the_accuracy_of_one_logit_has_its_threshold_at_zero() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    x, y = np.array([[-1.0], [0.25], [2.0], [-0.5]], np.float32), np.array([0, 1, 1, 0])
    loss = Named("binary_crossentropy", {"from_logits": True})
    assert measured(model, loss, Named("accuracy"), x=x, y=y)["accuracy"] == 1.0
