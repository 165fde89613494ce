"""What a compiled model brings."""

from collections.abc import Callable
from typing import Any

import pytest

from vcdl.api.compiled import training_of
from vcdl.client.compile import compile_model
from vcdl.errors import JobError
from vcdl.job.training import TrainingSettings
from vcdl.wire.workunit import Normalisation

pytestmark = pytest.mark.keras


def compiled(**arguments: Any) -> Any:
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    if arguments:
        model.compile(**arguments)
    return model


def test_a_model_that_is_not_compiled_brings_nothing() -> None:
    assert training_of(compiled()) == {}


def objects() -> dict[str, Any]:
    import keras

    return {
        "optimizer": keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=1.0),
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(k=2)],
    }


def functions() -> dict[str, Any]:
    import keras

    return {
        "optimizer": keras.optimizers.AdamW(weight_decay=0.01),
        "loss": keras.losses.mean_squared_error,
        "metrics": [keras.metrics.mean_absolute_error],
    }


def scaled() -> dict[str, Any]:
    import keras

    return {"optimizer": keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), "loss": "mse"}


def huber() -> dict[str, Any]:
    import keras

    return {"optimizer": "adam", "loss": keras.losses.Huber(delta=2.0), "metrics": []}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            lambda: {"optimizer": "adam", "loss": "mse", "metrics": ["mae"]},
            {"optimizer": "adam", "peak": 0.0017, "loss": "mse", "metrics": ["mae"]},
        ),
        (
            objects,
            {
                "optimizer": {"name": "sgd", "momentum": 0.9, "clipnorm": 1.0},
                "peak": 0.05,
                "loss": {"name": "sparse_categorical_crossentropy", "from_logits": True},
                "metrics": ["accuracy", {"name": "sparse_top_k_categorical_accuracy", "k": 2}],
            },
        ),
        (huber, {"optimizer": "adam", "peak": 0.0017, "loss": {"name": "huber", "delta": 2.0}}),
        (
            functions,
            {
                "optimizer": {"name": "adam_w", "weight_decay": 0.01}, "peak": 0.0017, "loss": "mean_squared_error",
                "metrics": ["mean_absolute_error"],
            },
        ),
    ],
    ids=["names", "objects", "arguments that Keras leaves out", "functions"],
)  # fmt: skip
def test_what_is_keras_own_is_taken_over(given: Callable[[], dict[str, Any]], expected: dict[str, Any]) -> None:
    training = training_of(compiled(**given()))
    rate = training.pop("learning_rate")
    assert {**training, "peak": rate["peak"]} == expected
    settings = TrainingSettings.model_validate({**training, "learning_rate": rate})
    compile_model(compiled(), settings.to_wire(Normalisation()))  # Keras knows all of it by these names


def test_a_rate_that_was_chosen_is_not_left_to_a_trial() -> None:
    import keras

    default, chosen = (
        training_of(compiled(optimizer=optimizer, loss="mse"))["learning_rate"]
        for optimizer in ("adam", keras.optimizers.Adam(0.003))
    )
    assert (default["peak"], default["short_job_boost"]) == (0.0017, "auto")
    assert (chosen["peak"], chosen["short_job_boost"]) == (0.003, 3.0)


def own() -> dict[str, Any]:
    def mean_squared_error(y: Any, predicted: Any) -> Any:
        return predicted - y

    return {"loss": mean_squared_error}


def of_own_class() -> dict[str, Any]:
    import keras

    class Adam(keras.optimizers.Adam):  # type: ignore[misc]
        pass

    return {"optimizer": Adam(), "loss": "mse"}


def scheduled() -> dict[str, Any]:
    import keras

    return {"optimizer": keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.01, 100)), "loss": "mse"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (own, "compiled with 'mean_squared_error' as its loss, which is not Keras' own.* one of keras.losses"),
        (of_own_class, "compiled with 'Adam' as its optimizer, which is not Keras' own.* one of keras.optimizers"),
        (scheduled, "learning rate is a CosineDecay, which counts steps of one machine: compile with a number, or"),
        (scaled, "compiled for mixed_float16, .*a LossScaleOptimizer.* policy mixed_bfloat16"),
        (lambda: {"loss": "mse", "weighted_metrics": ["mae"]}, "compiled with weighted_metrics, which vcdl.train does"),
        (lambda: {"loss": ["mse", "mse"]}, "compiled with several loss"),
    ],
    ids=["function", "class", "schedule", "scaled", "weighted", "several"],
)
def test_what_is_not_is_refused_with_the_cure(given: Callable[[], dict[str, Any]], words: str) -> None:
    with pytest.raises(JobError, match=words):
        training_of(compiled(**given()))


def test_a_scale_that_keras_chose_itself_is_refused_too() -> None:
    """Keras' configuration then names the optimizer inside."""
    import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = compiled(optimizer="adam", loss="mse")
    finally:
        keras.mixed_precision.set_global_policy("float32")
    with pytest.raises(JobError, match=r"compiled for mixed_float16, .*a LossScaleOptimizer"):
        training_of(model)


def test_how_a_step_is_run_is_left_to_the_client() -> None:
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("adam", "mse")
    plain = training_of(model)
    model.compile("adam", "mse", jit_compile=True, steps_per_execution=4)
    assert training_of(model) == plain
    model.compile("adam", "mse", run_eagerly=True, auto_scale_loss=False)
    assert training_of(model) == plain
