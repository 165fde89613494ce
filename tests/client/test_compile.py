"""Optimizers, losses and metrics from names and plain arguments; anything else is refused with advice."""

from typing import Any

import keras
import numpy as np
import pytest

from vcdl.client.compile import compile_model, make_loss, make_metric, make_optimizer
from vcdl.errors import JobError
from vcdl.wire.workunit import Named, Training

pytestmark = pytest.mark.keras


@pytest.mark.parametrize(
    ("name", "expected"),
    [("adam", "Adam"), ("Adam", "Adam"), ("sgd", "SGD"), ("SGD", "SGD"), ("adamw", "AdamW"), ("adam_w", "AdamW"),
     ("rmsprop", "RMSprop"), ("Nadam", "Nadam")],
)  # fmt: skip
def test_an_optimizer_is_found_however_it_is_spelt(name: str, expected: str) -> None:
    assert type(make_optimizer(Named(name), 0.01)).__name__ == expected


@pytest.mark.parametrize(
    ("loss", "expected"),
    [("mse", "MeanSquaredError"), ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"),
     ("SparseCategoricalCrossentropy", "SparseCategoricalCrossentropy"), ("huber", "Huber")],
)  # fmt: skip
def test_a_loss_is_found_by_function_class_and_short_name(loss: str, expected: str) -> None:
    assert type(make_loss(Named(loss))).__name__ == expected


def test_a_compiled_model_trains_with_its_metrics() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, activation="softmax")])
    training = Training(
        optimizer=Named("adam"),
        learning_rate=0.05,
        batch_size=16,
        local_epochs=1,
        loss=Named("sparse_categorical_crossentropy"),
        metrics=(Named("accuracy"), Named("sparse_top_k_categorical_accuracy", {"k": 2})),
    )
    compile_model(model, training)
    x = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    history = model.fit(x, (x[:, 0] > 0).astype(np.int32), epochs=2, verbose=0).history
    assert set(history) == {"loss", "accuracy", "sparse_top_k_categorical_accuracy"}
    assert history["loss"][1] < history["loss"][0]


REFUSED: list[tuple[Any, Named, str]] = [
    (make_loss, Named("sparse_categorical_crossentropi"), "did you mean 'sparse_categorical_crossentropy'"),
    (make_loss, Named("sparse_crossentropy"), "did you mean 'sparse_categorical_crossentropy'"),
    (make_metric, Named("acuracy"), "did you mean 'accuracy'"),
    (make_metric, Named("accuracy", {"k": 3}), "has no argument 'k'"),
    (make_metric, Named("mean_metric_wrapper", {"fn": "x"}), "Keras knows no"),
    (make_loss, Named("os.system"), "Keras knows no"),
    (make_loss, Named("least_squares"), "; the nearest are "),
    (make_loss, Named("__class__"), "Keras knows no"),
    (make_loss, Named("get"), "Keras knows no"),
    (make_loss, Named("deserialize", {"config": "x"}), "Keras knows no"),
    (make_loss, Named("huber", {"delta": {"class_name": "Popen", "module": "subprocess", "config": {}}}), "a number"),
    (make_loss, Named("huber", {"delta": "big"}), "something like 1.0"),
    (make_loss, Named("huber", {"reduction": "some"}), "refuses"),
]


@pytest.mark.parametrize(
    ("make", "named", "reason"), REFUSED, ids=[f"{n.name} {dict(n.arguments)}" for _, n, _ in REFUSED]
)
def test_what_keras_does_not_know_is_refused_with_advice(make: Any, named: Named, reason: str) -> None:
    with pytest.raises(JobError, match=r"^training > (loss|metrics)") as caught:
        make(named)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        (Named("adm"), "did you mean 'adam'"),
        (Named("adam", {"beta1": 0.9}), "did you mean 'beta_1'"),
        (Named("adam", {"learning_rate": 0.1}), "give it as training > learning_rate"),
        (Named("adam", {"beta_1": "much"}), "something like 0.9"),
        (Named("loss_scale_optimizer", {"inner_optimizer": "adam"}), "use `training > precision: mixed_bfloat16`"),
        (Named("sgd", {"momentum": 7.0}), "refuses"),
        (Named("adam", {"clipnorm": -1}), "clipnorm: expected a number > 0, got -1"),
        (Named("adam", {"beta_2": 1.0}), "beta_2: expected a number from 0 to 1 (1 excluded), got 1.0"),
        (Named("adam", {"gradient_accumulation_steps": 2.5}), "expected a whole number, got 2.5"),
        (Named("adamw", {"weight_decay": -0.1}), "weight_decay: expected a number ≥ 0, got -0.1"),
    ],
)
def test_a_wrong_optimizer_is_refused_with_advice(named: Named, reason: str) -> None:
    with pytest.raises(JobError, match=r"^training > optimizer") as caught:
        make_optimizer(named, 0.1)
    assert reason in str(caught.value)
