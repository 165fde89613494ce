"""The files of a workunit that a client downloads and uploads. The same workunit always gives the same files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vcdl.run.run import Run
from vcdl.wire.newest import NEWEST_FILE, VERSION_FILE
from vcdl.wire.workunit import DESCRIPTION_FILE, FROZEN_FILE, INPUT_FILES, Workunit, WorkunitName


@dataclass(frozen=True)
class Staged:
    """A workunit with the paths of its input files on the server."""

    workunit: Workunit
    model: Path
    params: Path
    shard: Path
    frozen: Path | None = None
    """The weights that no training changes, if there are any."""
    samples: int | None = None
    """Number of samples to train on, even if the subtask ends by time; None to train as the workunit says."""
    newest: tuple[int, Path] | None = None
    """The newer version that a simulated client starts from, with its weights, or None if it starts from `params`."""

    @property
    def inputs(self) -> Mapping[str, Path]:
        """Logical name → path on the server, for each input file that is not in `texts`."""
        files = dict(zip(INPUT_FILES[1:], (self.model, self.params, self.shard), strict=True))
        more = {FROZEN_FILE: self.frozen, NEWEST_FILE: self.newest and self.newest[1]}
        return {**files, **{name: path for name, path in more.items() if path is not None}}

    @property
    def texts(self) -> Mapping[str, str]:
        """Logical name → content, for the input files that are written for this workunit.

        These are workunit.json, and the version file if a simulated client starts from newer weights.
        """
        texts = {DESCRIPTION_FILE: self.workunit.to_json()}
        return texts if self.newest is None else {**texts, VERSION_FILE: str(self.newest[0])}

    @property
    def start(self) -> Path:
        """The weights that the client starts from."""
        return self.params if self.newest is None else self.newest[1]

    @property
    def sticky(self) -> set[Path]:
        """The paths of the input files that a client keeps for its next subtasks, and so downloads once."""
        return {self.model, self.shard} | ({self.frozen} if self.frozen is not None else set())


@dataclass(frozen=True)
class Uploaded:
    """The outcome of a workunit for which a client uploaded an update. The file has not been checked."""

    workunit: str
    path: Path
    size_bytes: int
    host: str = ""
    """The host that uploaded it. If empty, the grid does not know, and the journal's last `workunit_sent` names the
    host."""
    received_s: float | None = field(default=None, compare=False)
    """Time at which the server received it, or None if unknown. This is Unix time, or the clock of a grid in virtual
    time."""


def stage(run: Run, name: WorkunitName, rate: float, begins: int | None = None, taken: str | None = None) -> Staged:
    """Return the workunit of a name with its input files; the file of its weights is created if needed.

    Args:
        run: The run.
        name: The workunit's name.
        rate: Factor on the job's peak learning rate.
        begins: Samples of its shard that were already trained, if subtasks end by time.
        taken: See `Workunit.taken`.

    Raises:
        RunFolderError, WeightsFileError: The weights that it starts from are missing or damaged.
    """
    folder = run.folder
    # The seed follows from the name only, so that a workunit that is submitted again after a kill is the same file, and
    # the server can retrain it (decision 060). The attempt is part of the name: a retry uses another order of the
    # samples.
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
    # This file is created on demand, once for each version: all workunits with this base share the file.
    params = run.downloads().path(name.base_version)
    return Staged(workunit, folder.model_file, params, folder.shard(name.shard), frozen)
