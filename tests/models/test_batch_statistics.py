"""Statistics of batch normalisation from samples: a model then predicts as it did in training, without randomness."""

from typing import Any

import numpy as np
import pytest

from vcdl.models.batch_statistics import BatchStatistics
from vcdl.models.resnet_v2 import resnet_v2

pytestmark = pytest.mark.keras


def nested_model() -> Any:
    """Batch normalisation in a wrapper, in a nested model and twice in a row, with a frozen one and dropout."""
    import keras
    from keras import layers

    inner = keras.Sequential(
        [keras.Input((24,)), layers.Dense(5), layers.BatchNormalization(name="nested")], name="inner"
    )
    inputs = keras.Input((4, 6))
    x = layers.TimeDistributed(layers.BatchNormalization(name="wrapped"))(inputs)
    x = layers.Dropout(0.5, seed=1)(inner(layers.Flatten()(x)))
    frozen = layers.BatchNormalization(name="frozen")
    x = frozen(layers.BatchNormalization(name="last", momentum=0.7)(x))
    frozen.trainable = False
    return keras.Model(inputs, layers.Dense(3)(x))


def statistics_of(model: Any) -> dict[str, Any]:
    weights = [weight for weight in model.weights if "/moving_" in weight.path]
    return {"/".join(weight.path.split("/")[-2:]): weight.numpy() for weight in weights}


@pytest.fixture(scope="module")
def samples() -> Any:
    return (np.random.default_rng(1).normal(size=(150, 4, 6)) * 3 + 7).astype(np.float32)


@pytest.mark.parametrize("before", [np.inf, np.nan])
def test_they_are_those_of_the_samples_whatever_stood_there(before: float, samples: Any) -> None:
    model = nested_model()
    for weight in model.weights:
        if "/moving_" in weight.path:
            weight.assign(np.full(weight.shape, before))
    BatchStatistics(model).take(samples)
    found = statistics_of(model)
    np.testing.assert_allclose(found["wrapped/moving_mean"], samples.mean(axis=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(found["wrapped/moving_variance"], samples.var(axis=(0, 1)), rtol=0.05)
    np.testing.assert_allclose(found["last/moving_variance"], 1, atol=0.01)  # behind a layer that made it so
    assert set(found["frozen/moving_mean"]) <= {before} or np.isnan(before)
    assert all(np.isfinite(numbers).all() for path, numbers in found.items() if "frozen" not in path)


def test_a_layer_that_renormalises_has_those_of_the_samples_too(samples: Any) -> None:
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((4, 6)), layers.BatchNormalization(renorm=True)])
    model.layers[0].moving_mean.assign(np.full(6, 40.0))  # of a hostile client
    BatchStatistics(model).take(samples)
    np.testing.assert_allclose(model.layers[0].moving_mean.numpy(), samples.mean(axis=(0, 1)), rtol=1e-5)


def test_nothing_is_drawn_and_nothing_else_changes(samples: Any) -> None:
    model = nested_model()
    others = {weight.path: weight.numpy() for weight in model.weights if "/moving_" not in weight.path}
    seeds = [variable.numpy() for variable in model.variables if "seed" in variable.path]
    BatchStatistics(model).take(samples)
    first = statistics_of(model)
    BatchStatistics(model).take(samples)
    for path, numbers in statistics_of(model).items():
        np.testing.assert_array_equal(numbers, first[path])
    for weight in model.weights:
        if weight.path in others:
            np.testing.assert_array_equal(weight.numpy(), others[weight.path])
    assert seeds
    np.testing.assert_array_equal([v.numpy() for v in model.variables if "seed" in v.path], seeds)


def test_training_goes_on_as_if_nothing_had_been_taken(samples: Any) -> None:
    model = nested_model()
    layer = next(layer for layer in model.layers if layer.name == "last")
    BatchStatistics(model).take(samples)
    before = layer.moving_mean.numpy()
    model(samples + 1, training=False)
    np.testing.assert_array_equal(layer.moving_mean.numpy(), before)
    layer(np.full((2, 5), 10, np.float32), training=True)
    np.testing.assert_allclose(layer.moving_mean.numpy(), 0.7 * before + 0.3 * 10, rtol=1e-5)


def test_a_resnet_then_predicts_as_it_did_in_training() -> None:
    model = resnet_v2((8, 8, 1), 3, "classification", depth=11)
    x = np.random.default_rng(1).normal(2, 3, (32, 8, 8, 1)).astype(np.float32)
    in_training = np.asarray(model(x, training=True))
    assert np.abs(np.asarray(model(x, training=False)) - in_training).max() > 0.01
    BatchStatistics(model).take(x)
    np.testing.assert_allclose(np.asarray(model(x, training=False)), in_training, atol=1e-4)


def test_a_layer_that_the_model_calls_as_in_use_or_never_keeps_its_statistics(samples: Any) -> None:
    import keras
    from keras import layers

    class InUse(keras.Model):  # type: ignore[misc]
        """The body of a model that is tuned: its statistics are part of what was given."""

        def __init__(self) -> None:
            super().__init__()
            self.given, self.unused = layers.BatchNormalization(name="given"), layers.BatchNormalization(name="unused")
            self.trained, self.noise = layers.BatchNormalization(name="trained"), layers.Dropout(0.5)
            self.unused.build((None, 6))

        def call(self, inputs: Any, training: bool | None = None) -> Any:
            x = self.trained(self.given(inputs, training=False), training=training)
            return self.noise(x, training=training)

    model = InUse()
    model(samples)
    before, seeds = statistics_of(model), model.noise.seed_generator.state.numpy()
    BatchStatistics(model).take(samples)
    after = statistics_of(model)
    for name in ("given/moving_mean", "given/moving_variance", "unused/moving_mean", "unused/moving_variance"):
        np.testing.assert_array_equal(after[name], before[name])
    np.testing.assert_allclose(after["trained/moving_mean"], samples.mean(axis=(0, 1)), rtol=1e-3)
    np.testing.assert_array_equal(model.noise.seed_generator.state.numpy(), seeds)


def test_a_class_of_ones_own_and_what_only_training_calls_keep_their_statistics(samples: Any) -> None:
    import keras
    from keras import layers

    class Still(layers.BatchNormalization):  # type: ignore[misc]
        def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
            return super().call(inputs, training=False, mask=mask)

    class Plain(layers.BatchNormalization):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return super().call(inputs, training=False)

    class Model(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.kept = [Still(name="still"), Plain(name="plain"), layers.BatchNormalization(name="aside")]
            self.kept[2].build((None, 4, 6))
            self.trained = layers.BatchNormalization(name="trained")

        def call(self, inputs: Any, training: bool | None = None) -> Any:
            x = self.kept[1](self.kept[0](inputs))
            return x + self.kept[2](x, training=training) if training else self.trained(x, training=training)

    model = Model()
    model(samples)
    for layer in model.kept:
        layer.moving_mean.assign(np.full(6, 5.0))
    BatchStatistics(model).take(samples)
    for layer in model.kept:
        np.testing.assert_array_equal(layer.moving_mean.numpy(), np.full(6, 5.0))
        np.testing.assert_array_equal(layer.moving_variance.numpy(), np.ones(6))


def test_a_model_that_cannot_be_called_keeps_its_statistics_and_a_line_says_so(
    samples: Any, caplog: pytest.LogCaptureFixture
) -> None:
    import keras
    from keras import layers

    class Uncalled(keras.Model):  # type: ignore[misc]
        """With steps of its own, and no `call`."""

        def __init__(self) -> None:
            super().__init__()
            self.part = layers.BatchNormalization(name="part")
            self.part.build((None, 4, 6))

    model = Uncalled()
    BatchStatistics(model).take(samples)
    np.testing.assert_array_equal(model.part.moving_mean.numpy(), np.zeros(6))
    assert len(caplog.records) == 1
    assert "batch normalisation" in caplog.text
