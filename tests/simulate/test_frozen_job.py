"""A job whose model is frozen but for its last layer: what travels, what is exported, and what is refused."""

from pathlib import Path

import keras
import numpy as np
import pytest

from benchmarks.experiments.training_here import TrainingHere
from vcdl.errors import RunFolderError
from vcdl.job import Job, save_job
from vcdl.journal.events import StopReason, UpdateApplied, VersionEvaluated, WorkunitSent
from vcdl.journal.observer import RunObserver
from vcdl.run.export import export_model
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of
from vcdl.run.run import Run
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.shard_trainer import ShardTrainers
from vcdl.simulate.virtual_run import VirtualRun
from vcdl.wire.layout import flatten

pytestmark = pytest.mark.keras

CLIENTS, SHARDS = 2, 6
HIDDEN = 64 * 400 + 400
HEAD = 400 * 10 + 10


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A job for strangers, whose uploads are bounded, spot-checked and scored."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "frozen")
    folder.create()
    job = Job.model_validate(
        {
            "name": "frozen",
            "model": {"builtin": {"name": "mlp", "units": [400]}, "train": ["output"]},
            "data": {"dataset": "digits", "shards": SHARDS, "validation": 0.2},
            "training": {"learning_rate": 0.01, "share_optimizer_state": "none"},
            "trust": {"kind": "strangers", "verify": 1.0},
            "stop": {"epochs": 2},
        }
    )
    save_job(job, folder.job_file)
    fleet = ClientFleet(clients=CLIENTS, slots=1, subtask_s=10.0)
    ended = VirtualRun(folder, fleet, TrainingHere(folder, ShardTrainers()), RunObserver()).run()
    assert ended == StopReason.EPOCHS
    return folder


def test_bytes_go_with_what_is_trained_and_the_rest_travels_once_to_each_client(finished: RunFolder) -> None:
    uploads = [row.bytes_up for row in events_of(finished, UpdateApplied)]
    assert len(uploads) == 2 * SHARDS
    assert max(uploads) < 4 * HEAD + 1000
    downloads = sorted((row.bytes_down for row in events_of(finished, WorkunitSent)), reverse=True)
    frozen = downloads[:CLIENTS], downloads[CLIENTS:]
    assert min(frozen[0]) > 4 * (HIDDEN + HEAD)
    assert max(frozen[1]) < 4 * HEAD + 20_000, "the weights that are trained, and a shard"
    assert 4 * HIDDEN < finished.frozen_file.stat().st_size < 4 * HIDDEN + 1000


def test_the_exported_model_is_whole_and_its_frozen_weights_are_those_it_began_with(
    finished: RunFolder, tmp_path: Path
) -> None:
    export_model(finished, tmp_path / "m.keras")
    exported = keras.models.load_model(tmp_path / "m.keras")
    run = Run.open(finished)
    frozen, head = exported.get_weights()[:2], flatten(exported)
    assert np.concatenate([array.reshape(-1) for array in frozen]).tobytes() == run.frozen_weights().tobytes()
    assert head.size == HEAD == run.layout.size
    best = max(event.accuracy or 0.0 for event in events_of(finished, VersionEvaluated))
    assert best > 0.7, "it has learnt beside the frozen weights, and was measured with them"


def test_a_run_without_its_frozen_weights_says_so(finished: RunFolder, tmp_path: Path) -> None:
    moved = finished.frozen_file.rename(tmp_path / "frozen.h5")
    try:
        with pytest.raises(RunFolderError, match=r"frozen\.h5 is missing.*put a copy back"):
            export_model(finished, tmp_path / "m.keras")
    finally:
        moved.rename(finished.frozen_file)
