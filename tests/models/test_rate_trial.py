"""How far a short job may raise its rate is tried once, and only where the job leaves it open."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.memory_grid import MemoryGrid
from vcdl.job import Job, save_job
from vcdl.job.lr_schedule import USUAL_BOOST, RateTrial
from vcdl.journal.observer import RunObserver
from vcdl.loop.loop import Loop
from vcdl.loop.preparation import prepare
from vcdl.models.footprint import Footprint
from vcdl.models.rate_trial import find_boost, trial_lengths
from vcdl.report.summary import summary_of
from vcdl.run.folder import RunFolder
from vcdl.run.reading import read_report
from vcdl.run.run import Run
from vcdl.wire.weights import read_weights

SMALL = Footprint(flops_per_sample=1e4, bytes_per_sample=1e3, parameters=100)


def job(**training: Any) -> Job:
    return Job.model_validate(
        {
            "name": "tried",
            "model": {"builtin": {"name": "mlp", "units": [32]}},
            "data": {"dataset": "digits", "shards": 10},
            "training": training,
            "stop": {"epochs": 2},
        }
    )


def prepared(folder: Path, tried: Job) -> Run:
    run_folder = RunFolder(folder)
    run_folder.create()
    save_job(tried, run_folder.job_file)
    prepare(run_folder, tried, RunObserver())
    return Run.open(run_folder)


@pytest.mark.keras
def test_a_small_job_finds_the_same_higher_rate_each_time(tmp_path: Path) -> None:
    first, second = prepared(tmp_path / "a", job()), prepared(tmp_path / "b", job())
    boost = first.prepared.short_job_boost
    assert boost > USUAL_BOOST
    assert first.prepared.rate_trial is RateTrial.CHOSE
    assert first.subtask_rate.at(0, first.job.subtasks) == boost, "a short job takes all of it"
    assert second.prepared.short_job_boost == boost


@pytest.mark.keras
def test_a_rate_at_which_everything_diverges_is_not_raised(tmp_path: Path) -> None:
    run = prepared(tmp_path / "run", job(learning_rate={"peak": 1e30, "short_job_boost": "auto"}))
    assert run.prepared.short_job_boost == 1.0


@pytest.mark.sampled(2)
@pytest.mark.keras
@pytest.mark.parametrize(
    ("lengths", "learnt_at_last", "factor"),
    [
        ([60], {1.0: 0.2}, USUAL_BOOST),
        ([60, 120, 240, 480], {}, USUAL_BOOST),
        ([60, 120, 240, 480], {1.0: 0.2, USUAL_BOOST: 0.2}, USUAL_BOOST),
        ([60, 120, 240, 480], {1.0: 0.2}, 1.0),
    ],
)
def test_a_plateau_takes_the_usual_rate_unless_only_the_lowest_one_leaves_it(
    tmp_path: Path, lengths: list[int], learnt_at_last: dict[float, float], factor: float
) -> None:
    """Hands of cards ended 3 to 15 points lower with the lowest rate, noisy stripes at a constant answer with the usual
    one.
    """
    run = prepared(tmp_path / "run", job())
    begin = read_weights(run.folder.snapshot(0), run.layout.size)[0]

    class Plateau:
        def begin(self, begin: Any, seed: int, rate: float, steps: int) -> None:
            self.last = learnt_at_last.get(round(rate / job().training.peak_rate, 6), 1.0) if steps > 480 else 1.0

        def steps(self, x: Any, y: Any, order: Any, batch_size: int, weights: Any = None) -> Any:
            return np.linspace(2.0, self.last, len(order) // batch_size)  # labels exchanged bring it as far

    found = find_boost(Plateau(), job().training, begin, run.shard_files, run.prepared.normalisation, 3, lengths)  # type: ignore[arg-type]
    assert found == (factor, RateTrial.UNDECIDED)


@pytest.mark.keras
def test_where_no_rate_learns_anything_chance_does_not_choose_one(tmp_path: Path) -> None:
    run = prepared(tmp_path / "run", job(learning_rate={"peak": 1e-9, "short_job_boost": "auto"}))
    assert run.prepared.short_job_boost == USUAL_BOOST


@pytest.mark.keras
def test_a_trial_that_has_hardly_begun_is_not_believed(tmp_path: Path) -> None:
    """On this parity no rate has halved its loss after 60 steps; after 480 the better ones have."""
    from vcdl.client.trainer import Trainer

    rng = np.random.default_rng(3)
    signs = rng.integers(0, 2, (1600, 5)) * 2.0 - 1.0
    x = np.concatenate([signs, rng.normal(size=(1600, 6))], axis=1).astype(np.float32)
    y = (signs.prod(axis=1) > 0).astype(np.int64)
    np.savez(tmp_path / "parity.npz", x_train=x[:1200], y_train=y[:1200], x_test=x[1200:], y_test=y[1200:])
    tried = Job.model_validate(
        {
            "name": "tried",
            "model": {"builtin": {"name": "mlp", "units": [64, 32]}},
            "data": {"npz": tmp_path / "parity.npz", "shards": 5, "validation": 100, "normalise": "standardise"},
            "training": {},
            "stop": {"epochs": 1},
        }
    )
    run = prepared(tmp_path / "run", tried)

    shards, begin = run.shard_files, read_weights(run.folder.snapshot(0), run.layout.size)[0]

    def found(*lengths: int) -> tuple[float, RateTrial]:
        trainer = Trainer(run.folder.model_file.read_text(), run.training)
        return find_boost(trainer, tried.training, begin, shards, run.prepared.normalisation, 3, lengths)

    assert found(60) == (USUAL_BOOST, RateTrial.UNDECIDED), "else this problem shows nothing"
    assert found(60, 480) == found(480)
    assert found(480)[1] is RateTrial.CHOSE


@pytest.mark.keras
def test_to_learn_how_common_the_classes_are_is_not_to_learn(tmp_path: Path) -> None:
    """A trial on hands of cards learned no more in its steps, and named a rate by chance, often the lowest of all."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1600, 6)).astype(np.float32)
    rare = (rng.random(1600) < 0.02).astype(np.int64)
    np.savez(tmp_path / "rare.npz", x_train=x[:1200], y_train=rare[:1200], x_test=x[1200:], y_test=rare[1200:])
    data = {"npz": tmp_path / "rare.npz", "shards": 5, "validation": 100}
    run = prepared(tmp_path / "run", Job.model_validate({**job().model_dump(exclude_unset=True), "data": data}))
    assert run.prepared.rate_trial is RateTrial.UNDECIDED
    assert run.prepared.short_job_boost == USUAL_BOOST

    with closing(Loop.of(run, MemoryGrid(tmp_path, run.layout.fingerprint))) as loop:
        loop.begin_session(resumed=False)
    assert summary_of("rare", read_report(run.folder))["rate_trial"] == "undecided"


@pytest.mark.parametrize("rate", [0.003, {"peak": 0.003}, {"peak": 0.003, "short_job_boost": 5.0}])
def test_the_rate_of_a_job_stays_as_it_is(rate: Any) -> None:
    assert not trial_lengths(job(learning_rate=rate).training, [1600] * 5, 2, SMALL)


@pytest.mark.parametrize(
    ("shards", "flops", "lengths"),
    [
        ([1600] * 5, 1e4, (60,)),
        ([6400] * 5, 1e4, (60, 120)),
        ([1600] * 5, 1e8, ()),
        ([1600] * 5, 1.5e7, ()),  # 720 steps of a trial, of 1 000 in the job, which take their time
        ([1600] * 10, 1.5e7, (60,)),
        ([16] * 29, 1e4, ()),
        ([16] * 30, 1e4, (60,)),
    ],
)
def test_trials_are_small_against_the_job_and_the_machine(
    shards: list[int], flops: float, lengths: tuple[int, ...]
) -> None:
    assert trial_lengths(job().training, shards, 2, Footprint(flops, 1e3, 100)) == lengths


def test_of_many_shards_fifty_slots_are_counted_on() -> None:
    """5 000 steps: 100 in a row on fifty slots, and 25 on two hundred."""
    assert trial_lengths(job(batch_size=8).training, [100] * 200, 2, SMALL) == (60,)
    assert trial_lengths(job(batch_size=8).training, [100] * 200, 3, SMALL) == (60, 120)


@pytest.mark.keras
def test_one_order_of_the_samples_decides_nothing(tmp_path: Path) -> None:
    """A rate that is ahead in one order by chance is not taken."""
    run = prepared(tmp_path / "run", job())
    begin = read_weights(run.folder.snapshot(0), run.layout.size)[0]

    class Lucky:
        """A trainer whose losses fall to 0.5, by the usual rate to 0.4 — and by four times that once to 0.3."""

        was_lucky = False
        labels: Any = None

        def begin(self, begin: Any, seed: int, rate: float, steps: int) -> None:
            self.factor = rate / tried.training.peak_rate

        def steps(self, x: Any, y: Any, order: Any, batch_size: int, weights: Any = None) -> Any:
            self.labels = y if self.labels is None else self.labels
            if y is not self.labels:  # those of each batch exchanged
                return np.full(len(order) // batch_size, 2.0)
            is_lucky = self.factor == 4 and not self.was_lucky
            self.was_lucky |= is_lucky
            last = 0.3 if is_lucky else 0.4 if self.factor == 1 else 0.5
            return np.linspace(2.0, last, len(order) // batch_size)

    tried: Any = job()
    found = find_boost(Lucky(), tried.training, begin, run.shard_files, run.prepared.normalisation, 3, [60])  # type: ignore[arg-type]
    assert found == (1.0, RateTrial.CHOSE)
