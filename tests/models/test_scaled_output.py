"""Targets of any scale are learned as numbers around 0 are, and stay in their own unit wherever they are shown."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers

from benchmarks.experiments.training_here import TrainingHere
from vcdl.data.dataset import Dataset
from vcdl.job import Job
from vcdl.journal.observer import RunObserver
from vcdl.models.build import BuiltModel
from vcdl.models.scaled_output import with_scaled_output
from vcdl.run.folder import RunFolder
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.shard_trainer import ShardTrainers
from vcdl.simulate.simulation import simulate
from vcdl.wire.layout import flatten, flatten_frozen
from vcdl.wire.workunit import Normalisation

pytestmark = pytest.mark.keras

RNG = np.random.default_rng(1)
X = RNG.normal(size=(400, 4)).astype(np.float32)
PLAIN = (X @ np.array([0.5, -0.5, 0.5, 0.4]) + RNG.normal(0, 0.1, 400)).astype(np.float32)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("optimizer", "scale", "offset"), [("adam", 1e5, 3e5), ("sgd", 1e5, 3e5), ("adam", 1e-5, 0.0)])
def test_a_job_learns_targets_of_any_scale_and_tells_them_in_their_unit(
    optimizer: str, scale: float, offset: float, tmp_path: Path
) -> None:
    y = PLAIN * np.float32(scale) + np.float32(offset)
    np.savez(tmp_path / "prices.npz", x_train=X, y_train=y, x_test=X[:100], y_test=y[:100])
    values = {
        "name": "prices",
        "model": {"builtin": {"name": "mlp", "units": [16]}},
        "data": {"npz": str(tmp_path / "prices.npz"), "task": "regression", "shards": 4},
        "training": {"optimizer": optimizer},
        "stop": {"epochs": 20},
        "trust": "own",
        "validate": {"every": "epoch"},
    }
    folder = RunFolder(tmp_path / "run")
    report = simulate(
        folder,
        Job.model_validate(values),
        ClientFleet(clients=1, slots=1),
        RunObserver(),
        TrainingHere(folder, ShardTrainers()),
    )
    assert report is not None
    assert report.final_test is not None
    limit = 0.6 * float(np.abs(y - y.mean()).mean())  # of what predicting the mean comes to
    assert report.final_test.metrics["mean_absolute_error"] < limit
    predicted = keras.saving.load_model(folder.path / "model.keras").predict(X[:100], verbose=0)[:, 0]
    assert np.mean(np.abs(predicted - y[:100])) < limit


def built(model: keras.Model) -> BuiltModel:
    return BuiltModel(model.to_json(), flatten(model), flatten_frozen(model))


def ending(last: layers.Layer) -> keras.Model:
    inputs = keras.Input((4,))
    return keras.Model(inputs, last(inputs))


def trained() -> keras.Model:
    model = ending(layers.Dense(1))
    model.layers[-1].set_weights([np.array([[0.5], [-0.5], [0.5], [0.4]]) * 1e5, np.array([3e5])])
    return model


@pytest.mark.parametrize(
    ("model", "scale"),
    [
        (lambda: ending(layers.Dense(1)), 1.0),
        (lambda: ending(layers.Dense(1, activation="softplus")), 1e5),
        (trained, 1e5),
    ],
    ids=["targets of a usual scale", "an output that is never negative", "weights that predict them already"],
)
def test_a_model_that_needs_no_scale_stays(model: object, scale: float) -> None:
    y = PLAIN * scale + (3e5 if scale > 1 else 0.0)
    before = built(model())  # type: ignore[operator]
    assert with_scaled_output(before, Dataset(X, y, X, y), Normalisation()) is before


@pytest.mark.parametrize("kind", [keras.Sequential, keras.Model])
def test_the_scale_is_the_model_s_last_layer_and_its_weights_stay(kind: type[keras.Model]) -> None:
    model = ending(layers.Dense(1, name="output"))
    if kind is keras.Sequential:
        model = keras.Sequential([keras.Input((4,)), layers.Dense(1, name="output")])
    y = PLAIN * 1e5 + 3e5
    scaled = keras.models.model_from_json(with_scaled_output(built(model), Dataset(X, y, X, y), Normalisation()).json)
    scaled.set_weights(model.get_weights())
    expected = model.predict(X[:5], verbose=0) * y.std() + y.mean()
    np.testing.assert_allclose(scaled.predict(X[:5], verbose=0), expected, rtol=1e-4)
