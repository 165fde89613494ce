"""Inputs that are damaged, foreign or do not fit are refused before training, in one line."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.workunit_folder import (
    SIZE,
    WORKUNIT,
    ScriptedSupervisor,
    freeze_hidden,
    samples,
    write_shard,
    write_workunit,
)
from vcdl.client.inputs import read_shard, read_workunit
from vcdl.client.train import Outcome, train_workunit
from vcdl.client.trainer import TrainerCache
from vcdl.errors import ModelError, VcdlError, WeightsFileError, WorkunitError
from vcdl.wire.frozen import read_frozen, write_frozen
from vcdl.wire.layout import Layout, flatten, flatten_frozen
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import read_weights, write_weights
from vcdl.wire.workunit import Normalisation

X, Y = samples()


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def halve(name: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])

    return act


def shard(x: Any, y: Any) -> Callable[[Path], None]:
    return lambda folder: write_shard(folder, x, y)


def a_third_array(folder: Path) -> None:
    np.savez(folder / "shard.npz", x=X, y=Y, z=Y)


def one_byte_flipped(folder: Path) -> None:
    raw = bytearray((folder / "shard.npz").read_bytes())
    raw[len(raw) // 3] ^= 0x10
    (folder / "shard.npz").write_bytes(raw)


def params(weights: Any = None, **header: Any) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        vector, text = read_weights(folder / "params.h5", SIZE)
        raw = ParamsHeader.from_json(text)
        fields = {"job": raw.job, "version": raw.version, "layout": raw.layout, **header}
        write_weights(folder / "params.h5", vector if weights is None else weights, ParamsHeader(**fields).to_json())

    return act


def two_inputs(folder: Path) -> None:
    import keras

    a, b = keras.Input((4,)), keras.Input((4,))
    model = keras.Model([a, b], keras.layers.Dense(1)(keras.layers.Add()([a, b])))
    (folder / "model.json").write_text(model.to_json())
    header = ParamsHeader(WORKUNIT.job, WORKUNIT.base_version, Layout.of(model).fingerprint)
    write_weights(folder / "params.h5", flatten(model), header.to_json())


SEVERAL = np.zeros(len(X), [("a", "f4", 4), ("b", "f4", 4)])
NESTED = np.zeros(len(X), [("a", [("b", "f4")])])
NAN_X = np.where(np.arange(len(X))[:, None] == 3, np.nan, X)
NAN_Y = np.where(np.arange(len(Y)) == 3, np.inf, Y)


@pytest.mark.keras
@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        pytest.param(remove("workunit.json"), WorkunitError, "workunit.json is missing", id="no workunit"),
        pytest.param(halve("workunit.json"), WorkunitError, "not JSON", id="half a workunit"),
        pytest.param(remove("model.json"), WorkunitError, "model.json is missing", id="no model"),
        pytest.param(halve("model.json"), ModelError, "not JSON", id="half a model"),
        pytest.param(two_inputs, WorkunitError, "the model expects", id="two inputs"),
        pytest.param(shard(SEVERAL, Y), WorkunitError, "has inputs", id="several inputs for one"),
        pytest.param(shard(X, SEVERAL), WorkunitError, "has labels of", id="labels of several outputs for one"),
        pytest.param(shard(NESTED, Y), WorkunitError, "expected numbers", id="inputs in an input"),
        pytest.param(remove("params.h5"), WeightsFileError, "params.h5", id="no params"),
        pytest.param(halve("params.h5"), WeightsFileError, "params.h5", id="half of params"),
        pytest.param(params(job="another"), WeightsFileError, "another", id="params of another job"),
        pytest.param(params(version=141), WeightsFileError, "version=141", id="params of another version"),
        pytest.param(params(layout="0" * 16), WeightsFileError, "0000", id="params of another model"),
        pytest.param(params(np.zeros(SIZE + 1, np.float32)), WeightsFileError, "params.h5", id="params too long"),
        pytest.param(params(np.full(SIZE, np.nan, np.float32)), WeightsFileError, "not finite", id="params NaN"),
        pytest.param(remove("shard.npz"), WorkunitError, "shard.npz is missing", id="no shard"),
        pytest.param(halve("shard.npz"), WorkunitError, "shard.npz is damaged", id="half a shard"),
        pytest.param(one_byte_flipped, WorkunitError, "shard.npz is damaged", id="a flipped bit"),
        pytest.param(shard(X, np.array([None] * len(X))), WorkunitError, "shard.npz is damaged", id="pickled labels"),
        pytest.param(a_third_array, WorkunitError, "expected x, y and weights", id="another array"),
        pytest.param(shard(X, Y[:-1]), WorkunitError, "different numbers of samples", id="a label short"),
        pytest.param(shard(X[:0], Y[:0]), WorkunitError, "different numbers of samples", id="empty"),
        pytest.param(shard(X, np.array(["a"] * len(X))), WorkunitError, "expected numbers", id="text labels"),
        pytest.param(shard(X[:, :3], Y), WorkunitError, "the model expects", id="samples too small"),
        pytest.param(shard(X[:, :, None], Y), WorkunitError, "the model expects", id="samples with a channel"),
        pytest.param(shard(NAN_X, Y), WorkunitError, "not finite", id="NaN in x"),
        pytest.param(shard(X, NAN_Y), WorkunitError, "not finite", id="infinity in y"),
    ],
)
def test_bad_inputs_are_refused_in_one_line(
    tmp_path: Path, damage: Callable[[Path], None], error: type[VcdlError], words: str
) -> None:
    folder = write_workunit(tmp_path)
    damage(folder)
    supervisor = ScriptedSupervisor()
    with pytest.raises(error, match=words) as caught:
        train_workunit(folder, supervisor, TrainerCache())
    assert "\n" not in str(caught.value)
    assert supervisor.questions == 0
    assert not (folder / "update.h5").exists()


@pytest.mark.parametrize("label", [2**31, -(2**31) - 1, 2**40])
def test_labels_that_would_wrap_around_are_refused(tmp_path: Path, label: int) -> None:
    write_shard(tmp_path, X, np.full(len(X), label))
    with pytest.raises(WorkunitError, match="labels beyond 32 bits"):
        read_shard(tmp_path, Normalisation(), {"": X.shape[1:]})


@pytest.mark.parametrize(
    ("x", "words"), [([[0.5]], "not whole"), ([[2**31]], "beyond 32 bits"), ([[np.nan]], "beyond")]
)
def test_other_numbers_are_refused_where_whole_ones_are_expected(tmp_path: Path, x: Any, words: str) -> None:
    write_shard(tmp_path, np.array(x), np.zeros(1, int))
    with pytest.raises(WorkunitError, match=words):
        read_shard(tmp_path, Normalisation(integers=True), {"": (1,)})


@pytest.mark.keras
def test_frozen_weights_are_trained_beside_and_do_not_come_back(tmp_path: Path) -> None:
    folder, cache = freeze_hidden(write_workunit(tmp_path / "w")), TrainerCache()
    assert train_workunit(folder, ScriptedSupervisor(), cache) is Outcome.DONE
    trainer = cache.get((folder / "model.json").read_text(), WORKUNIT.training, read_workunit(folder).frozen)
    assert trainer.layout.model.size == SIZE - 320
    assert (folder / "update.h5").stat().st_size < 4 * SIZE
    frozen = read_frozen(folder / "frozen.h5", read_workunit(folder).frozen)
    np.testing.assert_array_equal(flatten_frozen(trainer.model), frozen)


def another_s(folder: Path) -> None:
    write_frozen(folder / "frozen.h5", np.zeros(320, np.float32))


def unnamed(folder: Path) -> None:
    (folder / "workunit.json").write_text(WORKUNIT.to_json())


def of_another_size(folder: Path) -> None:
    frozen = write_frozen(folder / "frozen.h5", np.zeros(9, np.float32))
    (folder / "workunit.json").write_text(replace(WORKUNIT, frozen=frozen).to_json())


@pytest.mark.keras
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove("frozen.h5"), "frozen.h5 is missing: fetch the workunit's files again"),
        (halve("frozen.h5"), "frozen.h5 is damaged or of another job"),
        (another_s, "frozen.h5 is damaged or of another job"),
        (unnamed, "0 frozen weights for a model of 320"),
        (of_another_size, "9 frozen weights for a model of 320"),
    ],
)
def test_wrong_frozen_weights_are_refused_before_training(
    damage: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    folder = freeze_hidden(write_workunit(tmp_path / "w"))
    damage(folder)
    with pytest.raises(WeightsFileError, match=words.replace(".", r"\.")):
        train_workunit(folder, ScriptedSupervisor(), TrainerCache())
    assert not (folder / "update.h5").exists()
