"""A run folder without a grid: uploads appear in it as clients would bring them, for parameter servers to fold in."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.end_to_end.vcdl_process import applied
from tests.uploads import header_of
from vcdl.job import Job, save_job
from vcdl.journal.journal import Journal
from vcdl.models.footprint import Footprint
from vcdl.rules.base import Update
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.run.run import Run
from vcdl.run.store_claim import requested_settings, store_address
from vcdl.stores import WeightStore
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.weights import read_weights, write_weights
from vcdl.wire.workunit import Normalisation, Workunit, WorkunitName

SHARDS = 50
ALPHA = 0.9


@dataclass(frozen=True)
class ServedRun:
    """One run, prepared without data and without Keras."""

    run: Run
    store: WeightStore
    initial: Vector
    alpha: float

    @classmethod
    def new(
        cls,
        path: Path,
        initial: Vector,
        store_url: str,
        consistency: str = "strong",
        alpha: float = ALPHA,
        trust: str = "own",
    ) -> "ServedRun":
        """Begin one, with version 0 in the store; `store_url` "" stands for the run's own folder."""
        folder = RunFolder(path)
        folder.create()
        job = Job.model_validate(
            {
                "name": "served",
                "model": {"builtin": "mlp"},
                "data": {"dataset": "digits", "shards": SHARDS},
                "update": {"rule": "vc_asgd", "alpha": alpha},
                "validate": {"every": "epoch"},
                "store": {"url": store_url or f"file:{folder.store}", "consistency": consistency},
                "grid": {"servers": 2},
                "trust": trust,
            }
        )
        save_job(job, folder.job_file)
        layout = Layout((Variable("w", (initial.size,), 0),))
        norm = float(initial.size**0.5)
        prepared = Prepared(
            shard_samples=(100,) * SHARDS,
            has_test=False,
            normalisation=Normalisation(),
            layout=layout,
            initial_norm=norm,
            store_key=f"served-{path.name}",
            footprint=Footprint(1.0, 1.0, initial.size),
            own_step=(),
            store=store_address(requested_settings(job, folder), folder),
        )
        Journal.at(folder.journal_file).close()
        prepared.write(folder)
        folder.kept_uploads.mkdir()
        run = Run(folder, job, prepared)
        store = run.store()
        store.create(initial)
        run.snapshots(store).keep(0, initial)
        return cls(run, store, initial, alpha)

    @property
    def folder(self) -> RunFolder:
        return self.run.folder

    @property
    def job(self) -> Job:
        return self.run.job

    @property
    def prepared(self) -> Prepared:
        return self.run.prepared

    def bring(
        self,
        number: int,
        weights: Vector,
        base_version: int = 0,
        attempt: int = 0,
        began_with: int | None = None,
        part: float = 1.0,
        checksum: str = "",
    ) -> str:
        """The upload of the subtask `number`, or a part of it; returns its workunit.

        `began_with`: newer weights than the base's. `checksum`: that of the weights it began with.
        """
        epoch, shard = number // SHARDS + 1, number % SHARDS
        unit = Workunit(self.run.name, epoch, shard, attempt, base_version, seed=1, training=self.run.training)
        base = base_version if began_with is None else began_with
        header = header_of(
            unit.name,
            self.prepared.layout.fingerprint,
            base_version=base,
            samples=int(100 * part),
            fraction=part,
            base_checksum=checksum,
        )
        write_weights(self.folder.uploads / f"{unit.name}.h5", weights, header.to_json())
        return unit.name

    def workunit(self, number: int) -> str:
        """The name of the first attempt at the subtask `number`."""
        return str(WorkunitName(self.run.name, number // SHARDS + 1, number % SHARDS, 0, 0))

    def waiting(self) -> int:
        """Uploads that nobody has folded in yet."""
        return sum(1 for _ in self.folder.uploads.glob("*.h5"))

    def replayed(self) -> Vector:
        """Version 0 with the journal's updates folded in, one after the other in the order of their versions."""
        weights = self.initial.copy()
        for update in sorted(applied(self.folder.path), key=lambda update: update.version):
            client, _ = read_weights(self.folder.kept_upload(update.version, update.workunit), weights.size)
            fraction = update.fraction * update.trust
            VcAsgd(alpha=self.alpha).apply(weights, Update(client, 1, update.staleness, update.samples, fraction))
        return weights


def noise(seed: int, size: int) -> Vector:
    """Weights of a client."""
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def start_server(folder: Path) -> "subprocess.Popen[bytes]":
    """A parameter server in a process of its own; it ends when its standard input closes."""
    command = [sys.executable, "-m", "vcdl.local.server", str(folder)]
    with (folder / "workers.log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log)


@contextmanager
def servers(folder: Path, number: int) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """So many of them; whoever takes one out of the list and puts another in, has it ended at the end."""
    running = [start_server(folder) for _ in range(number)]
    try:
        yield running
    finally:
        for server in running:
            server.kill()
            server.communicate()
