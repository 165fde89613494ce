"""The step of held-out data is as long as a client's would be."""

from pathlib import Path

import numpy as np
import pytest

from tests.recorded_run import numbered
from vcdl.data.npz_file import read_split
from vcdl.data.samples import Samples
from vcdl.job import Job, save_job
from vcdl.job.lr_schedule import LONG_STEPS
from vcdl.journal.events import WorkunitCreated, WorkunitSent
from vcdl.journal.history import JobHistory
from vcdl.journal.observer import RunObserver
from vcdl.loop.preparation import prepare
from vcdl.run.folder import RunFolder
from vcdl.trust.reference_update import ReferenceUpdate
from vcdl.wire.layout import Vector
from vcdl.wire.normalise import normalise
from vcdl.wire.weights import read_weights

pytestmark = pytest.mark.keras


def test_it_follows_the_rate_of_a_workunit_that_is_made_now(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    job = Job.model_validate(
        {
            "name": "held",
            "model": {"builtin": {"name": "mlp", "units": [4]}},
            "data": {"dataset": "digits", "shards": 10},
            "training": {
                "optimizer": "sgd",
                "batch_size": 512,  # one step
                "learning_rate": {"peak": 0.001, "scale_with_clients": 4, "short_job_boost": 3.0},
            },
            "update": {"rule": "vc_asgd", "alpha": 0.5},
            "stop": {"epochs": 2},
        }
    )
    save_job(job, folder.job_file)
    run = prepare(folder, job, RunObserver())
    prepared = run.prepared
    x, y = read_split(folder.validation_file)
    history = JobHistory()
    reference = ReferenceUpdate(run, history, Samples(normalise(x, prepared.normalisation), y))
    begun, _ = read_weights(folder.snapshot(0), prepared.layout.size)

    def left() -> Vector:
        reference.leave(0, begun)
        return read_weights(folder.reference_update_file, prepared.layout.size)[0]

    rate = run.subtask_rate
    assert rate.steps < LONG_STEPS
    assert rate.at(0, run.job.subtasks) == 3.0
    alone = left()
    workunits = [f"held_e0001_s{shard:03d}_a0_v000000" for shard in range(9)]
    created = [WorkunitCreated(workunit, 9) for workunit in workunits]
    for recorded in numbered([*created, *(WorkunitSent(workunit, "a", 1) for workunit in workunits[:4])]):
        history.follow(recorded)
    many = left()  # of the tenth workunit, while four clients are at work
    assert float(np.linalg.norm(many)) == pytest.approx(4 * float(np.linalg.norm(alone)), rel=1e-3)
