"""Which uploads show the effect of training, and which are looked at."""

from pathlib import Path

import numpy as np
import pytest

from tests.trained_run import SHARDS, TrainedRun
from vcdl.checks import Refusal
from vcdl.loop.spot_check import SpotCheck
from vcdl.wire.weights import Vector


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    return TrainedRun.new(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="module")
def check(trained: TrainedRun) -> SpotCheck:
    return SpotCheck(trained.run)


def refusal(check: SpotCheck, trained: TrainedRun, path: Path, weights: Vector, shard: int = 0) -> Refusal | None:
    workunit = trained.workunit(shard)
    refused = check.refused(trained.upload(path / "update.h5", workunit, weights), workunit, 0)
    return None if refused is None else refused.refusal


def test_honest_training_shows(check: SpotCheck, trained: TrainedRun, tmp_path: Path) -> None:
    found = [refusal(check, trained, tmp_path, trained.trained(shard), shard) for shard in range(SHARDS)]
    assert found == [None] * SHARDS


def test_what_was_downloaded_is_no_training(check: SpotCheck, trained: TrainedRun, tmp_path: Path) -> None:
    assert refusal(check, trained, tmp_path, trained.base) is Refusal.NO_TRAINING_EFFECT


def test_a_step_in_a_random_direction_is_no_training(check: SpotCheck, trained: TrainedRun, tmp_path: Path) -> None:
    honest = trained.trained(0) - trained.base
    noise = np.random.default_rng(1).standard_normal(honest.size).astype(np.float32)
    noise[trained.run.layout.model.size :] = 0  # moments of another sign have a name of their own
    noise *= np.linalg.norm(honest) / np.linalg.norm(noise)
    assert refusal(check, trained, tmp_path, trained.base + noise) is Refusal.NO_TRAINING_EFFECT


def with_statistics(trained: TrainedRun, weights: Vector, of: Vector | float) -> Vector:
    """The weights with the statistics of others, or with one number for all of them."""
    weights = weights.copy()
    for begin, end in trained.run.layout.model.statistics:
        weights[begin:end] = of if isinstance(of, float) else of[begin:end]
    return weights


def test_only_what_is_trained_shows_whatever_the_statistics_of_batch_normalisation(tmp_path: Path) -> None:
    trained = TrainedRun.new(tmp_path / "run", normalised=True)
    check, base = SpotCheck(trained.run), trained.base
    honest = trained.trained(0)
    assert refusal(check, trained, tmp_path, honest) is None
    assert refusal(check, trained, tmp_path, with_statistics(trained, honest, 1e-3)) is None
    only_statistics = with_statistics(trained, base, honest)
    assert refusal(check, trained, tmp_path, only_statistics) is Refusal.NO_TRAINING_EFFECT


def test_what_cannot_be_read_is_left_to_the_checks_that_name_it(
    check: SpotCheck, trained: TrainedRun, tmp_path: Path
) -> None:
    path = tmp_path / "update.h5"
    path.write_bytes(b"rubbish")
    assert check.refused(path, trained.workunit(0), 0) is None
    assert check.refused(trained.upload(path, "x", trained.base), trained.workunit(0), 7) is None


def test_a_share_of_the_uploads_is_drawn_and_the_first_ones_of_each_host(check: SpotCheck, trained: TrainedRun) -> None:
    workunits = [trained.workunit(shard, epoch) for epoch in range(1, 101) for shard in range(SHARDS)]
    drawn = [workunit for workunit in workunits if check.is_drawn(workunit, 3)]
    assert 0.2 < len(drawn) / len(workunits) < 0.3
    assert drawn == [workunit for workunit in workunits if SpotCheck(trained.run).is_drawn(workunit, 50)]
    assert all(check.is_drawn(workunit, 2) for workunit in workunits)


def test_a_third_attempt_is_believed(check: SpotCheck, trained: TrainedRun) -> None:
    assert [check.is_drawn(trained.workunit(0, attempt=attempt), 0) for attempt in range(3)] == [True, True, False]


def test_a_server_that_has_not_got_the_shard_refuses_nobody(
    tmp_path: Path, trained: TrainedRun, caplog: pytest.LogCaptureFixture
) -> None:
    check = SpotCheck(trained.run)
    workunit = trained.workunit(0)
    upload = trained.upload(tmp_path / "update.h5", workunit, trained.base)
    shard = trained.run.folder.shard(0)
    aside = shard.rename(shard.with_suffix(".aside"))
    try:
        assert check.refused(upload, workunit, 0) is None
        assert not check.is_drawn(workunit, 0)
    finally:
        aside.rename(shard)
    assert [record.message.partition(" (")[0] for record in caplog.records] == [
        "trained: no upload is checked for training's effect"
    ]
