"""Shard files: made once, reused while they are intact, and never half-written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.full_disk import files_limited_to
from vcdl.data import Dataset, ShardFile, ensure_shards, read_split
from vcdl.data.rows import in_memory
from vcdl.errors import RunFolderError
from vcdl.job.data import DataSettings


def dataset(samples: int = 100) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (samples, 6, 6, 1), np.uint8)
    y = (np.arange(samples) % 5).astype(np.int32)
    return Dataset(x, y, x[:5], y[:5])


def settings(**options: Any) -> DataSettings:
    return DataSettings(**{"dataset": "digits", "shards": 7, **options})


def write_times(shards: tuple[ShardFile, ...]) -> list[int]:
    return [shard.path.stat().st_mtime_ns for shard in shards]


def test_shards_hold_every_sample_once_as_integers(tmp_path: Path) -> None:
    data = dataset()
    shards = ensure_shards(tmp_path, data, settings(), seed=1)
    assert [shard.index for shard in shards] == list(range(7))
    assert [shard.path.name for shard in shards][:2] == ["shard_000.npz", "shard_001.npz"]
    parts = [read_split(shard.path) for shard in shards]
    assert [len(x) for x, _ in parts] == [shard.samples for shard in shards]
    assert all(x.dtype == np.uint8 and y.dtype == np.int32 for x, y in parts)
    together = np.concatenate([x for x, _ in parts])
    assert sorted(sample.tobytes() for sample in together) == sorted(
        sample.tobytes() for sample in in_memory(data.x_train)
    )
    assert all(shard.size_bytes == shard.path.stat().st_size for shard in shards)


def test_the_manifest_says_what_the_files_hold(tmp_path: Path) -> None:
    shards = ensure_shards(tmp_path, dataset(), settings(), seed=1)
    manifest = json.loads((tmp_path / "shards.json").read_text())
    assert manifest["count"] == 7
    assert [entry["samples"] for entry in manifest["shards"]] == [shard.samples for shard in shards]
    assert {path.name for path in tmp_path.iterdir()} == {"shards.json", *(shard.path.name for shard in shards)}


def test_intact_shards_are_reused(tmp_path: Path) -> None:
    first = ensure_shards(tmp_path, dataset(), settings(), seed=1)
    before = write_times(first)
    again = ensure_shards(tmp_path, dataset(), settings(normalise="none"), seed=1)
    assert again == first
    assert write_times(again) == before, "how inputs are normalised is not part of a shard"


@pytest.mark.parametrize("damage", ["cut short", "deleted", "manifest deleted", "manifest cut short"])
def test_damaged_shards_are_made_anew(damage: str, tmp_path: Path) -> None:
    good = [read_split(shard.path) for shard in ensure_shards(tmp_path, dataset(), settings(), seed=1)]
    victim = tmp_path / ("shards.json" if damage.startswith("manifest") else "shard_003.npz")
    if damage.endswith("deleted"):
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:100])
    for shard, (x, y) in zip(ensure_shards(tmp_path, dataset(), settings(), seed=1), good, strict=True):
        x_again, y_again = read_split(shard.path)
        np.testing.assert_array_equal(x_again, x)
        np.testing.assert_array_equal(y_again, y)


@pytest.mark.parametrize(
    ("options", "seed"), [({"shards": 3}, 1), ({}, 2), ({"split": "dirichlet", "concentration": 0.5}, 1)]
)
def test_other_settings_make_other_shards(options: dict[str, Any], seed: int, tmp_path: Path) -> None:
    ensure_shards(tmp_path, dataset(), settings(), seed=1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    shards = ensure_shards(tmp_path, dataset(), settings(**options), seed=seed)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert all(after[name] != before[name] for name in after)
    assert set(after) == {"shards.json", *(shard.path.name for shard in shards)}, "no shard of the old cut is left"


def test_shards_of_a_run_beside_this_one_leave_none_of_an_older_cut(tmp_path: Path) -> None:
    one, other = (tmp_path / name / "data" / "shards" for name in ("one", "other"))
    shared = ensure_shards(one, dataset(), settings(shards=3), seed=1)
    ensure_shards(other, dataset(), settings(), seed=1)
    again = ensure_shards(other, dataset(), settings(shards=3), seed=1)
    assert all(a.path.samefile(b.path) for a, b in zip(shared, again, strict=True))
    assert {path.name for path in other.iterdir()} == {path.name for path in one.iterdir()}


def test_other_data_make_other_shards(tmp_path: Path) -> None:
    ensure_shards(tmp_path, dataset(100), settings(), seed=1)
    shards = ensure_shards(tmp_path, dataset(105), settings(), seed=1)
    assert sum(shard.samples for shard in shards) == 105


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    with files_limited_to(300), pytest.raises(RunFolderError, match="make room or choose another folder"):
        ensure_shards(folder, dataset(), settings(), seed=1)
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_run_folder_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunFolderError, match="cannot write the shards"):
        ensure_shards(tmp_path / "file" / "shards", dataset(), settings(), seed=1)
