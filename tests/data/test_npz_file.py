"""A user's data set in a .npz file, and every way it can be wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.hostile_npz import HOSTILE, write_hostile
from vcdl.data import facts_of, load_dataset, read_split, write_split
from vcdl.data.labels import Classes
from vcdl.errors import DataError, FileUnavailable
from vcdl.job.data import DataSettings
from vcdl.wire.npz_form import NpzFile


def arrays(samples: int = 40, **changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    good = {"x_train": rng.random((samples, 3), np.float32), "y_train": np.arange(samples) % 4}
    return {**good, **changed}


def settings(tmp_path: Path, contents: dict[str, Any], **options: Any) -> DataSettings:
    path = tmp_path / "data.npz"
    np.savez_compressed(path, **contents)
    return DataSettings(npz=path, **options)


def test_a_good_file_is_read_and_a_tenth_is_kept_for_validation(tmp_path: Path) -> None:
    dataset = load_dataset(settings(tmp_path, arrays()), seed=1)
    assert dataset.x_train.shape == (36, 3)
    assert dataset.x_val.shape == (4, 3)
    assert sorted(dataset.y_val) == [0, 1, 2, 3], "one of each class"
    assert dataset.y_train.dtype == np.int32
    assert dataset.x_test is None
    assert dataset.outputs == 4


def test_an_array_that_needs_more_memory_than_is_free_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 samples of three float32 take 480 bytes, their labels 320."""
    given = settings(tmp_path, arrays())
    monkeypatch.setattr("vcdl.data.npz_file.available_memory_bytes", lambda: 480)
    load_dataset(given, seed=1)
    monkeypatch.setattr("vcdl.data.npz_file.available_memory_bytes", lambda: 479)
    monkeypatch.setattr(NpzFile, "read", lambda _file, name: pytest.fail(f"{name} was read"))
    with pytest.raises(
        DataError, match=r"data\.npz: x_train needs 0\.0 GiB of memory, more than is free: use fewer samples"
    ):
        load_dataset(given, seed=1)


def test_its_own_validation_and_test_sets_are_kept(tmp_path: Path) -> None:
    extra: dict[str, Any] = {
        "x_val": np.ones((5, 3), np.float32),
        "y_val": np.zeros(5, int),
        "x_test": np.ones((6, 3)),
        "y_test": np.full(6, 7),
    }
    data = settings(tmp_path, arrays(**extra), classes=8)
    dataset = load_dataset(data, seed=1)
    assert len(dataset.x_train) == 40
    assert len(dataset.x_val) == 5
    assert dataset.x_test is not None
    assert len(dataset.x_test) == 6
    assert dataset.outputs == 8
    facts = facts_of(data)
    assert (facts.train_samples, facts.val_samples, facts.test_samples, facts.outputs) == (40, 5, 6, 8)


def test_integer_images_stay_integers(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 5, 5), np.uint8)
    assert load_dataset(settings(tmp_path, arrays(x_train=images)), seed=1).x_train.dtype == np.uint8


def test_a_regression_has_float_targets(tmp_path: Path) -> None:
    y = np.linspace(-1, 1, 80).reshape(40, 2)
    dataset = load_dataset(settings(tmp_path, arrays(y_train=y), task="regression"), seed=1)
    assert dataset.y_train.dtype == np.float32
    assert dataset.outputs == 2


def test_labels_in_a_column_are_taken_as_labels(tmp_path: Path) -> None:
    data = settings(tmp_path, arrays(y_train=(np.arange(40) % 4).reshape(-1, 1)))
    assert load_dataset(data, seed=1).y_train.shape == (36,)


def test_text_labels_keep_their_names(tmp_path: Path) -> None:
    data = settings(tmp_path, arrays(y_train=np.array(["no", "yes"] * 20)))
    dataset, facts = load_dataset(data, seed=1), facts_of(data)
    assert (dataset.classes, dataset.outputs) == (Classes(2, ("no", "yes")), facts.outputs)
    assert set(dataset.y_train) == {0, 1}


def test_facts_agree_with_what_is_loaded(tmp_path: Path) -> None:
    data = settings(tmp_path, arrays(), validation=7)
    dataset, facts = load_dataset(data, seed=1), facts_of(data)
    assert facts.input_shape == dataset.input_shape
    assert facts.outputs == dataset.outputs
    assert facts.train_samples == len(dataset.x_train)
    assert facts.val_samples == len(dataset.x_val) == 7
    assert facts.sample_bytes == dataset.sample_bytes + dataset.y_train[:1].nbytes


nan = np.full((40, 3), 0.5)
nan[3, 1], nan[5, 2] = np.nan, np.inf

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nan in x": (arrays(x_train=nan), "x_train holds 2 numbers that are NaN or infinite"),
    "lengths differ": (arrays(y_train=np.zeros(39, int)), "x_train has 40 samples and y_train 39"),
    "negative label": (arrays(y_train=np.arange(40) - 1), "negative label -1"),
    "fractional label": (arrays(y_train=np.linspace(0, 1, 40)), "not whole numbers"),
    "nan label": (arrays(y_train=np.full(40, np.nan)), "y_train holds 40 numbers that are NaN"),
    "one-hot labels": (arrays(y_train=np.eye(40)), "argmax"),
    "text": (arrays(x_train=np.full((40, 3), "a")), "expected numbers"),
    "no samples": (arrays(0), "x_train is empty"),
    "flat x": (arrays(x_train=np.zeros(40)), "one row for each sample"),
    "a huge label": (arrays(y_train=np.full(40, 2**40)), "labels are 0, 1"),
    "no y": ({"x_train": np.zeros((4, 3)), "labels": np.zeros(4)}, "has no y_train: it holds labels, x_train"),
    "x_val alone": (arrays(x_val=np.zeros((4, 3))), "has no y_val"),
    "shapes differ": (arrays(x_test=np.zeros((4, 2)), y_test=np.zeros(4, int)), "they must agree"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_data_are_refused_with_the_reason(case: str, tmp_path: Path) -> None:
    contents, reason = WRONG[case]
    with pytest.raises(DataError) as caught:
        load_dataset(settings(tmp_path, contents), seed=1)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", ["x_train", "y_train"])
def test_files_that_numpy_does_not_write_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "data.npz"
    write_hostile(path, arrays(), name, kind)
    data = DataSettings(npz=path)
    for read in (lambda: load_dataset(data, seed=1), lambda: facts_of(data)):
        with pytest.raises(DataError) as refused:
            read()
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("largest", [1e300, -1e39, 3.5e38])
@pytest.mark.parametrize("name", ["x_train", "y_train"])
def test_numbers_beyond_float32_are_refused_where_they_would_become_infinite(
    tmp_path: Path, name: str, largest: float
) -> None:
    wrong = np.linspace(0, 1, 40).reshape(40, 1) * largest
    contents = {**arrays(y_train=np.linspace(0, 1, 40)), name: wrong}
    data = settings(tmp_path, contents, task="regression")
    with pytest.raises(
        DataError, match=f"{name} holds numbers beyond ±3.4e\\+38, which float32 cannot hold: scale them"
    ):
        load_dataset(data, seed=1)


def test_the_largest_float32_is_taken(tmp_path: Path) -> None:
    y = np.linspace(-1, 1, 40) * float(np.finfo(np.float32).max)
    assert np.isfinite(load_dataset(settings(tmp_path, arrays(y_train=y), task="regression"), seed=1).y_train).all()


@pytest.mark.parametrize("changed", [{"x_train": np.zeros((40, 0))}, {"y_train": np.zeros((40, 0))}])
def test_samples_of_no_numbers_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    data = settings(tmp_path, arrays(**changed), task="regression")
    for read in (lambda: load_dataset(data, seed=1), lambda: facts_of(data)):
        with pytest.raises(DataError, match=r"is empty: it has shape \(40, 0\)"):
            read()


def test_an_autoencoders_samples_without_number_take_no_memory(tmp_path: Path) -> None:
    """A header may name 10^18 samples of nothing."""
    many = np.broadcast_to(np.float32(0), (10**12, 0))
    with pytest.raises(DataError, match="x_val"):
        load_dataset(settings(tmp_path, {"x_train": arrays()["x_train"], "x_val": many}, task="autoencoder"), seed=1)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    data = settings(tmp_path, {"x_train": np.array([{"a": 1}] * 4, object), "y_train": np.zeros(4)})
    with pytest.raises(DataError, match="x_train holds Python objects"):
        load_dataset(data, seed=1)


def test_a_file_with_flipped_bytes_is_refused(tmp_path: Path) -> None:
    data = settings(tmp_path, arrays(4000))
    path = tmp_path / "data.npz"
    content = bytearray(path.read_bytes())
    content[5000:5050] = bytes(50)
    path.write_bytes(content)
    with pytest.raises(DataError, match="x_train cannot be read"):
        load_dataset(data, seed=1)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_dataset(DataSettings(npz=tmp_path / "none.npz"), seed=1)


def test_a_file_that_this_machine_cannot_read_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    path.symlink_to("/proc/self/mem")  # nothing is at address 0: reading there is EIO
    data = DataSettings(npz=path)
    for read in (lambda: load_dataset(data, seed=1), lambda: facts_of(data), lambda: read_split(path)):
        with pytest.raises(FileUnavailable) as caught:
            read()
        assert str(caught.value).startswith(f"{path} is there, but this machine cannot read it (Input/output error): ")
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match=r"not a whole \.npz file"):
        read_split(path)


def test_validation_must_leave_something_to_train_on(tmp_path: Path) -> None:
    data = settings(tmp_path, arrays(), validation=40)
    for read in (lambda: load_dataset(data, seed=1), lambda: facts_of(data)):
        with pytest.raises(DataError, match="none is left"):
            read()


def test_a_split_is_read_as_it_was_written(tmp_path: Path) -> None:
    x, y = np.arange(24, dtype=np.uint8).reshape(4, 2, 3), np.arange(4, dtype=np.int32)
    write_split(tmp_path / "val.npz", x, y)
    x_read, y_read = read_split(tmp_path / "val.npz")
    assert x_read.dtype == np.uint8
    np.testing.assert_array_equal(x_read, x)
    np.testing.assert_array_equal(y_read, y)
    assert [path.name for path in tmp_path.iterdir()] == ["val.npz"], "no temporary file is left"


def test_a_split_whose_arrays_do_not_belong_together_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "bad.npz", x=np.zeros((3, 2)), y=np.zeros(4))
    with pytest.raises(DataError, match="damaged"):
        read_split(tmp_path / "bad.npz")
