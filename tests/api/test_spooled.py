"""Streams as arguments of `vcdl.train`: each kind becomes the same files, which a run reads piece by piece."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcdl.api.spooled import is_stream, spool_stream
from vcdl.errors import DataError

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 2


class Single:
    """A data set as PyTorch has them: a sample by its place."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return X[place], int(Y[place])


class PyDataset:
    """A data set as Keras has them: a batch by its place, which need not end."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        return X[5 * place : 5 * place + 5], Y[5 * place : 5 * place + 5]


def batches(size: int = 8) -> Iterator[tuple[Any, Any]]:
    for first in range(0, 20, size):
        yield X[first : first + size], Y[first : first + size]


@pytest.mark.parametrize(
    "stream", [Single(), PyDataset(), batches(), zip(X, Y, strict=True)], ids=lambda s: type(s).__name__
)
def test_each_stream_becomes_the_same_arrays(stream: Any, tmp_path: Path) -> None:
    assert is_stream(stream)
    found = spool_stream("x", stream, tmp_path, "train", axes=1)
    assert isinstance(found["x_train"], np.memmap)
    np.testing.assert_array_equal(found["x_train"], X)
    np.testing.assert_array_equal(found["y_train"], Y)


@pytest.mark.keras
def test_a_tf_data_set_is_one(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    for stream in (tf.data.Dataset.from_tensor_slices((X, Y)), tf.data.Dataset.from_tensor_slices((X, Y)).batch(6)):
        np.testing.assert_array_equal(spool_stream("x", stream, tmp_path, "val", axes=1)["x_val"], X)


@pytest.mark.keras
@pytest.mark.parametrize("is_generator", [True, False])
def test_a_pipeline_that_repeats_for_ever_is_refused_before_anything_is_written(
    is_generator: bool, tmp_path: Path
) -> None:
    tf = pytest.importorskip("tensorflow")
    stream = tf.data.Dataset.from_tensor_slices((X, Y)).batch(6)
    if is_generator:
        stream = tf.data.Dataset.from_generator(batches, output_types=(tf.float32, tf.int64))
    with pytest.raises(DataError, match=r"never ends: leave out repeat.*n as steps_per_epoch: data.take\(n\)"):
        spool_stream("x", stream.repeat(), tmp_path, "train", axes=1)
    assert list(tmp_path.iterdir()) == []
    assert len(spool_stream("x", stream.repeat().take(8), tmp_path, "train", axes=1)["y_train"]) > 20


def for_ever() -> Iterator[tuple[Any, Any]]:
    while True:
        yield X, Y


@pytest.mark.parametrize(("x", "y"), [(X, Y), (np.zeros((2, 0)), np.zeros((2, 1000)))], ids=["disk", "labels"])
def test_a_generator_without_an_end_is_stopped_before_the_disk_or_the_memory_is_full(
    x: Any, y: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcdl.api.spooled._SHARE", 1e-6)
    with pytest.raises(DataError, match=r"has given \d+ samples.*does not end.*itertools.islice.*TMPDIR"):
        spool_stream("x", ((x, y) for _ in for_ever()), tmp_path, "train", axes=None)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1e-5 * shutil.disk_usage(tmp_path).total


def fails() -> Iterator[Any]:
    yield X, Y
    raise OSError("the disk\nis away")


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (iter([]), "x gives no samples: if it is an iterator that was used"),
        (iter([{"x": X}]), r"x gives a dict, expected pairs \(x, y\), or \(x, y, weights\): .* for an autoencoder"),
        (iter([({"a": X}, Y)]), "x: x is a dict, and the model has one input"),
        (iter([X]), r"x gives a ndarray, expected pairs \(x, y\)"),
        (iter([(X, Y), (X[:, :2], Y)]), "batches must agree"),
        (iter([(X, Y[:3])]), "batches must agree"),
        (iter([(np.array(["a"]), Y[:1])]), "x gives x_train of <U1, expected numbers"),
        (fails(), "x cannot be read .the disk is away.: correct the code that yields its samples"),
    ],
)
def test_a_wrong_stream_is_one_line(stream: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        spool_stream("x", stream, tmp_path, "train", axes=None)


def test_streams_may_have_several_inputs_and_outputs_and_weights(tmp_path: Path) -> None:
    ends = (("a", "b"), ("c", "d"))
    weights = np.arange(20, dtype=np.float32)
    whole = (((X[at : at + 7], X[at : at + 7, :2]), {"d": Y[at : at + 7], "c": Y[at : at + 7]}, weights[at : at + 7])
             for at in range(0, 20, 7))  # fmt: skip
    found = spool_stream("x", whole, tmp_path, "train", 1, ends)
    assert set(found) == {"x_train_a", "x_train_b", "y_train_c", "y_train_d", "weight_train"}
    np.testing.assert_array_equal(found["x_train_b"], X[:, :2])
    np.testing.assert_array_equal(found["weight_train"], weights)
    single = (({"a": x, "b": x}, [int(y), int(y)], 2.0) for x, y in zip(X, Y, strict=True))
    found = spool_stream("x", single, tmp_path, "train", 1, ends)
    np.testing.assert_array_equal(found["x_train_b"], X)
    assert found["weight_train"].tolist() == [2.0] * 20
    with pytest.raises(DataError, match="measures on held-out data have none"):
        spool_stream("validation_data", iter([((X, X), (Y, Y), weights)]), tmp_path, "val", 1, ends)


@pytest.mark.parametrize("value", [X, [1], (X, Y), "name", {"a": X}, None])
def test_what_is_no_stream(value: Any) -> None:
    assert not is_stream(value)
