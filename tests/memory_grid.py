"""A grid in memory whose clients a test plays itself, and fuses that kill the server between any two of its
steps, or fill its disk.
"""

import random
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tests.uploads import header_of
from vcdl.codecs.encoding import Encoding
from vcdl.errors import RunFolderFull
from vcdl.journal.events import Event, RolledBack, WorkunitSent
from vcdl.journal.journal import Journal
from vcdl.loop.grid import GaveUp, Grid, Outcome, Results
from vcdl.run.staging import Staged, Uploaded
from vcdl.stores import Applied, Boundary, FileStore, Fold
from vcdl.wire.layout import Vector
from vcdl.wire.weights import write_weights
from vcdl.wire.workunit import WorkunitName


class Killed(BaseException):
    """What a test calls kill -9."""


@dataclass
class Fuse:
    """Kills at the given step; None: never."""

    kill_at: int | None = None
    steps: int = 0
    error: BaseException = field(default_factory=Killed)

    def burn(self) -> None:
        self.steps += 1
        if self.steps - 1 == self.kill_at:
            raise self.error


class FillingDisk(Fuse):
    """At some of the steps, before or after what they do, the disk is full; not at the first few, in which the
    server starts.
    """

    def __init__(self, dice: random.Random, share: float) -> None:
        super().__init__()
        self._dice = dice
        self._share = share
        self.was_full = 0

    def burn(self) -> None:
        self.steps += 1
        if self.steps > 5 and self._dice.random() < self._share:
            self.was_full += 1
            raise RunFolderFull("No space left on device")


@dataclass
class MemoryGrid(Grid, Results):
    """Keeps what a grid must keep; clients bring uploads when a test says so."""

    uploads: Path
    layout: str
    wanted: int = 3
    ways: tuple[Encoding, Encoding] | None = None
    """How weights go down and up; None: as they are."""
    samples: int = 10
    """Samples of a shard."""
    fuse: Fuse = field(default_factory=Fuse)
    submitted: dict[str, Staged] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    ever_submitted: list[str] = field(default_factory=list)
    brought: dict[str, Vector] = field(default_factory=dict)
    """What clients brought that trained otherwise than `trained` says."""
    offered: Path | None = None
    """The newest weights that clients may begin with."""

    def submit(self, staged: Sequence[Staged]) -> None:
        self.fuse.burn()
        for item in staged:
            if item.workunit.name not in self.submitted:
                self.submitted[item.workunit.name] = item
                self.ever_submitted.append(item.workunit.name)
        self.fuse.burn()

    def has(self, workunit: str) -> bool:
        return workunit in self.submitted or workunit in self.outcomes

    def claim(self) -> list[Outcome]:
        self.fuse.burn()
        return list(self.outcomes.values())

    def sent(self) -> list[WorkunitSent]:
        return []

    def done(self, workunit: str, version: int | None = None) -> None:
        self.fuse.burn()
        self.submitted.pop(workunit, None)
        self.outcomes.pop(workunit, None)
        self.fuse.burn()

    def cancel(self, workunits: Collection[str]) -> None:
        self.fuse.burn()
        for workunit in workunits:
            self.submitted.pop(workunit, None)
            self.outcomes.pop(workunit, None)
        self.fuse.burn()

    def target_open_workunits(self) -> int:
        return self.wanted

    slots = target_open_workunits

    def publish(self, version: int, params: Path) -> None:
        self.offered = params

    # -- what clients do

    @property
    def running(self) -> list[str]:
        """Workunits that no client has answered yet."""
        return [workunit for workunit in self.submitted if workunit not in self.outcomes]

    def bring(
        self,
        workunit: str,
        weights: Vector | None = None,
        *,
        train_s: float = 1.5,
        loss: float = 0.5,
        base_version: int | None = None,
    ) -> None:
        """A client uploads an update of a workunit; `base_version`: another one that it began with."""
        base = WorkunitName.parse(workunit).base_version if base_version is None else base_version
        facts = {"base_version": base, "samples": self.samples, "train_s": train_s, "loss": loss}
        header = header_of(workunit, self.layout, **facts)
        path = self.uploads / f"{workunit}.h5"
        weights = self.brought.get(workunit, trained(workunit)) if weights is None else weights
        if self.ways is None:
            write_weights(path, weights, header.to_json())
        else:
            down, up = self.ways
            began, _ = down.read(self.submitted[workunit].params)
            up.write_upload(path, weights, began, replace(header, codec=up.label).to_json())
        self.outcomes[workunit] = Uploaded(workunit, path, path.stat().st_size)

    def give_up(self, workunit: str) -> None:
        """The grid loses a workunit for good."""
        self.outcomes[workunit] = GaveUp(workunit, "its worker died")

    def forget(self) -> None:
        """What the local grid forgets when its process is killed: all but the uploads."""
        self.outcomes = {name: outcome for name, outcome in self.outcomes.items() if isinstance(outcome, Uploaded)}
        self.submitted = {name: item for name, item in self.submitted.items() if name in self.outcomes}


def received(ways: tuple[Encoding, Encoding] | None, base: Vector, weights: Vector) -> Vector:
    """What the server has of a client's weights that began with the version whose weights are `base`."""
    if ways is None:
        return weights
    down, up = ways
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights.h5"
        down.write(file, base, "{}")
        up.write_upload(file, weights, down.read(file)[0], "{}")
        sent, _ = up.read(file)
        up.add_base(base, sent)
        return sent


def trained(workunit: str, size: int = 6) -> Vector:
    """What the client of a workunit makes of any weights."""
    name = WorkunitName.parse(workunit)
    return np.random.default_rng([name.epoch, name.shard, name.attempt]).normal(size=size).astype(np.float32)


class FusedJournal(Journal):
    """A journal whose process may be killed before and after each append."""

    fuse = Fuse()
    rolled_back_at = 0
    """The step of the fuse before the last rollback was written down."""

    def append(self, *events: Event, time_s: float | None = None) -> None:
        if any(isinstance(event, RolledBack) for event in events):
            self.rolled_back_at = self.fuse.steps
        self.fuse.burn()
        super().append(*events, time_s=time_s)
        self.fuse.burn()


class FusedStore(FileStore):
    """A store whose process may be killed before and after each transaction, and around a boundary's snapshot in it."""

    fuse = Fuse()

    def restore(self, version: int, vector: Vector, applied: Sequence[Applied], lost: int = 0) -> bool:
        self.fuse.burn()
        restored = super().restore(version, vector, applied, lost)
        self.fuse.burn()
        return restored

    def fold(self, folds: Sequence[Fold], boundary: Boundary | None = None) -> list[Applied]:
        self.fuse.burn()
        records = super().fold(folds, None if boundary is None else replace(boundary, keep=self._fused(boundary.keep)))
        self.fuse.burn()
        return records

    def _fused(self, keep: Callable[[int, Vector], None]) -> Callable[[int, Vector], None]:
        def fused(version: int, vector: Vector) -> None:
            self.fuse.burn()
            keep(version, vector)
            self.fuse.burn()

        return fused
