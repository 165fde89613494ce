"""A workunit is trained as its inputs say, can be stopped anywhere, and ends in one good update or a one-line
reason.
"""

import functools
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.client.workunit_folder import (
    BATCH_SIZE,
    SAMPLES,
    SIZE,
    WORKUNIT,
    BatchAfterBatch,
    RecordingCache,
    ScriptedSupervisor,
    batches_seen,
    read_update,
    samples,
    with_training,
    write_workunit,
)
from tests.full_disk import files_limited_to
from tests.leftovers import leave_half
from tests.weights_key import KEY
from vcdl.client.batches import order_of
from vcdl.client.newest import NewestWeights
from vcdl.client.slot import CHECKPOINT_FILE
from vcdl.client.supervisor import Request
from vcdl.client.train import DivergedError, Outcome, TrainingTerms, train_workunit
from vcdl.client.trainer import Trainer, TrainerCache
from vcdl.wire.checksum import checksum_of
from vcdl.wire.layout import Vector
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import read_weights, write_weights
from vcdl.wire.workunit import Named, Training

pytestmark = [pytest.mark.process, pytest.mark.keras]

NEWER = WORKUNIT.base_version + 8
BATCHES = -(-SAMPLES // BATCH_SIZE)
"""In a local epoch."""


@pytest.fixture(scope="module")
def trainers() -> TrainerCache:
    return BatchAfterBatch()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_workunit(tmp_path / "slot")


@pytest.fixture(scope="module")
def undisturbed(trainers: TrainerCache, tmp_path_factory: pytest.TempPathFactory) -> Vector:
    """The weights that training the workunit in one go gives."""
    folder = write_workunit(tmp_path_factory.mktemp("undisturbed"))
    train_workunit(folder, ScriptedSupervisor(), trainers)
    return read_update(folder)[0]


def stop_at(batch: int, how: Request) -> ScriptedSupervisor:
    """A supervisor that wants `how` once so many batches are trained."""
    return ScriptedSupervisor(lambda question: how if question > batch else Request.GO)


def test_a_slow_network_is_no_preparation(
    folder: Path, trainers: TrainerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NewestWeights, "fetch", lambda *_: time.sleep(2.0))
    train_workunit(
        folder, ScriptedSupervisor(), trainers, TrainingTerms(newest=NewestWeights(KEY.public, lambda: True))
    )
    assert read_update(folder)[1].times_s.get("prepare", 0.0) < 2.0


def test_an_update_says_what_was_trained(folder: Path, trainers: TrainerCache) -> None:
    assert train_workunit(folder, ScriptedSupervisor(), trainers) is Outcome.DONE
    weights, header = read_update(folder)
    base, _ = read_weights(folder / "params.h5", SIZE)
    assert (header.job, header.workunit, header.base_version) == ("tiny", "tiny_e0003_s017_a0_v000142", 142)
    assert (header.samples, header.fraction) == (2 * SAMPLES, 1.0)
    assert header.train_s > 0
    assert 0 < header.loss < 10
    assert not np.allclose(weights, base)
    assert sorted(path.name for path in folder.iterdir()) == [
        "model.json", "params.h5", "shard.npz", "update.h5", "workunit.json",
    ]  # fmt: skip


def test_each_local_epoch_sees_each_sample_once_in_an_order_that_the_seed_gives(folder: Path, tmp_path: Path) -> None:
    train_workunit(folder, ScriptedSupervisor(), RecordingCache(tmp_path / "log"))
    seen = batches_seen(tmp_path / "log")
    first, second = np.concatenate(seen[:BATCHES]).tolist(), np.concatenate(seen[BATCHES:]).tolist()
    assert sorted(first) == sorted(second) == list(range(SAMPLES))
    assert first == order_of(WORKUNIT.seed, 0, SAMPLES).tolist() != second


def test_a_subtask_ends_by_time_and_a_given_number_of_samples_does_not(tmp_path: Path, trainers: TrainerCache) -> None:
    """The server trains as many samples again as a client says, however long it takes."""
    timed, again = (write_workunit(tmp_path / name, with_training(target_s=1e-6)) for name in ("timed", "again"))
    assert train_workunit(timed, ScriptedSupervisor(), trainers) is Outcome.DONE
    weights, header = read_update(timed)
    assert header.samples <= 2 * BATCH_SIZE, "two where the first one compiles, which is no training"
    assert header.fraction == header.samples / (2 * SAMPLES)
    train_workunit(again, ScriptedSupervisor(), trainers, TrainingTerms(samples=header.samples))
    assert np.array_equal(read_update(again)[0], weights)


def test_subtasks_that_end_by_time_follow_one_order_of_their_shard(tmp_path: Path) -> None:
    """Checkpoints are made at batches' ends wherever the order was begun."""
    workunit, log = replace(with_training(target_s=1e6), begins=7 * SAMPLES + 40), tmp_path / "log"
    folder = write_workunit(tmp_path / "timed", workunit)
    assert train_workunit(folder, stop_at(12, Request.QUIT), RecordingCache(log)) is Outcome.QUIT
    assert train_workunit(folder, ScriptedSupervisor(), RecordingCache(log)) is Outcome.DONE
    passes = [order_of(WORKUNIT.shard, number, SAMPLES) for number in (7, 8, 9)]
    expected = np.concatenate([passes[0][40:], passes[1], passes[2][:40]])
    assert np.concatenate(batches_seen(log)).tolist() == expected.tolist()


def test_the_rate_of_a_subtask_that_ends_by_time_follows_its_batches_alone(
    tmp_path: Path, trainers: TrainerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where its passes end, or where it was killed: the server trains it again with the same steps."""
    paces: list[tuple[int, int]] = []
    monkeypatch.setattr(Trainer, "set_learning_rate_for", lambda _, *pace: paces.append(pace))
    whole = with_training(target_s=1e6)
    folder = write_workunit(tmp_path / "timed", replace(whole, begins=7 * SAMPLES + 40))
    assert train_workunit(folder, stop_at(6, Request.QUIT), trainers) is Outcome.QUIT
    assert train_workunit(folder, ScriptedSupervisor(), trainers) is Outcome.DONE
    expected = [(0, 4)] * 4 + [(4, 4)] * 4 + [(8, 8)] * 8 + [(16, 16)] * 10
    assert paces == [(0, 26), *expected[:6], (0, 26), *expected[6:]]
    paces.clear()
    train_workunit(write_workunit(tmp_path / "usual"), ScriptedSupervisor(), trainers)
    assert paces == [(0, 26)]


def test_the_client_trains_what_plain_keras_trains(tmp_path: Path, trainers: TrainerCache) -> None:
    from vcdl.client.compile import compile_model
    from vcdl.client.model import load_model
    from vcdl.wire.layout import assign, flatten
    from vcdl.wire.normalise import normalise

    workunit = with_training(local_epochs=1)
    folder = write_workunit(tmp_path / "plain", workunit, dropout=0.0)
    train_workunit(folder, ScriptedSupervisor(), trainers)
    model = load_model((folder / "model.json").read_text())
    compile_model(model, workunit.training)
    assign(model, read_weights(folder / "params.h5", SIZE)[0])
    order = order_of(workunit.seed, 0, SAMPLES)
    x, y = samples()
    history = model.fit(
        normalise(x, workunit.training.normalisation)[order], y[order], batch_size=BATCH_SIZE, shuffle=False, verbose=0
    )
    weights, header = read_update(folder)
    np.testing.assert_allclose(weights, flatten(model), rtol=1e-4, atol=1e-6)
    assert header.loss == pytest.approx(history.history["loss"][0], rel=1e-4)


def test_a_workunit_gives_the_same_update_whatever_the_process_trained_before(
    folder: Path, trainers: TrainerCache, undisturbed: Vector, tmp_path: Path
) -> None:
    other = write_workunit(tmp_path / "other", with_training(learning_rate=0.5, local_epochs=1))
    train_workunit(other, ScriptedSupervisor(), trainers)
    train_workunit(folder, ScriptedSupervisor(), trainers)
    np.testing.assert_array_equal(read_update(folder)[0], undisturbed)
    (folder / "update.h5").unlink()
    train_workunit(folder, ScriptedSupervisor(), TrainerCache())
    np.testing.assert_array_equal(read_update(folder)[0], undisturbed)


def test_the_next_workunit_of_a_job_is_not_traced_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import keras

    if keras.backend.backend() == "torch":
        pytest.skip("PyTorch does not trace")
    traces: list[int] = []
    call = keras.layers.Dense.call

    @functools.wraps(call)
    def counted(*arguments: Any, **named: Any) -> Any:
        traces.append(1)
        return call(*arguments, **named)

    monkeypatch.setattr(keras.layers.Dense, "call", counted)
    trainers = TrainerCache()
    train_workunit(folder, ScriptedSupervisor(), trainers)
    assert traces
    quicker = write_workunit(tmp_path / "quicker", with_training(learning_rate=0.5, metrics=(Named("mae"),)))
    traces.clear()  # of building it
    train_workunit(quicker, ScriptedSupervisor(), trainers)
    assert not traces


@pytest.mark.parametrize("batch", [1, BATCHES - 1, BATCHES, 2 * BATCHES - 1])
def test_quit_leaves_a_checkpoint_from_which_the_same_update_comes(
    folder: Path, trainers: TrainerCache, undisturbed: Vector, batch: int, tmp_path: Path
) -> None:
    supervisor = stop_at(batch, Request.QUIT)
    assert train_workunit(folder, supervisor, trainers) is Outcome.QUIT
    assert (folder / CHECKPOINT_FILE).exists()
    assert not (folder / "update.h5").exists()
    assert supervisor.checkpoints == 1
    log = tmp_path / "log"
    assert train_workunit(folder, ScriptedSupervisor(), RecordingCache(log)) is Outcome.DONE
    weights, header = read_update(folder)
    np.testing.assert_array_equal(weights, undisturbed)
    assert len(batches_seen(log)) == 2 * BATCHES - batch
    assert header.samples == 2 * SAMPLES
    assert not (folder / CHECKPOINT_FILE).exists()


@pytest.mark.parametrize(("batch", "trained"), [(0, BATCH_SIZE), (5, 5 * BATCH_SIZE), (BATCHES, SAMPLES)])
def test_finish_uploads_what_was_trained_and_says_how_much(
    folder: Path, trainers: TrainerCache, batch: int, trained: int
) -> None:
    assert train_workunit(folder, stop_at(batch, Request.FINISH), trainers) is Outcome.DONE
    weights, header = read_update(folder)
    assert (header.samples, header.fraction) == (trained, trained / (2 * SAMPLES))
    assert np.isfinite(weights).all()
    assert 0 < header.loss < 10


def test_a_pause_takes_no_processor_and_makes_a_checkpoint(
    folder: Path, trainers: TrainerCache, undisturbed: Vector
) -> None:
    at: list[tuple[float, float]] = []

    def answer(question: int) -> Request:
        if 5 < question <= 12:
            at.append((time.monotonic(), time.process_time()))
            return Request.PAUSE
        return Request.GO

    supervisor = ScriptedSupervisor(answer)
    assert train_workunit(folder, supervisor, trainers) is Outcome.DONE
    (begun_s, begun_cpu_s), (ended_s, ended_cpu_s) = at[1], at[-1]
    assert ended_s - begun_s > 0.4
    assert ended_cpu_s - begun_cpu_s < 0.1
    assert supervisor.checkpoints == 1
    np.testing.assert_array_equal(read_update(folder)[0], undisturbed)


def test_progress_comes_at_most_four_times_a_second(folder: Path, trainers: TrainerCache) -> None:
    def slow(_question: int) -> Request:
        time.sleep(0.04)
        return Request.GO

    supervisor = ScriptedSupervisor(slow)
    train_workunit(folder, supervisor, trainers)
    times = [told[0] for told in supervisor.told]
    assert len(times) >= 3
    assert min(np.diff(times)) > 0.24
    fractions = [told[1] for told in supervisor.told]
    assert fractions == sorted(fractions)
    assert all(fraction == count / (2 * SAMPLES) for _, fraction, count in supervisor.told)


def test_an_update_that_is_already_there_is_not_trained_again(folder: Path, trainers: TrainerCache) -> None:
    train_workunit(folder, ScriptedSupervisor(), trainers)
    before = (folder / "update.h5").read_bytes()
    (folder / CHECKPOINT_FILE).write_bytes(b"left by the process that was killed")
    leave_half(folder / CHECKPOINT_FILE)
    supervisor = ScriptedSupervisor()
    assert train_workunit(folder, supervisor, trainers) is Outcome.DONE
    assert supervisor.questions == 0
    assert (folder / "update.h5").read_bytes() == before
    assert not list(folder.glob("*checkpoint*"))


def test_a_diverging_training_ends_with_advice_and_no_update(tmp_path: Path, trainers: TrainerCache) -> None:
    folder = write_workunit(tmp_path, with_training(optimizer=Named("sgd"), learning_rate=1e25))
    with pytest.raises(DivergedError, match=r"diverged.*rate 1e\+25.*optimizer: sgd with a lower learning_rate"):
        train_workunit(folder, ScriptedSupervisor(), trainers)
    assert not (folder / "update.h5").exists()


def test_weights_that_became_infinite_in_the_last_step_are_not_uploaded(tmp_path: Path, trainers: TrainerCache) -> None:
    folder = write_workunit(tmp_path, with_training(optimizer=Named("sgd"), learning_rate=1e38 * 3))
    with pytest.raises(DivergedError, match="some weights are not finite after 8 samples"):
        train_workunit(folder, stop_at(1, Request.FINISH), trainers)
    assert not (folder / "update.h5").exists()


def test_a_full_disk_costs_the_checkpoint_but_not_the_work(
    folder: Path, trainers: TrainerCache, undisturbed: Vector, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = ScriptedSupervisor()
    with files_limited_to(10_000):
        assert train_workunit(folder, supervisor, trainers, TrainingTerms(checkpoint_every_s=0.0)) is Outcome.DONE
    assert "no checkpoint could be written" in caplog.text
    assert supervisor.checkpoints == 0
    np.testing.assert_array_equal(read_update(folder)[0], undisturbed)


def came_newer(folder: Path) -> tuple[Vector, str]:
    """Newer weights, as vcdl.client.newest has fetched them; returns them with their header."""
    weights, header = read_weights(folder / "params.h5", SIZE)
    told = replace(ParamsHeader.from_json(header), version=NEWER, checksum=checksum_of(weights + 0.25)).to_json()
    write_weights(folder / "newest.h5", weights + 0.25, told)
    (folder / "newest_version").write_text(str(NEWER))
    return weights + 0.25, told


def test_the_upload_names_the_newer_weights_that_it_was_begun_with_and_so_does_the_checkpoint(
    folder: Path, trainers: TrainerCache, tmp_path: Path
) -> None:
    newer = came_newer(folder)
    assert train_workunit(folder, stop_at(5, Request.QUIT), trainers) is Outcome.QUIT
    assert train_workunit(folder, ScriptedSupervisor(), trainers) is Outcome.DONE
    trained, upload = read_update(folder)
    assert (upload.workunit, upload.base_version) == (WORKUNIT.name, NEWER)
    assert upload.base_checksum == checksum_of(newer[0])

    sent = write_workunit(tmp_path / "sent", replace(WORKUNIT, base_version=NEWER))
    write_weights(sent / "params.h5", *newer)
    train_workunit(sent, ScriptedSupervisor(), trainers)
    assert (trained == read_update(sent)[0]).all()


def test_a_checkpoint_of_other_weights_is_not_gone_on_from(
    folder: Path, trainers: TrainerCache, undisturbed: Vector
) -> None:
    came_newer(folder)
    assert train_workunit(folder, stop_at(5, Request.QUIT), trainers) is Outcome.QUIT
    (folder / "newest.h5").write_bytes(b"damaged")
    train_workunit(folder, ScriptedSupervisor(), trainers)
    assert (read_update(folder)[0] == undisturbed).all()


@pytest.mark.parametrize("name", sorted(Training.__dataclass_fields__))
def test_a_trainer_serves_another_subtask_only_where_what_is_compiled_in_is_the_same(name: str) -> None:
    """A setting that a list forgot trained silently as in the job before: it makes another trainer unless named."""
    made: list[Training] = []

    class Counting(TrainerCache):
        def make(self, model_json: str, training: Training, frozen: Vector | None = None) -> Trainer:
            made.append(training)
            return cast(Trainer, object())

    cache, training = Counting(), WORKUNIT.training
    cache.get("{}", training)
    another: dict[str, Any] = {name: Named("another")}
    cache.get("{}", replace(training, **another))
    is_kept = name in {"learning_rate", "batch_size", "local_epochs", "metrics", "normalisation", "target_s"}
    assert len(made) == (1 if is_kept else 2)
