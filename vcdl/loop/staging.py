"""A subtask's workunit and its files; equal numbers give equal files."""

import numpy as np

from vcdl.loop.grid import Staged
from vcdl.run.run import Run
from vcdl.wire.workunit import Workunit, WorkunitName


def staged(run: Run, name: WorkunitName, rate: float, begins: int | None = None, taken: str | None = None) -> Staged:
    """The workunit of a name, with `rate` times the job's peak learning rate. `begins`: samples of its shard that were
    trained before, where subtasks end by time. `taken`: see `Workunit.taken`.

    Raises RunFolderError and WeightsFileError for the weights that it starts from.
    """
    folder = run.folder
    seed = int(np.random.default_rng([run.job.seed, name.epoch, name.shard, name.attempt]).integers(2**31))
    workunit = Workunit(
        job=run.name,
        epoch=name.epoch,
        shard=name.shard,
        attempt=name.attempt,
        base_version=name.base_version,
        seed=seed,
        training=run.training_at(rate),
        transport=run.transport,
        frozen=run.prepared.frozen,
        begins=begins,
        taken=taken,
    )
    frozen = None if workunit.frozen is None else folder.frozen_file
    params = run.downloads().path(name.base_version)
    return Staged(workunit, folder.model_file, params, folder.shard(name.shard), frozen)
