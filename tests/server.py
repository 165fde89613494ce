"""One life of a server over a folder, a store, a journal and a grid that outlive it; its loop is put together
as every driver's is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from tests.memory_grid import Fuse, FusedJournal, FusedStore, MemoryGrid, received, trained
from vcdl.codecs.choose import down_encoding, up_encoding
from vcdl.job import Job
from vcdl.job.schema import EVERY_EPOCH
from vcdl.journal.events import EvaluationWanted, RolledBack, UpdateApplied, VersionEvaluated
from vcdl.journal.journal import Journal
from vcdl.loop.loop import Loop
from vcdl.loop.plan import Plan
from vcdl.models.footprint import Footprint
from vcdl.rules.base import Rule, Update
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.run.run import Run, read_expected
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import PLAIN, Named, Normalisation, Training, Transport, WorkunitName

SIZE = 6
LAYOUT = Layout((Variable("dense/kernel", (2, 3), 0),))
TRAINING = Training(Named("sgd"), 0.1, 8, 1, Named("mean_squared_error"))
RULE = VcAsgd(alpha=0.9)


@dataclass(frozen=True)
class FusedRun(Run):
    """A run with a given rule, whose journal and store have fuses."""

    given_rule: Rule = RULE

    @property
    def rule(self) -> Rule:
        return self.given_rule

    def journal(self, clock: Callable[[], float] | None = None) -> FusedJournal:
        return FusedJournal.at(self.folder.journal_file, clock)

    def store(self, journal: Journal | None = None) -> FusedStore:
        store = FusedStore(self.folder.store, self.layout.size, self.rule.state)
        if journal is not None:
            store.expected = partial(read_expected, journal)
        return store


def run_of(
    folder: RunFolder, plan: Plan, rule: Rule = RULE, transport: Transport = PLAIN, initial_norm: float = 3.0
) -> FusedRun:
    """A prepared run for a plan, without data and without Keras."""
    every = {EVERY_EPOCH: "epoch", 1: "update"}.get(plan.validate_every, plan.validate_every)
    job = Job.model_validate(
        {
            "name": plan.job,
            "seed": plan.seed,
            "model": {"builtin": "mlp"},
            "data": {"dataset": "digits", "shards": plan.shards},
            "training": {
                "optimizer": "sgd", "share_optimizer_state": "none", "learning_rate": 0.1, "batch_size": 8,
                "loss": "mean_squared_error", "metrics": [],
            },
            "validate": {"every": every},
            "pacing": {"kind": "rolling" if plan.rolling else "epoch"},
            "trust": "strangers" if plan.trust.rolls_back else "own",
            "transport": {"down": _named(transport.down), "up": _named(transport.up), "compress": transport.compress},
        },
    )  # fmt: skip
    prepared = Prepared(
        shard_samples=(10,) * plan.shards, has_test=plan.has_test, normalisation=Normalisation(), layout=LAYOUT,
        initial_norm=initial_norm, store_key=plan.job, footprint=Footprint(1.0, 1.0, SIZE), own_step=(), store="store/",
    )  # fmt: skip
    return FusedRun(folder, job, prepared, rule)


def _named(codec: Named) -> object:
    return {"name": codec.name, **codec.arguments}


@dataclass
class Disk:
    """What survives a kill: the run's folder and the grid."""

    folder: RunFolder
    grid: MemoryGrid
    plan: Plan
    rule: Rule = RULE
    transport: Transport = PLAIN
    evaluated: set[tuple[int, str]] = field(default_factory=set)
    initial_norm: float = 3.0

    @classmethod
    def new(cls, path: Path, plan: Plan, rule: Rule = RULE, transport: Transport = PLAIN) -> "Disk":
        folder = RunFolder(path)
        folder.create()
        folder.model_file.write_text("{}")
        if plan.trust.rolls_back:
            folder.kept_uploads.mkdir()
        run = run_of(folder, plan, rule, transport)
        store = run.store()
        store.create(np.ones(SIZE, np.float32))
        run.snapshots(store).keep_newest()  # every job begins with workunits made from it
        ways = down_encoding(transport, LAYOUT), up_encoding(transport, LAYOUT)
        grid = MemoryGrid(folder.uploads, LAYOUT.fingerprint, ways=None if transport == PLAIN else ways)
        return cls(folder, grid, plan, rule, transport)


class Server:
    """A process that may be killed by its fuse; begun again with a new object. Its loop is the one that every
    driver has.
    """

    def __init__(self, disk: Disk, kill_at: int | None = None) -> None:
        self.disk, self.fuse = disk, Fuse(kill_at)
        self.grid = disk.grid
        self.grid.fuse = Fuse()
        run = run_of(disk.folder, disk.plan, disk.rule, disk.transport, disk.initial_norm)
        self.evaluators_journal = Journal.at(disk.folder.journal_file)  # a process of its own
        self.loop = Loop.of(run, self.grid, self.grid, plan=disk.plan)
        self.coordinator = self.loop.coordinator
        self.generator, self.snapshots = self.loop.generator, self.loop.snapshots
        assert self.loop.server is not None
        self.assimilator = self.loop.server
        assert isinstance(self.loop.journal, FusedJournal)
        assert isinstance(self.assimilator.store, FusedStore)
        self.journal, self.store = self.loop.journal, self.assimilator.store

    def start(self) -> None:
        """Take the job up, as it was left."""
        self.journal.fuse = self.store.fuse = self.grid.fuse = self.fuse
        self.loop.start_or_resume()

    def run_once(self) -> None:
        self.loop.step()

    def close(self) -> None:
        self.loop.close()
        self.evaluators_journal.close()

    # -- what the evaluator does, and what must be true whatever happened

    def evaluate(self, score: Callable[[Vector], float] = lambda _: 0.5) -> None:
        """Evaluate what is wanted, from snapshots that must be there and be the weights of that version."""
        history = self.history()
        for recorded in self.journal.read():
            match recorded.event:
                case EvaluationWanted(version, epoch, split) if (version, split) not in self.disk.evaluated:
                    vector, _ = read_weights(self.disk.folder.snapshot(version), SIZE)
                    assert vector.tobytes() == history[version].tobytes(), f"the snapshot of version {version}"
                    self.disk.evaluated.add((version, split))
                    self.evaluators_journal.append(
                        VersionEvaluated(
                            version=version, epoch=epoch, split=split, samples=10, loss=0.5, evaluation_s=0.1,
                            metrics={"accuracy": score(vector)},
                        ),
                    )  # fmt: skip

    def history(self) -> list[Vector]:
        """The weights by version, by replaying the journal, rollbacks too."""
        events = [recorded.event for recorded in self.journal.read()]
        rows = [event for event in events if isinstance(event, UpdateApplied | RolledBack)]
        state = self.disk.rule.state
        vectors, made = [state.initial(np.ones(SIZE, np.float32))], list[UpdateApplied]()
        for row in sorted(rows, key=lambda row: row.version):
            assert row.version == len(vectors), "versions without a gap"
            if isinstance(row, RolledBack):
                vector = vectors[row.to].copy()
                made = [update for update in made if update.version not in row.dropped]
                for update in [update for update in made if update.version > row.to]:
                    self._apply(update, vector, vectors)
            else:
                vector = vectors[-1].copy()
                self._apply(row, vector, vectors)
                made.append(row)
            vectors.append(vector)
        return [state.weights(vector) for vector in vectors]

    def _apply(self, row: UpdateApplied, vector: Vector, vectors: list[Vector]) -> None:
        name = WorkunitName.parse(row.workunit)
        facts = (name.epoch, row.staleness, row.samples, row.fraction, row.version)
        state = self.disk.rule.state
        base = state.weights(vectors[row.base_version])
        client = received(self.grid.ways, base, self.grid.brought.get(row.workunit, trained(row.workunit)))
        self.disk.rule.apply(state.rows(vector), Update(client, *facts, base))

    def check_store_and_journal_agree(self) -> None:
        version, vector = self.store.read()
        history = self.history()
        assert len(history) == version + 1, "every update of the store is in the journal"
        assert vector.tobytes() == history[-1].tobytes()
