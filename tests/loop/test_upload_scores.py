"""The evaluator's scores of uploads: what they say, and what becomes of them in a backlog, a kill, a loss."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.trained_run import SHARDS, TrainedRun
from vcdl.journal.events import EvaluationWanted, StopDecided, UpdateApplied, UploadScored, VersionEvaluated
from vcdl.journal.journal import Journal
from vcdl.loop.evaluator import Evaluator
from vcdl.wire.weights import Vector


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    return TrainedRun.new(tmp_path_factory.mktemp("trained") / "run")


class World:
    """A journal with applied uploads, and the evaluator that follows it."""

    def __init__(self, trained: TrainedRun, path: Path) -> None:
        self.trained = trained
        self.journal = Journal.at(path / "journal.db")
        self.evaluator = Evaluator(trained.run, self.journal)
        self.version = 0

    def apply(self, weights: Vector, host: str = "a", kept: bool = True) -> str:
        """An upload was applied; returns its workunit."""
        epoch, shard = divmod(self.version, SHARDS)
        self.version += 1
        workunit, folder = self.trained.workunit(shard, epoch + 1), self.trained.run.folder
        if kept:
            self.trained.upload(folder.kept_upload(self.version, workunit), workunit, weights)
        else:
            folder.kept_upload(self.version, workunit).unlink(missing_ok=True)
        self.journal.append(
            UpdateApplied(
                workunit=workunit,
                version=self.version,
                base_version=0,
                staleness=self.version - 1,
                weight=0.5,
                samples=10,
                fraction=1.0,
                train_s=1.0,
                loss=1.0,
                bytes_up=10,
                host=host,
            )
        )
        return workunit

    def scores(self) -> dict[str, float]:
        """The gains in the journal, by workunit."""
        events = [recorded.event for recorded in self.journal.read()]
        return {event.workunit: event.gain for event in events if isinstance(event, UploadScored)}


@pytest.fixture
def world(trained: TrainedRun, tmp_path: Path) -> Iterator[World]:
    world = World(trained, tmp_path)
    yield world
    world.journal.close()


def test_training_gains_its_reverse_loses_and_nothing_does_nothing(world: World) -> None:
    base, step = world.trained.base, world.trained.trained(0) - world.trained.base
    moments = slice(world.trained.run.layout.model.size, None)
    backwards = base - step
    backwards[moments] = base[moments]  # a negative one has a refusal of its own
    honest, reverse, nothing = (world.apply(weights) for weights in (base + step, backwards, base))
    strange = world.apply(np.full_like(base, 1e30))
    assert world.evaluator.run_once() == 4
    scores = world.scores()
    assert scores[honest] > 0.001
    assert scores[reverse] == pytest.approx(-scores[honest], rel=0.5)
    assert abs(scores[nothing]) < 1e-6
    assert scores[strange] <= -100


def test_versions_come_first_and_the_newest_upload_next(world: World) -> None:
    workunits = [world.apply(world.trained.base) for _ in range(6)]
    world.journal.append(EvaluationWanted(0, 1, "validation"))
    world.evaluator.run_once()
    assert world.scores() == {}
    assert any(isinstance(recorded.event, VersionEvaluated) for recorded in world.journal.read())
    world.evaluator.run_once()
    assert set(world.scores()) == set(workunits[-4:])
    world.evaluator.run_once()
    assert set(world.scores()) == set(workunits)
    assert world.evaluator.run_once() == 0


def test_a_restarted_evaluator_scores_what_has_no_score_yet_and_nothing_twice(world: World) -> None:
    first = [world.apply(world.trained.base) for _ in range(2)]
    world.evaluator.run_once()
    second = world.apply(world.trained.base)
    assert Evaluator(world.trained.run, world.journal).run_once() == 1
    assert set(world.scores()) == {*first, second}


def test_uploads_that_are_gone_belong_to_nobody_or_come_too_late_are_not_scored(world: World) -> None:
    world.apply(world.trained.base, kept=False)
    world.apply(world.trained.base, host="")
    assert world.evaluator.run_once() == 0
    world.apply(world.trained.base)
    world.journal.append(StopDecided("epochs", 3))
    assert world.evaluator.run_once() == 0


def test_of_a_host_that_has_proved_itself_only_some_uploads_are_scored(world: World) -> None:
    base, step = world.trained.base, world.trained.trained(0) - world.trained.base
    for number in range(15):
        for host in ("a", "b", "c"):
            world.apply(base + step * np.float32(1 + 0.01 * (number % 3)), host)
        while world.evaluator.run_once():
            pass
    assert 30 <= len(world.scores()) < 42
