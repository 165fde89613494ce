"""Pilots whose workers train nothing: the real protocol, a folder that both sides share, a clock that a test moves."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.end_to_end.vcdl_process import applied
from tests.manual_clock import Clock
from tests.memory_grid import trained
from tests.served_run import ServedRun
from vcdl.journal.events import EvaluationWanted, VersionEvaluated
from vcdl.loop.loop import Loop
from vcdl.loop.plan import Plan, Publishing
from vcdl.pool.grid import PoolGrid
from vcdl.pool.mailboxes import PoolFolder
from vcdl.pool.pilot import Pilot
from vcdl.rules.base import Update
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.wire.layout import Vector
from vcdl.wire.weights import write_weights
from vcdl.wire.workunit import OUTPUT_FILE, UpdateHeader, Workunit, WorkunitName

SIZE = 6
TIMEOUT_S = 600.0


@dataclass
class LightWorker:
    """A worker that is done with a workunit at the next wait, unless it is told to be `busy`."""

    layout: str
    ready: bool = True
    busy: bool = False
    fails_with: str = ""
    folder: Path | None = None
    sent: list[str] = field(default_factory=list)

    def train(self, workunit: str, folder: Path) -> None:
        self.folder = folder

    def send(self, **command: Any) -> None:
        self.sent.append(command["do"])

    def wait(self, timeout_s: float) -> Sequence[dict[str, Any]]:
        if self.folder is None:
            return []
        if "quit" in self.sent:
            self.sent.clear()
            self.folder = None
            return [{"event": "quit"}]
        finishes = "finish" in self.sent
        if self.busy and not finishes:
            return [{"event": "progress", "fraction": 0.5, "samples": 50}]
        folder, self.folder = self.folder, None
        if self.fails_with:
            return [{"event": "failed", "reason": self.fails_with}]
        write_update(folder, self.layout, 0.5 if finishes else 1.0)
        return [{"event": "done"}]


def write_update(folder: Path, layout: str, fraction: float) -> None:
    unit = Workunit.from_json((folder / "workunit.json").read_text())
    newest = folder / "newest_version"
    base = int(newest.read_text()) if newest.exists() else unit.base_version
    samples = round(100 * fraction)
    header = UpdateHeader(unit.job, unit.name, base, layout, samples, fraction, train_s=1.0, loss=0.5)
    write_weights(folder / OUTPUT_FILE, trained(unit.name, SIZE), header.to_json())


@dataclass
class Pool:
    """A run over a pool, and its pilots by name; `step` moves everything once, and the clock by `tick_s`."""

    served: ServedRun
    scratch: Path
    epochs: int = 2
    tick_s: float = 1.0
    late_after: float | None = 1.5
    clock: Clock = field(default_factory=Clock)
    pilots: dict[str, Pilot] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        folder = self.served.folder
        folder.model_file.write_text("{}")
        folder.shards.mkdir(parents=True, exist_ok=True)
        for shard in range(len(self.served.prepared.shard_samples)):
            folder.shard(shard).write_bytes(b"samples")
        self.start()

    def start(self) -> None:
        """Begin, or continue after the process was killed: nothing of it is left but files."""
        job = self.served.run.job
        grid = job.grid.model_copy(update={"timeout_s": TIMEOUT_S, "servers": 1})
        pacing = job.pacing.model_copy(update={"late_after": self.late_after})
        limited = job.model_copy(update={"grid": grid, "pacing": pacing})
        self.grid = PoolGrid(self.served.folder, limited, self.clock)
        self.grid.start()
        plan = replace(Plan.of(self.served.run), epochs=self.epochs, publishing=Publishing(0.0, 1e9))
        self.loop = Loop.of(self.served.run, self.grid, self.grid, plan=plan)
        self.loop.start_or_resume()

    def fly(self, name: str, **worker: Any) -> Pilot:
        """A pilot comes."""
        pool = PoolFolder.of(self.served.folder.path)
        light = LightWorker(self.served.prepared.layout.fingerprint, **worker)
        scratch = self.scratch / name
        scratch.mkdir()
        self.pilots[name] = Pilot(name, pool, light, scratch, 600.0, self.said.append, self.clock)
        return self.pilots[name]

    def step(self) -> None:
        self.clock.now_s += self.tick_s
        for name, pilot in list(self.pilots.items()):
            if not pilot.step(0):
                del self.pilots[name]
        for recorded in self.loop.step():
            if isinstance(recorded.event, EvaluationWanted):
                event = recorded.event
                self.loop.journal.append(
                    VersionEvaluated(event.version, event.epoch, event.split, 100, 0.4, 0.1, {"accuracy": 0.5})
                )

    def run(self, most: int = 3000) -> None:
        for _ in range(most):
            self.step()
            if self.loop.ended is not None:
                self.grid.close()
                return
        raise AssertionError("the job does not come to its end")

    def replayed(self) -> Vector:
        """Version 0 with the journal's updates folded in, in the order of their versions."""
        weights = self.served.initial.copy()
        for update in sorted(applied(self.served.folder.path), key=lambda update: update.version):
            fraction = update.fraction * update.trust
            brought = Update(trained(update.workunit, SIZE), 1, update.staleness, update.samples, fraction)
            VcAsgd(alpha=self.served.alpha).apply(weights, brought)
        return weights


def subtasks(workunits: Sequence[str]) -> list[tuple[int, int]]:
    return sorted((WorkunitName.parse(workunit).epoch, WorkunitName.parse(workunit).shard) for workunit in workunits)
