"""A job in virtual time: the same coordinator, generator, assimilator and checks as everywhere, under the clock of a simulated fleet.

The journal's times are seconds since the run's begin. What is computed here and now (evaluation, folding an update in) takes no virtual time
beyond what the fleet's settings say. A run that is interrupted or killed is begun anew: it would come to the same.
"""

import contextlib
import math
from contextlib import ExitStack
from dataclasses import replace

from vcdl.codecs.choose import down_encoding, up_encoding
from vcdl.coordinator import Coordinator, StopReason
from vcdl.errors import GridError, StoreError
from vcdl.events import RunStarted
from vcdl.job import load_frozen_job
from vcdl.journal import Journal
from vcdl.parameter_server import ServerParts
from vcdl.plan import Plan
from vcdl.report.onlooker import Onlooker, Shielded
from vcdl.run.downloads import Downloads
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared, prepare, store_settings
from vcdl.simulate.fleet import Fleet
from vcdl.simulate.instant_evaluator import InstantEvaluator
from vcdl.simulate.training import Training
from vcdl.simulate.virtual_grid import VirtualGrid
from vcdl.simulate.virtual_time import VirtualTime
from vcdl.stores import WeightStore
from vcdl.stores.open import import_client_library
from vcdl.work_generator import WorkGenerator

_TRIES = 100
"""Of a subtask where clients lose them or are hostile: that is not the subtask's fault, and must not end the job."""


class VirtualRun:
    """Runs the job of a new folder; whoever calls it holds the folder's RunLock."""

    def __init__(self, folder: RunFolder, fleet: Fleet, training: Training, onlooker: Onlooker) -> None:
        self._folder = folder
        self._fleet = fleet
        self._training = training
        self._onlooker = Shielded(onlooker)
        self._job = load_frozen_job(folder.job_file)
        self._time = VirtualTime()

    def run(self) -> StopReason | None:
        """Run the job to its end and say why it ended; None: `vcdl stop` has asked to stop.

        Raises a VcdlError when the run cannot go on.
        """
        job, folder = self._job, self._folder
        import_client_library(store_settings(job, folder))
        with ExitStack() as closing:
            closing.callback(self._training.close)
            self._training.start()  # the workers import Keras while the data is cut
            prepared = prepare(folder, job, self._onlooker)
            plan = self._plan(prepared)
            journal = Journal.at(folder.journal_file, self._time.now_s)
            closing.callback(journal.close)
            ahead = 0 if job.schedule.ahead == "auto" else job.schedule.ahead
            transport, layout = job.transport.told, prepared.layout
            down, up = down_encoding(transport, layout), up_encoding(transport, layout)
            grid = VirtualGrid(self._fleet, self._time, self._training, down, up, ahead)
            server = ServerParts.of(folder, job, prepared, journal, grid, job.validate_every)
            closing.callback(server.store.close)
            closing.callback(_drop, server.store)  # nobody goes on with them, however the run ends
            evaluator = InstantEvaluator(folder, job, journal)
            shards = tuple(folder.shard(number) for number in range(plan.shards))
            coordinator = Coordinator(plan)
            generator = WorkGenerator(
                job.name,
                job.seed,
                prepared.training(job),
                shards,
                folder,
                coordinator,
                journal,
                server.snapshots,
                grid,
                Downloads(folder, layout, transport),
                job.keeps_uploads,
            )
            journal.append(RunStarted(resumed=False))
            server.catch_up(0)
            self._onlooker.phase("starting the workers")
            limit_s = plan.wall_time_s or math.inf
            while True:
                self._act(server, generator, evaluator)
                if coordinator.finished or folder.stop_request.exists():
                    break
                if not self._time.advance(limit_s):
                    raise GridError(
                        "no client has anything to do and the job is not finished: this is a mistake in vcdl"
                    )
            return StopReason(coordinator.stopped.reason) if coordinator.finished and coordinator.stopped else None

    def _plan(self, prepared: Prepared) -> Plan:
        plan = Plan.of(self._job, prepared.has_test, prepared.shard_samples)
        return plan if self._fleet.is_reliable else replace(plan, tries=max(plan.tries, _TRIES))

    def _act(self, server: ServerParts, generator: WorkGenerator, evaluator: InstantEvaluator) -> None:
        """Do all that is to be done at this moment, while the clock stands."""
        while True:
            if generator.coordinator.stopped is None:
                server.assimilator.run_once()
            new = generator.run_once(self._time.now_s())
            generator.record_sent()
            self._training.look()  # the workers go on while this process measures
            self._onlooker.events(new)
            if not evaluator.measure(new) and not new:
                return


def _drop(store: WeightStore) -> None:
    with contextlib.suppress(StoreError):  # of a server that is away now: that costs it room, and nobody a result
        store.drop()
