"""One life of a server over a folder, a store, a journal and a grid that outlive it; put together as vcdl.local_run does."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.memory_grid import Fuse, FusedJournal, FusedStore, MemoryGrid, received, trained
from vcdl.assimilator import Assimilator
from vcdl.checks import UploadCheck
from vcdl.codecs.choose import down_encoding, up_encoding
from vcdl.coordinator import Coordinator
from vcdl.events import EvaluationWanted, RunStarted, UpdateApplied, VersionEvaluated
from vcdl.journal import Journal
from vcdl.plan import EVERY_EPOCH, Plan
from vcdl.rules import Rule, Update, VcAsgd
from vcdl.run.downloads import Downloads
from vcdl.run.folder import RunFolder
from vcdl.run.snapshots import Snapshots
from vcdl.stores import Boundary
from vcdl.weights import Layout, Variable, Vector, read_weights
from vcdl.work_generator import WorkGenerator
from vcdl.workunit import PLAIN, Named, Training, Transport, WorkunitName

SIZE = 6
LAYOUT = Layout((Variable("dense/kernel", (2, 3), 0),))
TRAINING = Training(Named("sgd"), 0.1, 8, 1, Named("mean_squared_error"))
RULE = VcAsgd(0.9)


@dataclass
class Disk:
    """What survives a kill: the run's folder and the grid."""

    folder: RunFolder
    grid: MemoryGrid
    plan: Plan
    rule: Rule = RULE
    transport: Transport = PLAIN
    evaluated: set[tuple[int, str]] = field(default_factory=set)

    @classmethod
    def new(cls, path: Path, plan: Plan, rule: Rule = RULE, transport: Transport = PLAIN) -> "Disk":
        folder = RunFolder(path)
        folder.create()
        folder.model_file.write_text("{}")
        store = FusedStore(folder.store, SIZE)
        store.create(np.ones(SIZE, np.float32))
        Snapshots(folder, store, "j", LAYOUT.fingerprint).keep_newest()  # every job begins with workunits made from it
        ways = down_encoding(transport, LAYOUT), up_encoding(transport, LAYOUT)
        grid = MemoryGrid(folder.uploads, LAYOUT.fingerprint, ways=None if transport == PLAIN else ways)
        return cls(folder, grid, plan, rule, transport)


class Server:
    """A process that may be killed by its fuse; begun again with a new object."""

    def __init__(self, disk: Disk, kill_at: int | None = None) -> None:
        self.disk, self.fuse = disk, Fuse(kill_at)
        self.journal = FusedJournal.at(disk.folder.journal_file)
        self.evaluators_journal = Journal.at(disk.folder.journal_file)  # a process of its own
        self.store = FusedStore(disk.folder.store, SIZE)
        self.grid = disk.grid
        self.grid.fuse = Fuse()
        self.snapshots = Snapshots(disk.folder, self.store, "j", LAYOUT.fingerprint)
        self.coordinator = Coordinator(disk.plan)
        shards = tuple(disk.folder.shard(number) for number in range(disk.plan.shards))
        self.generator = WorkGenerator(
            "j",
            1,
            TRAINING,
            shards,
            disk.folder,
            self.coordinator,
            self.journal,
            self.snapshots,
            self.grid,
            Downloads(disk.folder, LAYOUT, disk.transport),
        )
        check = UploadCheck("j", LAYOUT, (10,) * disk.plan.shards, 1, initial_norm=3.0, transport=disk.transport)
        every = disk.plan.validate_every
        boundary = None if every == EVERY_EPOCH else Boundary(every, self.keep, self.snapshots.has)
        snapshot = disk.folder.snapshot
        self.assimilator = Assimilator(self.grid, self.store, self.journal, check, disk.rule, boundary, snapshot)

    def keep(self, version: int, vector: Vector) -> None:
        self.fuse.burn()
        self.snapshots.keep(version, vector)
        self.fuse.burn()

    def start(self) -> None:
        """Take the job up, as it was left."""
        self.journal.fuse = self.store.fuse = self.grid.fuse = self.fuse
        earlier = self.generator.follow()
        if self.coordinator.finished:
            return
        self.journal.append(RunStarted(resumed=bool(earlier)))

    def run_once(self) -> None:
        if self.coordinator.stopped is None:
            self.assimilator.run_once()
        self.generator.run_once(0.0)

    def close(self) -> None:
        self.journal.close()
        self.evaluators_journal.close()
        self.store.close()

    # -- what the evaluator does, and what must be true whatever happened

    def evaluate(self, score: float = 0.5) -> None:
        """Evaluate what is wanted, from snapshots that must be there and be the weights of that version."""
        history = self.history()
        for recorded in self.journal.read():
            match recorded.event:
                case EvaluationWanted(version, epoch, split) if (version, split) not in self.disk.evaluated:
                    vector, _ = read_weights(self.disk.folder.snapshot(version), SIZE)
                    assert vector.tobytes() == history[version].tobytes(), f"the snapshot of version {version}"
                    self.disk.evaluated.add((version, split))
                    self.evaluators_journal.append(VersionEvaluated(version, epoch, split, 10, 0.5, score, 0.1))

    def history(self) -> list[Vector]:
        """The weights by version, by replaying the journal."""
        rows = [recorded.event for recorded in self.journal.read() if isinstance(recorded.event, UpdateApplied)]
        vectors = [np.ones(SIZE, np.float32)]
        for row in sorted(rows, key=lambda row: row.version):
            assert row.version == len(vectors), "versions without a gap"
            vector = vectors[-1].copy()
            name = WorkunitName.parse(row.workunit)
            facts = (name.epoch, row.staleness, row.samples, row.fraction, row.version)
            base = vectors[name.base_version]
            client = received(self.grid.ways, base, trained(row.workunit))
            self.disk.rule.apply(vector, Update(client, *facts, base))
            vectors.append(vector)
        return vectors

    def check_store_and_journal_agree(self) -> None:
        version, vector = self.store.read()
        history = self.history()
        assert len(history) == version + 1, "every update of the store is in the journal"
        assert vector.tobytes() == history[-1].tobytes()
