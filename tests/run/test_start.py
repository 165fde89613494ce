"""A job that continues from a finished run: whose weights it begins with, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.adapted import has_lora
from vcdl.data import load_dataset
from vcdl.errors import ModelError, RunFolderError
from vcdl.job import Job, save_job
from vcdl.journal.observer import RunObserver
from vcdl.loop.preparation import prepare
from vcdl.models.fitted import build_fitted
from vcdl.run.export import export_model, start_of
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.wire.layout import flatten
from vcdl.wire.params import ParamsHeader, write_params
from vcdl.wire.weights import read_weights

pytestmark = pytest.mark.keras

MLP = {"builtin": {"name": "mlp", "units": [12]}}


def job(**model: Any) -> Job:
    return Job.model_validate({"name": "next", "model": model, "data": {"dataset": "digits", "shards": 2}})


def run_of(path: Path, **model: Any) -> RunFolder:
    """A run that has ended with random weights."""
    folder = RunFolder(path)
    folder.create()
    begun = job(**model)
    save_job(begun, folder.job_file)
    run = prepare(folder, begun, RunObserver())
    vector, text = read_weights(folder.snapshot(0), run.layout.size)
    vector[: run.layout.model.size] = np.random.default_rng(3).normal(size=run.layout.model.size)
    write_params(folder.snapshot(7), vector, ParamsHeader.from_json(text))
    folder.summary_file.write_text("{}")
    return folder


def begun(settings: Job) -> Any:
    return build_fitted(settings, load_dataset(settings.data, settings.seed), start_of(settings)).model


def trained(folder: RunFolder) -> Any:
    run = Run.open(folder)
    return read_weights(folder.snapshot(7), run.layout.size)[0][: run.layout.model.size]


def test_the_model_and_the_last_weights_of_the_run_are_taken(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "first", **MLP, train=["output"])
    model = begun(job(**{"from": folder.path}))
    assert model.json == folder.read_model_json()
    np.testing.assert_array_equal(model.weights, trained(folder))
    np.testing.assert_array_equal(model.frozen, Run.open(folder).frozen_weights())


def test_more_of_it_can_be_trained_than_before(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "first", **MLP, train=["output"])
    model = begun(job(**{"from": folder.path, "train": ["*"]}))
    assert model.frozen.size == 0
    np.testing.assert_array_equal(model.weights, np.concatenate([Run.open(folder).frozen_weights(), trained(folder)]))


def test_a_model_of_the_same_shape_takes_its_weights_and_another_is_refused(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "first", **MLP)
    np.testing.assert_array_equal(begun(job(**MLP, **{"from": folder.path})).weights, trained(folder))
    with pytest.raises(ModelError, match=r"first does not fit the model: .*dense_1.* has shape \(64, 9\), there"):
        begun(job(builtin={"name": "mlp", "units": [9]}, **{"from": folder.path}))


def test_low_rank_matrices_go_on_or_are_merged_for_new_ones_and_for_the_export(tmp_path: Path) -> None:
    import keras

    folder = run_of(tmp_path / "first", **MLP, lora={"rank": 2}, train=["output"])
    np.testing.assert_array_equal(begun(job(**{"from": folder.path})).weights, trained(folder))
    again = begun(job(**{"from": folder.path, "lora": {"rank": 3}}))
    export_model(folder, tmp_path / "m.keras")
    exported = keras.models.load_model(tmp_path / "m.keras").layers[-1]
    assert not has_lora(exported)
    kernels = [weight.numpy().reshape(-1) for weight in exported.weights if weight.name == "kernel"]
    np.testing.assert_allclose(np.concatenate(kernels), again.frozen, atol=1e-6)


def test_a_run_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "first", **MLP)
    folder.summary_file.unlink()
    with pytest.raises(RunFolderError, match=r"model > from: .*first is not finished: wait for it"):
        begun(job(**{"from": folder.path}))


def test_weights_come_from_one_place() -> None:
    with pytest.raises(ValueError, match="the weights come from that run, and from `weights`"):
        job(**MLP, **{"from": ".", "weights": "m.npz"})
    with pytest.raises(ValueError, match="expected exactly one of builtin"):
        job(builtin="mlp", python="m:f", **{"from": "."})


def test_flattened_models_are_those_that_were_exported(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "first", **MLP)
    assert flatten(start_of(job(**{"from": folder.path}))).tobytes() == trained(folder).tobytes()


def test_the_export_of_an_adapted_model_is_float32_and_its_optimizer_keeps_nothing_of_frozen_layers(
    tmp_path: Path,
) -> None:
    import keras

    folder = run_of(tmp_path / "first", **MLP, frozen="int8", lora={"rank": 2, "layers": ["dense*"]}, train=["output"])
    assert Run.open(folder).frozen_weights().size < 64 * 8, "a place holds four numbers"
    export_model(folder, tmp_path / "m.keras")
    exported = keras.models.load_model(tmp_path / "m.keras")
    layers = [layer for layer in exported._flatten_layers() if layer.weights and not isinstance(layer, keras.Model)]
    assert sorted(layer.trainable for layer in layers) == [False, True]
    assert {weight.dtype for layer in layers for weight in layer.weights} == {"float32"}
    moments = [variable for variable in exported.optimizer.variables if len(variable.shape)]
    assert sum(variable.numpy().size for variable in moments) == 2 * (12 * 10 + 10)


def test_the_export_of_frozen_attention_is_loaded_with_its_optimizer(tmp_path: Path) -> None:
    import warnings

    import keras
    from keras import layers

    inputs = keras.Input((8, 8, 1))
    x = layers.Reshape((8, 8))(inputs)
    x = layers.Flatten()(layers.MultiHeadAttention(2, 4, name="attention")(x, x))
    keras.Model(inputs, layers.Dense(10, activation="softmax", name="head")(x)).save(tmp_path / "given.keras")
    folder = run_of(tmp_path / "first", keras=tmp_path / "given.keras", train=["head"])
    export_model(folder, tmp_path / "m.keras")
    with warnings.catch_warnings(action="error"):  # of an optimizer whose variables are left out
        (attention,) = [
            layer
            for layer in keras.models.load_model(tmp_path / "m.keras")._flatten_layers()
            if isinstance(layer, layers.MultiHeadAttention)
        ]
    assert not attention.trainable
