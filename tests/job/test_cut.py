"""Shards and batch size follow the samples and the slots, where the job does not set them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcdl.job import load_frozen_job, load_job, save_job

MODEL = "name: a\nmodel: {builtin: mlp}\n"


def sizes(folder: Path, samples: int, data: str = "", rest: str = "", slots: int = 2, **arrays: int) -> tuple[int, int]:
    """Number of shards and batch size of a job over so many samples."""
    contents: dict[str, Any] = {
        "x_train": np.zeros((samples, 2), np.uint8),
        **{name: np.zeros((n, 2)) for name, n in arrays.items()},
    }
    np.savez_compressed(folder / "d.npz", **contents)
    (folder / "job.yaml").write_text(f"{MODEL}data: {{npz: d.npz, {data}}}\n{rest}")
    job = load_job(folder / "job.yaml", slots=slots)
    save_job(job, folder / "frozen.yaml")
    assert load_frozen_job(folder / "frozen.yaml") == job, "a run keeps what was chosen"
    return job.data.shards, job.training.batch_size


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (3, (1, 1)),
        (10, (1, 2)),
        (140, (1, 16)),
        (640, (1, 16)),
        (1000, (8, 8)),
        (3555, (12, 8)),
        (3556, (12, 16)),
        (90_000, (50, 16)),
    ],
)
def test_they_follow_the_samples_that_are_trained(samples: int, expected: tuple[int, int], tmp_path: Path) -> None:
    assert sizes(tmp_path, samples) == expected


def test_a_validation_set_of_its_own_leaves_all_samples(tmp_path: Path) -> None:
    assert sizes(tmp_path, 640) == (1, 16)
    assert sizes(tmp_path, 640, x_val=10) == (8, 8)


def test_what_is_trained_all_at_once_has_as_many_shards_as_its_epochs_leave_rounds_for(tmp_path: Path) -> None:
    shards = [sizes(tmp_path, 600, rest=f"stop: {{epochs: {epochs}}}")[0] for epochs in (1, 16, 48, 400)]
    assert shards == [1, 1, 2, 8]


def test_what_the_job_sets_stays(tmp_path: Path) -> None:
    assert sizes(tmp_path, 140, "shards: 50") == (50, 1)
    assert sizes(tmp_path, 140, rest="training: {batch_size: 32}") == (1, 32)
    assert sizes(tmp_path, 140, rest="preset: paper") == (50, 32)


@pytest.mark.parametrize(
    ("samples", "epochs", "by_slots"),
    [
        (90_000, 10, {1: (50, 16), 7: (50, 16), 8: (52, 16), 10: (80, 16), 20: (200, 16), 40: (400, 8), 80: (400, 8)}),
        (90_000, 40, {10: (50, 16), 20: (80, 16), 40: (320, 16)}),
        (9000, 10, {3: (31, 16), 4: (31, 8), 5: (50, 8)}),
        (3000, 10, {2: (10, 8), 5: (50, 8), 8: (52, 8), 10: (80, 8), 40: (168, 8)}),
        (1000, 10, {2: (8, 8), 5: (28, 8), 10: (56, 8)}),
        (600, 10, {2: (1, 16), 10: (1, 16), 40: (1, 16)}),
    ],
)
def test_more_slots_have_more_shards_of_at_least_two_batches_and_smaller_ones_where_steps_are_few(
    samples: int, epochs: int, by_slots: dict[int, tuple[int, int]], tmp_path: Path
) -> None:
    rest = f"stop: {{epochs: {epochs}}}"
    assert {slots: sizes(tmp_path, samples, rest=rest, slots=slots) for slots in by_slots} == by_slots


def test_shards_that_the_job_sets_do_not_follow_the_slots(tmp_path: Path) -> None:
    assert sizes(tmp_path, 90_000, "shards: 40", slots=20) == (40, 16)


def test_a_published_set_is_cut_by_its_size(tmp_path: Path) -> None:
    for name, expected in (("digits", (8, 8)), ("fashion-mnist", (50, 16))):
        (tmp_path / "job.yaml").write_text(f"{MODEL}data: {{dataset: {name}}}\n")
        job = load_job(tmp_path / "job.yaml", slots=2)
        assert (job.data.shards, job.training.batch_size) == expected


def test_a_file_that_cannot_be_read_has_the_usual_ones(tmp_path: Path) -> None:
    (tmp_path / "d.npz").write_bytes(b"no data")
    (tmp_path / "job.yaml").write_text(f"{MODEL}data: {{npz: d.npz}}\n")
    job = load_job(tmp_path / "job.yaml", slots=10)
    assert (job.data.shards, job.training.batch_size) == (50, 16)


def test_shards_that_the_job_names_keep_the_batches_that_it_would_get(tmp_path: Path) -> None:
    """A user who follows `vcdl check`, which names a number of shards, must not get other batches by it."""
    rest = "stop: {epochs: 10}"
    assert sizes(tmp_path, 1000, rest=rest, slots=10) == (56, 8)
    assert sizes(tmp_path, 1000, "shards: 56", rest, slots=10) == (56, 8)
    assert sizes(tmp_path, 1000, "shards: 10", rest, slots=10) == (10, 8)
    assert sizes(tmp_path, 1000, "shards: 5", rest, slots=2) == (5, 8)


def test_a_shard_holds_the_batches_of_a_step(tmp_path: Path) -> None:
    training = "training: {optimizer: {name: adam, gradient_accumulation_steps: 4}}\nstop: {epochs: 10}"
    shards, batch_size = sizes(tmp_path, 1111, rest=training, slots=10)
    assert 1000 // shards >= 4 * batch_size


def test_several_passes_are_steps_too(tmp_path: Path) -> None:
    rest = "stop: {epochs: 10}\ntraining: {local_epochs: 10}"
    assert sizes(tmp_path, 9000, rest=rest, slots=10)[1] == 16
    assert sizes(tmp_path, 9000, rest=rest.replace("epochs: 10}", "epochs: 1}", 1), slots=40)[1] == 8


def test_a_tiny_set_that_is_to_be_split_unevenly_is_split(tmp_path: Path) -> None:
    assert sizes(tmp_path, 300, "split: dirichlet", "stop: {epochs: 10}") == (2, 16)
