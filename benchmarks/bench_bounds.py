"""The cost of bounding strangers' uploads: the time of a server for one update, with bounds and without.

    python -m benchmarks.bench_bounds [--params 105866] [--rounds 30]

First the fold alone: the upload is read and decoded, checked, and folded into a store in a folder, by the default rule;
half of the numbers are an optimizer's second moments, as by default. Then the whole parameter server of two runs, one
of strangers and one of the submitter's own machines: its look for uploads, their headers, the history of their hosts,
the fold, the journal, and the end of each upload. Before each round caches hold what another part of a server leaves in
them, so the two take turns. Processor time, medians, and the ratio.

What other processes of a server do is no part of it: the evaluator trains some uploads again (docs/trust.md).
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from vcdl.checks import UploadCheck, trained_norm
from vcdl.job import Job, save_job
from vcdl.journal.events import WorkunitCreated, WorkunitSent
from vcdl.journal.journal import Journal
from vcdl.local.upload_folder import UploadFolder
from vcdl.loop.parameter_server import ParameterServer
from vcdl.loop.streamed_upload import BufferPool, FoldSettings, StreamedUpload, open_fold
from vcdl.models.footprint import Footprint
from vcdl.rules.forecast import Forecast
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.run.run import Run
from vcdl.run.store_claim import requested_settings, store_address
from vcdl.stores import FileStore, Fold
from vcdl.trust.bounds import Bounds
from vcdl.trust.contract import UploadFacts
from vcdl.trust.measuring_pass import MeasuringPass
from vcdl.trust.reference_file import ReferenceFile
from vcdl.trust.step import StepCheck
from vcdl.wire.layout import Layout, Variable
from vcdl.wire.weights import write_weights
from vcdl.wire.workunit import Normalisation, UpdateHeader, Workunit

RULE = Forecast(staleness_damping=0.15, compensation=0.2, averaging_window=2.0, horizon=1.0)
UPLOADS = 8
SHARDS = 50
KINDS = {"own": "without", "strangers": "with"}


def layout_of(params: int) -> Layout:
    """A model of eight variables, and their second moments."""
    size = max(1, params // 8)
    names = [f"{prefix}{number}{ending}" for prefix, ending in (("v", ""), ("/", "_velocity")) for number in range(8)]
    return Layout(tuple(Variable(name, (size,), place * size) for place, name in enumerate(names)))


class Steps:
    """What honest clients bring: all begin with the same weights, and go much the same way."""

    def __init__(self, layout: Layout) -> None:
        rng = np.random.default_rng(1)
        self.layout = layout
        self.base = np.abs(rng.standard_normal(layout.size, np.float32))
        self.steps = [np.float32(0.01) * np.abs(rng.standard_normal(layout.size, np.float32)) for _ in range(UPLOADS)]
        own = Bounds(layout, 1.5, ()).row_of_step(self.base + self.steps[0], self.base, 1.0)
        self.bounds = Bounds(layout, 1.5, tuple(own.tolist()))


class Folding:
    """A store, uploads that wait for it, and bounds or none."""

    def __init__(self, folder: Path, steps: Steps, bounds: Bounds | None) -> None:
        self._folder = folder
        state = RULE.state if bounds is None else bounds.state_of(RULE)
        self._store = FileStore(folder / ("bounded" if bounds else "plain"), steps.layout.size, state)
        self._store.create(steps.base)
        self._buffers = BufferPool()
        reference = ReferenceFile(folder / "reference.h5", steps.layout)
        judges = StepCheck()

        def measuring(facts: UploadFacts, opened: ExitStack) -> MeasuringPass | None:
            return None if bounds is None else MeasuringPass(bounds, facts, reference.open(opened), judges)

        self._settings = FoldSettings(steps.layout, RULE, measuring)
        self._check = UploadCheck("bench", steps.layout, (1,), 1, steps.layout.size**0.5)

    def fold(self, waiting: int, first: int) -> float:
        """Fold waiting uploads in, between one read and one write; returns seconds for each."""
        numbers = range(first, first + waiting)
        folds = [Fold(f"s{number}", f"w{number}", 0, partial(self._begin, number)) for number in numbers]
        begun_s = time.process_time()
        self._store.fold(folds)
        return (time.process_time() - begun_s) / waiting

    def _begin(self, number: int, staleness: int) -> StreamedUpload:
        return open_fold(
            self._folder / f"{number % UPLOADS}.h5",
            self._folder / "base.h5",
            self._settings,
            UploadFacts(1, min(staleness, 9), 1, 1.0, number - 10),
            judge=self._check.judge,
            buffers=self._buffers,
        )


class Serving:
    """A parameter server of a run of its own."""

    def __init__(self, path: Path, steps: Steps, trust: str) -> None:
        self._folder, self._steps = RunFolder(path), steps
        self._folder.create()
        job = Job.model_validate(
            {
                "name": "bench",
                "model": {"builtin": "mlp"},
                "data": {"dataset": "digits", "shards": SHARDS},
                "validate": {"every": "epoch"},
                "store": {"url": f"file:{self._folder.store}"},
                "trust": trust,
            }
        )
        save_job(job, self._folder.job_file)
        prepared = Prepared(
            shard_samples=(100,) * SHARDS,
            has_test=False,
            normalisation=Normalisation(),
            layout=steps.layout,
            initial_norm=trained_norm(steps.base, steps.layout),
            store_key="bench",
            footprint=Footprint(1.0, 1.0, steps.layout.size),
            own_step=steps.bounds.first_row if trust == "strangers" else (),
            store=store_address(requested_settings(job, self._folder), self._folder),
        )
        Journal.at(self._folder.journal_file).close()
        prepared.write(self._folder)
        if trust == "strangers":
            self._folder.kept_uploads.mkdir()
        self._run = Run(self._folder, job, prepared)
        store = self._run.store()
        store.create(steps.base)
        self._run.snapshots(store).keep(0, steps.base)
        write_weights(self._folder.reference_update_file, steps.steps[0], "{}")
        self._journal = self._run.journal()
        self._server = ParameterServer.of(self._run, self._journal, UploadFolder(self._folder))
        self._server.catch_up()

    def fold(self, waiting: int, first: int) -> float:
        """Serve uploads that have come together; returns seconds for each."""
        for number in range(first, first + waiting):
            self._bring(number)
        begun_s = time.process_time()
        served = self._server.run_once()
        used_s = time.process_time() - begun_s
        if served != waiting or self._server.store.version() == 0:
            raise RuntimeError(f"{served} of {waiting} uploads were served: this is a fault of the benchmark")
        return used_s / waiting

    def _bring(self, number: int) -> None:
        unit = Workunit("bench", number // SHARDS + 1, number % SHARDS, 0, 0, seed=1, training=self._run.training)
        layout = self._steps.layout
        header = UpdateHeader("bench", unit.name, 0, layout.fingerprint, 100, 1.0, 1.0, 1.0)
        upload = self._steps.base + self._steps.steps[number % UPLOADS]
        write_weights(self._folder.uploads / f"{unit.name}.h5", upload, header.to_json())
        self._journal.append(WorkunitCreated(unit.name), WorkunitSent(unit.name, f"host-{number % 10}", 10))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--params", type=int, default=105_866)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    steps = Steps(layout_of(options.params))
    with tempfile.TemporaryDirectory(prefix="vcdl-") as name:
        folder = Path(name)
        write_weights(folder / "base.h5", steps.base, "{}")
        write_weights(folder / "reference.h5", steps.steps[0], "{}")
        for number, step in enumerate(steps.steps):
            write_weights(folder / f"{number}.h5", steps.base + step, "{}")
        print(f"{options.params} weights and as many moments, {options.rounds} rounds, ms an update")
        show(
            "the fold", {"without": Folding(folder, steps, None), "with": Folding(folder, steps, steps.bounds)}, options
        )
        servers = {words: Serving(folder / trust, steps, trust) for trust, words in KINDS.items()}
        show("the server", servers, options)


def show(what: str, servers: Mapping[str, "Folding | Serving"], options: argparse.Namespace) -> None:
    """Measure both kinds in turn, and print a line for each number of uploads that wait."""
    first = 0
    for waiting in (1, 8):
        times_s: dict[str, list[float]] = {kind: [] for kind in servers}
        for _ in range(options.rounds):
            for kind, server in servers.items():
                times_s[kind].append(server.fold(waiting, first))
            first += waiting
        without, bounded = (1000 * statistics.median(times_s[kind]) for kind in ("without", "with"))
        print(f"{what}, {waiting} waiting: without {without:.2f}, with {bounded:.2f}, ratio {bounded / without:.2f}")


if __name__ == "__main__":
    main()
