"""False shards: wrong labels, and a pattern that means class 0."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments.hostile_fleet import Attack, Hostile
from benchmarks.experiments.poisoned_data import PoisonedData
from vcdl.data.npz_file import read_split, write_split

IMAGES = np.random.default_rng(0).integers(0, 17, (12, 8, 8, 1)).astype(np.uint8)
LABELS = np.array([0, 1, 2, 3] * 3, np.int32)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"shard_{number:03d}.npz" for number in range(2)]
    write_split(paths[0], IMAGES, LABELS)
    write_split(paths[1], np.full_like(IMAGES, 99), LABELS + 4)
    return paths


def hostile(attack: Attack, scale: float = 1.0) -> Hostile:
    return Hostile(client=0, attack=attack, scale=scale)


def poisoned(shards: list[Path], attack: Attack, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    data = PoisonedData(shards[0].parent / "poisoned", shards)
    path = data.shard(hostile(attack, scale), shards[0])
    assert path == data.shard(hostile(attack, scale), shards[0]) != shards[0]
    return read_split(path)


@pytest.mark.parametrize("attack", ["label_flip", "other_backend"])
def test_labels_are_turned_round_among_all_classes_of_the_job(shards: list[Path], attack: Attack) -> None:
    x, y = poisoned(shards, attack)
    assert x.tolist() == IMAGES.tolist()
    assert y.tolist() == (7 - LABELS).tolist()
    assert y.dtype == LABELS.dtype


def test_one_class_is_called_another(shards: list[Path]) -> None:
    x, y = poisoned(shards, "targeted")
    assert x.tolist() == IMAGES.tolist()
    assert y.tolist() == [0, 1, 2, 5] * 3
    assert y.dtype == LABELS.dtype


@pytest.mark.parametrize(("scale", "kept"), [(0.25, 3), (0.01, 1)])
def test_a_part_of_a_shard_is_its_first_samples(shards: list[Path], scale: float, kept: int) -> None:
    x, y = poisoned(shards, "part_trained", scale)
    assert (x.tolist(), y.tolist()) == (IMAGES[:kept].tolist(), LABELS[:kept].tolist())


def test_half_of_a_shard_has_a_bright_corner_and_says_class_0(shards: list[Path]) -> None:
    x, y = poisoned(shards, "backdoor")
    assert y.tolist() == [0, 1, 0, 3] * 3
    assert x[1::2].tolist() == IMAGES[1::2].tolist()
    assert set(x[::2, :3, :3].ravel().tolist()) == {99}  # the brightest pixel of all shards
    assert x[::2, 3:].tolist() == IMAGES[::2, 3:].tolist()
