"""Moments travel with the weights: a subtask that begins with another's continues as if it were that one."""

import keras
import numpy as np
import pytest

from tests.client.workunit_folder import with_training, write_workunit
from vcdl.client.batches import pace_of
from vcdl.client.inputs import read_model_json, read_shard
from vcdl.client.trainer import Trainer
from vcdl.errors import JobError
from vcdl.wire.layout import Vector
from vcdl.wire.workunit import Named, SharedOptimizerState, Training

pytestmark = pytest.mark.keras

OPTIMIZERS = [
    Named("adam"), Named("adam", {"amsgrad": True}), Named("adamw"), Named("nadam"), Named("adamax"), Named("lamb"),
    Named("rmsprop", {"momentum": 0.9, "centered": True}), Named("sgd", {"momentum": 0.9}), Named("adagrad"),
    Named("adadelta"), Named("adafactor"), Named("lion"), Named("muon"),
]  # fmt: skip
RATE = 0.01


class Work:
    """The tiny workunit's model, data and trainer."""

    def __init__(self, folder_maker: pytest.TempPathFactory, optimizer: Named, moments: SharedOptimizerState) -> None:
        workunit = with_training(optimizer=optimizer, share_optimizer_state=moments)
        folder = write_workunit(folder_maker.mktemp("work"), workunit, dropout=0.0)
        self.trainer = Trainer(read_model_json(folder), workunit.training)
        self.shard = read_shard(folder, workunit.training.normalisation, self.trainer.input_shapes)
        self.begin: Vector = self.trainer.with_moments(
            np.random.default_rng(1).normal(size=self.trainer.layout.model.size).astype(np.float32) ** 2
        )

    def train(self, vector: Vector, batches: range) -> Vector:
        self.trainer.begin(vector, 1, RATE, len(batches))
        for batch in batches:
            self.trainer.steps(self.shard.x, self.shard.y, np.arange(8 * batch, 8 * batch + 8), 8)
        return self.trainer.finish()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda named: named.name)
def test_two_subtasks_with_all_moments_are_one(optimizer: Named, tmp_path_factory: pytest.TempPathFactory) -> None:
    work = Work(tmp_path_factory, optimizer, "all")
    whole = work.train(work.begin, range(6))
    half = work.train(work.begin, range(3))
    np.testing.assert_array_equal(work.train(half, range(3, 6)), whole)
    assert not np.array_equal(half[work.trainer.layout.model.size :], whole[work.trainer.layout.model.size :])


def plain_trainer(optimizer: Named, moments: SharedOptimizerState = "second_moment") -> Trainer:
    """A trainer of a model without statistics: a step is the same, however its samples are cut."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="only")])
    training = Training(optimizer, RATE, 8, 1, Named("mean_squared_error"), share_optimizer_state=moments)
    return Trainer(model.to_json(), training)


def test_a_step_of_several_batches_is_one_of_a_larger_batch_and_half_a_step_stays() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(20, 3)).astype(np.float32), rng.normal(size=(20, 2)).astype(np.float32)
    ends = {}
    for optimizer, size, samples in [
        (Named("adam", {"gradient_accumulation_steps": 2}), 4, 16),
        (Named("adam", {"gradient_accumulation_steps": 2}), 4, 20),
        (Named("adam"), 8, 16),
    ]:
        trainer = plain_trainer(optimizer)
        vector = trainer.with_moments(np.ones(trainer.layout.model.size, np.float32))
        for _ in range(2):
            trainer.begin(vector, 1, RATE, samples // size)
            trainer.steps(x, y, np.arange(samples), size)
            vector = trainer.finish()
        assert [variable.path for variable in trainer.layout.variables if "gradient" in variable.path] == []
        ends[size, samples] = vector
    count = trainer.layout.model.size
    one, half, other = (np.delete(vector, count) for vector in ends.values())
    np.testing.assert_allclose(one, other, rtol=1e-5)
    np.testing.assert_array_equal(half, one)
    assert [vector[count] for vector in ends.values()] == [8, 9, 4]


@pytest.mark.parametrize(
    ("optimizer", "steps"),
    [
        (Named("adam"), 5),
        (Named("adamax"), 1),
        (Named("muon", {"exclude_layers": ["."], "adam_lr_ratio": 1.0}), 5),  # AdamW trains all of it
    ],
    ids=["adam", "adamax", "muon"],
)
def test_a_subtask_goes_as_far_as_so_many_steps_of_a_long_training(
    optimizer: Named, steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """At a tiny rate the gradient of a batch stays, and each of Adam's steps has the length of the rate."""
    work, rate = Work(tmp_path_factory, optimizer, "second_moment"), 1e-5
    weights = np.ones(work.trainer.layout.model.size, bool)
    for begin, end in work.trainer.layout.model.statistics:
        weights[begin:end] = False

    def trained(vector: Vector, steps: int) -> Vector:
        work.trainer.begin(vector, 1, rate, steps)
        for _ in range(steps):
            work.trainer.steps(work.shard.x, work.shard.y, np.arange(8), 8)
        return work.trainer.finish()

    def usual(way: Vector) -> float:
        return float(np.median(np.abs(way[: weights.size][weights])))

    first = trained(work.begin, 40)
    np.testing.assert_allclose(usual(first - work.begin), 40 * rate, rtol=0.03)
    second = trained(first, steps)
    np.testing.assert_allclose(usual(second - first), steps * rate, rtol=0.03)


@pytest.mark.parametrize("steps", [4, 8, 16])
def test_a_subtask_that_ends_by_time_goes_as_far_as_its_steps_however_few(
    steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nobody knows when it begins how many it will have: at the rate of 40 steps four would go a seventh as far."""
    work, rate = Work(tmp_path_factory, Named("adam"), "second_moment"), 1e-5

    def trained(vector: Vector, steps: int, *, by_time: bool) -> Vector:
        work.trainer.begin(vector, 1, rate, 40)
        for done in range(steps):
            if by_time:
                begin, end = pace_of(done)
                work.trainer.set_learning_rate_for(begin, end - begin)
            work.trainer.steps(work.shard.x, work.shard.y, np.arange(8), 8)
        return work.trainer.finish()

    base = trained(work.begin, 40, by_time=False)
    kernel = slice(work.trainer.layout.model.variables[0].size)
    way = np.median(np.abs(trained(base, steps, by_time=True) - base)[kernel])
    np.testing.assert_allclose(way, steps * rate, rtol=0.03)


@pytest.mark.parametrize(
    ("optimizer", "moments", "factor"),
    [
        (Named("adam"), "second_moment", 5 / (0.1 + 0.19 + 0.271 + 0.3439 + 0.40951)),
        (Named("adam"), "all", 1.0),
        (Named("adam"), "none", 1.0),
        (Named("rmsprop"), "second_moment", 1.0),
        (Named("sgd", {"momentum": 0.9}), "auto", 1.0),
    ],
)
def test_the_rate_makes_up_for_a_first_moment_that_stays(
    optimizer: Named, moments: SharedOptimizerState, factor: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = Work(tmp_path_factory, optimizer, moments)
    late = np.where(np.arange(work.begin.size) == work.trainer.layout.model.size, 1000, work.begin).astype(np.float32)
    trained_by = work.trainer.model.optimizer
    work.trainer.begin(late, 1, RATE, 5)
    assert float(trained_by.learning_rate) == pytest.approx(RATE * factor)
    work.trainer.begin(work.begin, 1, RATE, 5)
    assert float(trained_by.learning_rate) == pytest.approx(RATE)


def test_muons_matrices_keep_the_rate_and_its_adamw_makes_up_for_the_first_moment(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    work = Work(tmp_path_factory, Named("muon"), "second_moment")
    late = np.where(np.arange(work.begin.size) == work.trainer.layout.model.size, 1000, work.begin).astype(np.float32)
    trained_by = work.trainer.model.optimizer
    for begin, factor in ((late, 5 / (0.1 + 0.19 + 0.271 + 0.3439 + 0.40951)), (work.begin, 1.0)):
        work.trainer.begin(begin, 1, RATE, 5)
        assert float(trained_by.learning_rate) == pytest.approx(RATE)
        assert float(trained_by.first_moment_factor) == pytest.approx(factor)


def test_second_moments_are_adam_s_velocities_and_the_count_of_steps(tmp_path_factory: pytest.TempPathFactory) -> None:
    layout = Work(tmp_path_factory, Named("adam"), "second_moment").trainer.layout
    paths = [variable.path for variable in layout.variables if variable not in layout.model.variables]
    assert paths[0].endswith("_iteration")
    assert all(path.endswith("_velocity") for path in paths[1:])
    trained = sum(variable.size for variable in layout.model.variables) - sum(
        end - begin for begin, end in layout.model.statistics
    )
    assert layout.size == layout.model.size + 1 + trained
    assert layout.fingerprint != layout.model.fingerprint


@pytest.mark.parametrize("attack", [-1.0, 0.0, 1e30])
def test_impossible_moments_never_make_a_subtask_diverge(
    attack: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = Work(tmp_path_factory, Named("adam"), "second_moment")
    hostile = work.begin.copy()
    hostile[work.trainer.layout.model.size :] = attack
    assert np.isfinite(work.train(hostile, range(6))).all()


@pytest.mark.parametrize(
    ("optimizer", "moments", "says"),
    [
        (Named("sgd"), "all", "sgd has no state; set this to none"),
        (Named("lion"), "second_moment", "lion has no second moment; set this to none"),
    ],
)
def test_an_optimizer_that_keeps_none_is_named(
    optimizer: Named, moments: SharedOptimizerState, says: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(JobError, match=f"training > share_optimizer_state: {says}"):
        Work(tmp_path_factory, optimizer, moments)
