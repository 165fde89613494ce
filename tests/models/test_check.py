"""Whether model, data and training settings belong together."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from vcdl.errors import JobError, ModelError, VcdlError
from vcdl.models.check import check_model
from vcdl.wire.workunit import Named, Training

pytestmark = pytest.mark.keras

CLASSES = np.arange(10, dtype=np.int32)
BINARY = np.array([0, 1, 1], np.int32)
NUMBERS = np.linspace(0, 1, 10, dtype=np.float32)


def training(loss: str = "sparse_categorical_crossentropy", *metrics: str, **arguments: Any) -> Training:
    return Training(
        optimizer=Named("adam"), learning_rate=0.001, batch_size=32, local_epochs=1, loss=Named(loss, arguments),
        metrics=tuple(Named(metric) for metric in metrics),
    )  # fmt: skip


def ending(units: int, activation: str | None = "softmax") -> str:
    return str(keras.Sequential([keras.Input((4,)), layers.Dense(units, activation=activation)]).to_json())


GOOD: dict[str, tuple[Callable[[], str], Training, Any]] = {
    "classes": (lambda: ending(10), training("sparse_categorical_crossentropy", "accuracy"), CLASSES),
    "more outputs than classes": (lambda: ending(12), training(), CLASSES),
    "logits": (lambda: ending(10, None), training(from_logits=True), CLASSES),
    "two classes, one output": (lambda: ending(1, "sigmoid"), training("binary_crossentropy", "auc"), BINARY),
    "a regression": (lambda: ending(1, None), training("mse", "mae", "root_mean_squared_error"), NUMBERS),
    "a metric for each kind of words": (
        lambda: ending(10),
        training("sparse_categorical_crossentropy", "acc", "crossentropy", "perplexity"),
        CLASSES,
    ),
    "two classes, further metrics": (
        lambda: ending(1, "sigmoid"),
        training("binary_crossentropy", "precision", "r2_score", "bce"),
        BINARY,
    ),
    "one logit": (
        lambda: ending(1, None),
        Training(
            Named("adam"), 0.001, 32, 1, Named("binary_crossentropy", {"from_logits": True}), (Named("accuracy"),)
        ),
        BINARY,
    ),
    "two numbers": (lambda: ending(2, None), training("huber"), np.ones((5, 2), np.float32)),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_belongs_together_passes(case: str) -> None:
    model, settings, y = GOOD[case]
    check_model(model(), settings, (4,), y)


WRONG: dict[str, tuple[Callable[[], str], Training, Any, type[VcdlError], str]] = {
    "too few outputs": (
        lambda: ending(7), training(), CLASSES, ModelError,
        "the model ends in 7 outputs, the data has labels 0…9: give the last layer 10 units",
    ),
    "logits taken for probabilities": (lambda: ending(10, None), training(), CLASSES, ModelError, "give it softmax"),
    "softmax taken for logits": (
        lambda: ending(10), training(from_logits=True), CLASSES, ModelError, "take from_logits out of the loss",
    ),
    "sigmoid taken for logits": (
        lambda: ending(1, "sigmoid"), training("binary_crossentropy", from_logits=True), BINARY, ModelError,
        "or sigmoid out of the model",
    ),
    "a loss for one-hot labels": (
        lambda: ending(10), training("categorical_crossentropy"), CLASSES, JobError,
        "use sparse_categorical_crossentropy",
    ),
    "a loss for numbers": (
        lambda: ending(10), training("mse"), CLASSES, JobError, "use sparse_categorical_crossentropy",
    ),
    "a binary loss for ten classes": (
        lambda: ending(1, "sigmoid"), training("binary_crossentropy"), CLASSES, JobError, "labels 0 and 1",
    ),
    "a binary loss for two outputs": (
        lambda: ending(2), training("binary_crossentropy"), BINARY, JobError, "here are 2 outputs",
    ),
    "a loss for classes in a regression": (lambda: ending(1), training(), NUMBERS, JobError, "use mean_squared_error"),
    "too many numbers": (lambda: ending(3, None), training("mse"), NUMBERS, ModelError, "give the last layer 1 unit"),
    "a metric for one-hot labels": (
        lambda: ending(10), training("sparse_categorical_crossentropy", "categorical_accuracy"), CLASSES, JobError,
        "did you mean 'sparse_categorical_accuracy'",
    ),
    "a metric for other shapes": (
        lambda: ending(10), training("sparse_categorical_crossentropy", "precision"), CLASSES, JobError, "precision",
    ),
    "a metric that compares each output with a label": (
        lambda: ending(10), training("sparse_categorical_crossentropy", "mae"), CLASSES, JobError,
        "mean_absolute_error cannot compare outputs of shape (10,) with labels of shape (); accuracy",
    ),
    "the same, with as many outputs as samples that are tried": (
        lambda: ending(2), training("sparse_categorical_crossentropy", "mae"), BINARY, JobError, "cannot compare",
    ),
    "a metric of one-hot labels that computes something": (
        lambda: ending(10), Training(Named("adam"), 0.001, 32, 1, Named("sparse_categorical_crossentropy"),
                                     (Named("one_hot_mean_iou", {"num_classes": 10}),)),
        CLASSES, JobError, "did you mean 'mean_iou'?",
    ),
    "a metric of several outputs for one": (
        lambda: ending(1, "sigmoid"), training("binary_crossentropy", "sparse_categorical_accuracy"), BINARY, JobError,
        "did you mean 'binary_accuracy'?",
    ),
    "a score of the largest output for one": (
        lambda: ending(1, "sigmoid"), training("binary_crossentropy", "f1_score"), BINARY, JobError,
        "give it `threshold: 0.5`",
    ),
    "a correlation along one number": (
        lambda: ending(1, None), training("mse", "pearson_correlation"), NUMBERS, JobError, "give it `axis: 0`",
    ),
    "a metric of probabilities for logits": (
        lambda: ending(1, None), Training(Named("adam"), 0.001, 32, 1,
                                          Named("binary_crossentropy", {"from_logits": True}), (Named("auc"),)),
        BINARY, JobError, "give it `from_logits: true`",
    ),
    "a metric of labels 0 and 1 for numbers": (
        lambda: ending(1, None), training("mse", "auc"), 7 * NUMBERS, JobError, "the data has 0 … 7",
    ),
    "a score for each class": (
        lambda: ending(2, None), training("mse", "f1_score"), np.ones((5, 2), np.float32), JobError,
        "give it `average: macro`",
    ),
    "perplexity of a regression": (
        lambda: ending(1, None), training("mse", "perplexity"), NUMBERS, JobError, "the loss is mean_squared_error",
    ),
    "whole numbers beside a loss for one-hot rows": (
        lambda: ending(3), training("categorical_crossentropy"), NUMBERS, JobError, "use sparse_categorical_crossentro",
    ),
    "an unknown metric": (
        lambda: ending(10), training("sparse_categorical_crossentropy", "acc_"), CLASSES, JobError, "did you mean",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_is_refused_with_advice(case: str) -> None:
    model, settings, y, kind, reason = WRONG[case]
    with pytest.raises(kind) as caught:
        check_model(model(), settings, (4,), y)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_output_for_each_pixel_is_no_classification() -> None:
    model = keras.Sequential([keras.Input((4, 4)), layers.Dense(10, activation="softmax")])
    with pytest.raises(ModelError, match="add Flatten and Dense"):
        check_model(model.to_json(), training(), (4, 4), CLASSES)


def test_two_outputs_cannot_be_trained() -> None:
    inputs = keras.Input((4,))
    model = keras.Model(inputs, [layers.Dense(1)(inputs), layers.Dense(1)(inputs)])
    with pytest.raises(ModelError, match="say in data > outputs what each of them learns"):
        check_model(model.to_json(), training(), (4,), CLASSES)


def test_every_name_that_keras_does_not_know_is_told_at_once() -> None:
    wrong = Training(
        optimizer=Named("adamm"), learning_rate=0.001, batch_size=32, local_epochs=1, loss=Named("crossentropy"),
        metrics=(Named("accuracy"), Named("acuracy")),
    )  # fmt: skip
    with pytest.raises(JobError) as refused:
        check_model(ending(10), wrong, (4,), CLASSES)
    keys = [line.split(":")[0] for line in str(refused.value).splitlines()]
    assert keys == ["training > optimizer", "training > loss", "training > metrics"]


def test_softmax_in_a_layer_of_its_own_is_seen() -> None:
    ends: tuple[Any, ...] = (
        layers.Softmax(),
        layers.Activation("softmax"),
        keras.Sequential([layers.Softmax()]),
        keras.ops.softmax,
    )
    for end in ends:
        inputs = keras.Input((4,))
        model = keras.Model(inputs, end(layers.Dense(10)(inputs))).to_json()
        check_model(model, training(), (4,), CLASSES)
        with pytest.raises(ModelError, match="from_logits"):
            check_model(model, training(from_logits=True), (4,), CLASSES)


@pytest.mark.parametrize(
    ("build", "settings", "reason"),
    [
        (lambda: ending(3), training("binary_crossentropy"), "ends in softmax, which shares one certainty"),
        (lambda: ending(3, None), training("binary_crossentropy"), "give it softmax"),
        (lambda: ending(3), training("categorical_crossentropy"), "use binary_crossentropy"),
    ],
)
def test_several_labels_are_questions_of_their_own(build: Callable[[], str], settings: Training, reason: str) -> None:
    flags = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]], np.float32)
    check_model(ending(3, "sigmoid"), training("binary_crossentropy"), (4,), flags, "multi_label")
    with pytest.raises(VcdlError, match=reason):
        check_model(build(), settings, (4,), flags, "multi_label")


def test_one_hot_labels_below_softmax_are_one_class_a_sample() -> None:
    with pytest.raises(JobError, match=r"one-hot and the model ends in softmax, .*: use categorical_crossentropy"):
        check_model(ending(3), training("binary_crossentropy"), (4,), np.eye(3, dtype=np.float32), "multi_label")


def test_labels_shorter_than_the_outputs_are_aligned_by_ctc() -> None:
    steps = keras.Sequential([keras.Input((20, 4)), layers.Dense(12)]).to_json()
    labels = np.random.default_rng(1).integers(1, 11, (10, 6)).astype(np.float32)
    check_model(steps, training("ctc"), (20, 4), labels, "regression")
    with pytest.raises(JobError, match=r"ctc does not fit labels of shape"):
        check_model(ending(12), training("ctc"), (4,), labels, "regression")


@pytest.mark.parametrize("stateful", [False, True])
def test_a_model_for_one_size_of_batches_is_named_as_the_cause(stateful: bool) -> None:
    inputs = keras.Input(batch_shape=(32, 5, 4))
    inner = layers.LSTM(4, stateful=True)(inputs) if stateful else keras.ops.reshape(inputs, (32, 20))
    model = keras.Model(inputs, layers.Dense(10, activation="softmax")(inner)).to_json()
    words = (
        r"lstm.* is stateful" if stateful else r"takes batches of 32 samples only.*: begin it with keras.Input\(shape\)"
    )
    with pytest.raises(ModelError, match=words):
        check_model(model, training(), (5, 4), CLASSES)


def test_a_policy_that_needs_a_scaled_loss_is_refused_and_its_cure_is_not() -> None:
    def with_policy(name: str) -> str:
        head = layers.Dense(10, "softmax", dtype=name, name="head")
        return str(keras.Sequential([keras.Input((4,)), head]).to_json())

    check_model(with_policy("mixed_bfloat16"), training(), (4,), CLASSES)
    with pytest.raises(ModelError, match=r"the layer head uses the precision mixed_float16.*: use mixed_bfloat16"):
        check_model(with_policy("mixed_float16"), training(), (4,), CLASSES)


def test_a_layer_beside_the_way_to_the_output_is_not_taken_for_the_last_one() -> None:
    inputs = keras.Input((4,))
    logits, gate = layers.Dense(10)(inputs), layers.Dense(10, activation="sigmoid")(layers.Dense(3)(inputs))
    model = keras.Model(inputs, keras.ops.softmax(logits * gate)).to_json()
    with pytest.raises(ModelError, match="from_logits"):
        check_model(model, training(from_logits=True), (4,), CLASSES)


def test_a_label_for_each_step_wants_outputs_for_each_step() -> None:
    steps = keras.Sequential([keras.Input((None, 4)), layers.Dense(3, activation="softmax")]).to_json()
    labels = np.array([[0, 1, 2, -1, 0]] * 3, np.int32)
    check_model(steps, training(ignore_class=-1), (5, 4), labels, "sequence")
    with pytest.raises(ModelError, match=r"expected \(5, 3\): one for each class at each of the labels' places"):
        check_model(ending(3), training(), (4,), labels, "sequence")
