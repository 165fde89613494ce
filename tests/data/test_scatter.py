"""A cut of what is not in memory: the samples of the cut in memory, whatever kills it on its way."""

import os
import signal
import tracemalloc
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.full_disk import disk_of, fill
from vcdl.data import Dataset, ensure_files, load_dataset, read_split
from vcdl.data import scatter as scatter_module
from vcdl.data.growing_npz import GrowingNpz
from vcdl.data.readers import arrays
from vcdl.data.rows import Rows
from vcdl.data.samples import MappedSamples, read_samples
from vcdl.data.scatter import Target, scatter
from vcdl.errors import DataError, RunFolderFull
from vcdl.job.data import DataSettings
from vcdl.models.meter import KerasMeter, meter_of
from vcdl.run.folder import RunFolder
from vcdl.wire.workunit import Normalisation

SAMPLES = 3000


def numbers() -> dict[str, Any]:
    """Sorted by class; each sample can be told from all others."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SAMPLES, 40)).astype(np.float32)
    return {"x_train": x, "y_train": np.arange(SAMPLES) * 5 // SAMPLES, "x_test": x[::7], "y_test": np.arange(429) % 5}


def settings(folder: Path, **keys: Any) -> DataSettings:
    found = numbers()
    (folder / "set").mkdir(exist_ok=True)
    for name, array in found.items():
        np.save(folder / "set" / f"{name}.npy", array)
    return DataSettings.model_validate({"from": "set", "shards": 7, **keys}, context=folder)


def cut(folder: Path, name: str, data: Dataset, how: DataSettings) -> dict[str, Any]:
    """All files of a run's data, each with its samples in the order of their first number."""
    run = RunFolder(folder / name)
    ensure_files(run, data, how, seed=1)
    files = [run.validation_file, run.test_file, *sorted(run.shards.glob("*.npz"))]
    found = {}
    for file in files:
        x, y = read_split(file)
        order = np.argsort(x[:, 0])
        found[file.name] = (x[order], y[order])
    assert {file.name for file in run.shards.iterdir()} - {file.name for file in files} == {"shards.json"}
    return found


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return list(found) == list(expected) and all(
        np.array_equal(a, b) for name in found for a, b in zip(found[name], expected[name], strict=True)
    )


def test_a_sorted_source_is_cut_as_evenly_as_a_shuffled_one(tmp_path: Path) -> None:
    how = settings(tmp_path)
    found = cut(tmp_path, "run", load_dataset(how, 1), how)
    shards = [part for name, part in found.items() if name.startswith("shard")]
    counts = np.array([np.bincount(y, minlength=5) for _, y in shards])
    assert np.ptp(counts, axis=0).max() <= 1, "each class is spread over all shards"
    train = np.concatenate([x for x, _ in (*shards, found["validation.npz"])])
    assert np.array_equal(np.sort(train[:, 0]), np.sort(numbers()["x_train"][:, 0])), "each sample is somewhere once"
    by_first = dict(zip(numbers()["x_train"][:, 0], numbers()["y_train"], strict=True))
    assert all(by_first[x[0]] == label for part, y in shards for x, label in zip(part, y, strict=True))
    np.testing.assert_array_equal(np.sort(found["test.npz"][0][:, 0]), np.sort(numbers()["x_test"][:, 0]))


@pytest.mark.process
def killed_at(step: int) -> None:
    """Have this process killed before or after a step of its cut."""
    left = iter(range(step))

    def burn() -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    def fused(function: Any) -> Any:
        def called(*arguments: Any) -> Any:
            burn()
            result = function(*arguments)
            burn()
            return result

        return called

    for owner, names in ((scatter_module._Writer, ("save", "_write", "_sync")), (GrowingNpz, ("append", "sync"))):
        for name in names:
            setattr(owner, name, fused(getattr(owner, name)))


@pytest.mark.process
def test_a_cut_that_is_killed_at_any_point_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = settings(tmp_path)
    monkeypatch.setattr("vcdl.data.readers.arrays._BLOCK_BYTES", 2000)
    monkeypatch.setattr(scatter_module, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(scatter_module, "_BUFFER_BYTES", 10_000)
    data = load_dataset(how, 1)
    expected = cut(tmp_path, "whole", data, how)
    run, kills, rng = RunFolder(tmp_path / "alone" / "killed"), 0, np.random.default_rng(1)
    while kills < 200:
        child = os.fork()
        if not child:
            try:
                killed_at(int(rng.integers(3, 60)))
                ensure_files(run, data, how, seed=1)
                os._exit(0)
            finally:
                os._exit(1)
        rng.integers(3, 60)  # the child's
        if os.waitpid(child, 0)[1] == 0:
            break
        kills += 1
    assert kills > 2
    assert same(cut(tmp_path / "alone", "killed", data, how), expected)


def pieces(rows: Rows, reads: list[int], breaks_at: int | None = None) -> Rows:
    """The same samples in blocks of 100, which note where reading began, and end too early."""

    def read(begin: int) -> Iterator[Any]:
        reads.append(begin)
        x = np.concatenate(list(rows.read(begin)))
        for first in range(0, len(x), 100):
            if breaks_at is not None and begin + first >= breaks_at:
                return
            yield x[first : first + 100]

    return replace(rows, read=read)


def test_it_goes_on_at_the_last_place_on_the_disk_and_notices_another_source(tmp_path: Path) -> None:
    train = load_dataset(settings(tmp_path), 1).x_train
    assert isinstance(train, Rows)
    source = replace(train, chosen=None)
    reads: list[int] = []
    places = np.arange(SAMPLES)
    targets = [Target(tmp_path / f"{part}.npz", places[part::2], places[part::2]) for part in range(2)]
    state = tmp_path / "cut.json"
    with pytest.raises(DataError, match="has changed while it was cut"):
        scatter(pieces(source, reads, breaks_at=1500), targets, state, "a", save_every_s=0.0)
    with (tmp_path / "0.part").open("ab") as file:
        file.write(b"what a killed process left")
    scatter(pieces(source, reads), targets, state, "a")
    assert reads == [0, 1500]
    x = np.concatenate(list(source.source_blocks()))
    np.testing.assert_array_equal(np.load(tmp_path / "0.npz")["x"], x[::2])
    np.testing.assert_array_equal(np.load(tmp_path / "1.npz")["y"], places[1::2])
    scatter(pieces(source, reads), targets, state, "another job")
    assert reads == [0, 1500, 0]


def test_what_was_cut_is_not_read_again(tmp_path: Path) -> None:
    how = settings(tmp_path)
    data = load_dataset(how, 1)
    expected = cut(tmp_path, "run", data, how)
    for file in (tmp_path / "set").iterdir():
        file.unlink()
    assert same(cut(tmp_path, "run", data, how), expected)


def test_two_jobs_on_one_set_share_their_files(tmp_path: Path) -> None:
    how = settings(tmp_path)
    data = load_dataset(how, 1)
    expected = cut(tmp_path, "one", data, how)
    assert same(cut(tmp_path, "two", data, how), expected)
    one, two = RunFolder(tmp_path / "one"), RunFolder(tmp_path / "two")
    for path in (one.shard(0), one.shard(6), one.validation_file, one.test_file):
        assert path.samefile(two.path / path.relative_to(one.path))
    other = load_dataset(how, 2)
    ensure_files(RunFolder(tmp_path / "three"), other, how, seed=2)
    assert not one.shard(0).samefile(RunFolder(tmp_path / "three").shard(0))


@pytest.mark.parametrize("task", ["classification", "autoencoder"])
def test_the_memory_of_a_cut_does_not_grow_with_its_source(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, columns = 5000, 1000
    x = np.lib.format.open_memmap(tmp_path / "x_train.npy", mode="w+", dtype=np.float32, shape=(rows, columns))
    x[:] = np.arange(rows, dtype=np.float32)[:, None]
    np.save(tmp_path / "y_train.npy", np.arange(rows) % 4)
    monkeypatch.setattr(arrays, "_BLOCK_BYTES", 2**17)
    monkeypatch.setattr(scatter_module, "_BUFFER_BYTES", 2**19)
    how = DataSettings.model_validate({"from": str(tmp_path), "task": task, "shards": 5}, context=tmp_path)
    tracemalloc.start()
    try:
        data = load_dataset(how, 1)
        ensure_files(RunFolder(tmp_path / "run"), data, how, 1)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert data.memory_bytes < peak_bytes < x.nbytes / 5


def test_two_cuts_give_the_same_bytes(tmp_path: Path) -> None:
    """So shards of two jobs have one name at a BOINC project, wherever and whenever they were cut."""
    how = settings(tmp_path)
    data = load_dataset(how, 1)
    runs = [RunFolder(tmp_path / name / "run") for name in ("here", "there")]
    for run in runs:
        ensure_files(run, data, how, seed=1)
    one, two = (run.shard(3) for run in runs)
    assert not one.samefile(two)
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert {member.date_time[0] for member in archive.infolist()} == {1980}


def test_held_out_samples_are_read_when_they_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = settings(tmp_path)
    cut(tmp_path, "run", load_dataset(how, 1), how)
    file, twice = RunFolder(tmp_path / "run").test_file, Normalisation((2.0,), (1.0,))
    whole = read_samples(file, twice)
    monkeypatch.setattr("vcdl.data.samples._IN_MEMORY_BYTES", 0)
    mapped = read_samples(file, twice)
    assert isinstance(mapped.x, MappedSamples)
    np.testing.assert_array_equal(mapped.take(np.arange(3, 90, 2)).x, whole.x[3:90:2])
    np.testing.assert_array_equal(mapped.load(5)[0], whole.x[:5])
    with file.open("r+b") as damaged:
        damaged.truncate(1000)
    with pytest.raises(DataError, match=r"is not a whole \.npz file"):
        read_samples(file, twice)


@pytest.mark.keras
@pytest.mark.parametrize("kind", [KerasMeter, meter_of])
def test_samples_in_a_file_measure_as_those_in_memory(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import keras

    how = settings(tmp_path)
    cut(tmp_path, "run", load_dataset(how, 1), how)
    file = RunFolder(tmp_path / "run").test_file
    model = keras.Sequential([keras.Input((40,)), keras.layers.Dense(5, activation="softmax")])
    model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    whole = read_samples(file, Normalisation())
    expected = kind(model).measure(whole.x, whole.y, None, 100)
    monkeypatch.setattr("vcdl.data.samples._IN_MEMORY_BYTES", 0)
    mapped = read_samples(file, Normalisation())
    found = kind(model).measure(mapped.x, mapped.y, None, 100)
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {name: float(value) for name, value in expected.items()}, rel=1e-6
    )


@pytest.mark.process
def test_a_disk_that_fills_is_one_line_and_the_cut_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = settings(tmp_path)
    monkeypatch.setattr("vcdl.data.readers.arrays._BLOCK_BYTES", 2000)
    monkeypatch.setattr(scatter_module, "_BUFFER_BYTES", 10_000)
    data = load_dataset(how, 1)
    expected = cut(tmp_path, "whole", data, how)
    with disk_of(2 << 20, tmp_path / "disk") as disk:
        filler = fill(disk, but_for_bytes=300_000)
        with pytest.raises(RunFolderFull, match="No space left on device; free some space"):
            ensure_files(RunFolder(disk / "runs" / "run"), data, how, seed=1)
        filler.unlink()
        assert same(cut(disk / "runs", "run", data, how), expected)
