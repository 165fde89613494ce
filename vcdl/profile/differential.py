"""Measure a job on this machine by differential runs: the same subtasks, each time with one more part of the system.

The differences show how much time each part costs (vcdl.profile.stalls).
"""

import itertools
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vcdl.data.npz_file import read_split, read_weights_of, write_split
from vcdl.errors import RunFolderError, StoreError
from vcdl.job import Job
from vcdl.journal.events import WorkunitFailed, WorkunitSent
from vcdl.journal.observer import RunObserver
from vcdl.local.grid import LocalGrid
from vcdl.local.run import local_settings
from vcdl.loop.grid import GaveUp
from vcdl.loop.loop import Loop
from vcdl.loop.preparation import prepare
from vcdl.profile.stalls import ALONE, COLD, LOOP, RUNS, TOGETHER, WARM
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import freeze
from vcdl.run.run import Run
from vcdl.run.staging import stage
from vcdl.wire.workunit import WorkunitName

WORKER = "vcdl.profile.worker"
_CUT_S = 0.6
"""Seconds above which a subtask is cut, so that five rounds take about a minute."""
_TRIAL_BATCHES = 4
"""Batches of the trial that measures a subtask's length."""
_SUBTASKS = range(2, 101)
"""Least and most subtasks of a worker in a run."""
_OWN_EPOCH = 1_000_000
"""First epoch number of the runs' own subtasks, so that they never collide with the loop's, which start at 1."""
_WAIT_S = 0.1
"""Seconds between two checks of the grid."""


@dataclass(frozen=True)
class Measured:
    """The measurements of differential runs."""

    workers: int
    cut: int
    """Number of parts into which each subtask of the job was cut, so that the measurement takes about a minute."""
    samples: int
    """Number of samples of a measured subtask: of such a part."""
    times_s: Mapping[str, Sequence[float]]
    """Name of a run (vcdl.profile.stalls) → mean seconds of a subtask in each round. COLD is missing if files cannot be
    evicted from the page cache."""


def differential_runs(
    job: Job, observer: RunObserver, worker_module: str = WORKER, rounds: int = 5, runs_s: float = 35.0
) -> Measured:
    """Prepare a job in a temporary folder, train some of its subtasks in differential runs, and return the times.

    Args:
        job: The job.
        observer: Receives the phases.
        worker_module: The module that the worker processes run.
        rounds: Number of rounds; each round makes all runs once.
        runs_s: Seconds that all rounds together should take, after the preparation.

    Raises:
        VcdlError: The job cannot be measured.
    """
    job = _measurable(job)
    with tempfile.TemporaryDirectory(prefix="vcdl-profile-") as path, ExitStack() as closing:
        folder = RunFolder(Path(path) / "run")
        folder.create()
        job = freeze(job, folder)
        settings = replace(local_settings(job), worker_module=worker_module, queue_ahead=0, hands_out_uploads=True)
        grid = LocalGrid(folder, settings)
        closing.callback(grid.close)
        grid.start()  # the workers import Keras while the data is cut
        run = prepare(folder, job, observer)
        observer.phase("compiling the model, and training some batches")
        bench = _Bench(run, grid, settings.workers)
        closing.callback(bench.close)
        cut = _parts(job, run, bench.sample_s())
        # The job is prepared again with smaller shards. `close` drops the weights of the first cut from the store.
        if cut > 1:
            bench.close()
            folder.prepared_file.unlink()
            shards = {"shards": job.data.shards * cut}
            job = freeze(job.model_copy(update={"data": job.data.model_copy(update=shards)}), folder)
            run = bench.run = prepare(folder, job, observer)
        subtask_s = bench.warm_up()
        count = min(max(round(runs_s / rounds / len(RUNS) / subtask_s), _SUBTASKS.start), _SUBTASKS.stop - 1)
        times_s: dict[str, list[float]] = {}
        for number in range(1, rounds + 1):
            observer.phase(f"round {number} of {rounds}: {len(RUNS)} runs of {count * settings.workers} subtasks")
            for name, seconds in bench.round(count):
                times_s.setdefault(name, []).append(seconds)
        return Measured(settings.workers, cut, max(run.prepared.shard_samples) * job.training.local_epochs, times_s)


def _measurable(job: Job) -> Job:
    """Return the job without stop conditions and without a trial of learning rates, and with shards of equal size."""
    ends = dict.fromkeys(("wall_time_s", "target_accuracy", "target", "patience"))
    # A run that ended in the middle of a round would measure an idle grid.
    stop = job.stop.model_copy(update={"epochs": _OWN_EPOCH - 1, **ends})
    # Unequal shards would make equal runs differ.
    data = job.data.model_copy(update={"split": "iid"})
    validation = job.validate_.model_copy(update={"every": "epoch"})
    training = job.training.model_copy(update={"learning_rate": job.training.peak_rate})
    return job.model_copy(update={"stop": stop, "data": data, "validate_": validation, "training": training})


def _parts(job: Job, run: Run, sample_s: float) -> int:
    """Return into how many parts to cut a subtask, so that each takes about _CUT_S but has some batches.

    `sample_s` are the seconds of training for a sample.
    """
    samples = max(run.prepared.shard_samples)
    wanted = samples * job.training.local_epochs * sample_s / _CUT_S
    return max(1, min(round(wanted), samples // (_TRIAL_BATCHES * job.training.batch_size)))


class _Bench:
    """Trains subtasks of one prepared run on a grid of worker processes, and measures them.

    Call `sample_s` and `warm_up` first, so that the workers have compiled the model.
    """

    def __init__(self, run: Run, grid: LocalGrid, workers: int) -> None:
        self.run = run
        self._grid, self._workers = grid, workers
        self._numbers = itertools.count(_OWN_EPOCH)
        self._loop: Loop | None = None
        self._folder = run.folder.path / "differential"
        self._folder.mkdir()
        self._in_memory, self._params = self._folder / "in_memory", self._folder / "params.h5"
        self._in_memory.touch()
        shutil.copyfile(run.downloads().path(0), self._params)  # copied, as the loop discards the version later
        self._can_evict = _can_evict(self._folder)

    def sample_s(self) -> float:
        """Train some batches on each worker, and return the seconds for a sample.

        It trains twice, because the first time includes compilation.
        """
        job, few = self.run.job, self._folder / "few.npz"
        (x, y), weights = read_split(self.run.shard_files[0]), read_weights_of(self.run.shard_files[0])
        some = slice(_TRIAL_BATCHES * job.training.batch_size)
        write_split(few, x[some], None if y is x else y[some], None if weights is None else weights[some])
        times_s = [self._train(self._workers, itertools.repeat(few, self._workers)) for _ in range(2)]
        return times_s[-1] / (len(x[some]) * job.training.local_epochs)

    def warm_up(self) -> float:
        """Train a whole shard on each worker, which keeps it in memory from then on; return a subtask's seconds."""
        self._train(self._workers, self._shards(self._workers))
        return self._train(self._workers, self._shards(self._workers))

    def round(self, count: int) -> Iterator[tuple[str, float]]:
        """Make all runs once, with `count` subtasks for each worker; yield their names and the seconds per subtask."""
        every = count * self._workers
        # Each round makes all runs one after the other, so that other work on the machine disturbs all of them alike.
        yield ALONE, self._train(1, itertools.repeat(self._in_memory, count))
        yield TOGETHER, self._train(self._workers, itertools.repeat(self._in_memory, every))
        yield WARM, self._train(self._workers, self._shards(every))
        if self._can_evict:
            yield COLD, self._train(self._workers, self._evict_shards(every))
        yield LOOP, self._train_in_loop(every)

    def close(self) -> None:
        """Close the loop, and remove the job's weights from the store, which may be outside the temporary folder."""
        if self._loop is not None:
            self._loop.close()
        store = self.run.store()
        with suppress(StoreError):
            store.drop()
        store.close()

    def _train(self, workers: int, shards: Iterator[Path]) -> float:
        """Train a subtask for each of the shard files on `workers` workers, and return the mean seconds of one."""
        cycles, is_open = _Cycles(), set[str]()
        while True:
            for shard in itertools.islice(shards, workers - len(is_open)):
                is_open.add(self._submit(shard))
            now_s = time.perf_counter()
            for sent in self._grid.sent():
                if sent.workunit in is_open:
                    cycles.begins(sent.host, now_s)
            if not is_open:
                return cycles.mean_s
            self._wait()
            now_s = time.perf_counter()
            for outcome in self._grid.claim():
                if outcome.workunit not in is_open:
                    continue  # the loop's own, which is handled in its next run
                if isinstance(outcome, GaveUp):
                    raise RunFolderError(f"a subtask cannot be trained here: {outcome.reason}")
                is_open.remove(outcome.workunit)
                self._grid.done(outcome.workunit)
                cycles.ends(outcome.host, now_s)

    def _submit(self, shard: Path) -> str:
        """Submit a subtask that trains on a shard file, and return its workunit's name."""
        name = WorkunitName(self.run.name, next(self._numbers), 0, 0, 0)
        item = replace(stage(self.run, name, 1.0), shard=shard, params=self._params)
        self._grid.submit([item])
        return item.workunit.name

    def _train_in_loop(self, count: int) -> float:
        """Let the loop submit `count` further subtasks and apply earlier ones; return mean seconds like `_train`."""
        if self._loop is None:
            # One loop for all rounds: opening it reads the journal and writes a session.
            self._loop = Loop.of(self.run, self._grid, self._grid)
            self._loop.start_or_resume()
        cycles, since_s = _Cycles(), self._loop.journal.now_s()
        while cycles.count < count:
            for recorded in self._loop.step():
                match recorded.event:
                    # Starts of the round before are reported with the first step and do not belong to this run.
                    case WorkunitSent(host=host) if recorded.time_s >= since_s:
                        cycles.begins(host, recorded.time_s)
                    case WorkunitFailed(reason=reason):
                        raise RunFolderError(f"a subtask cannot be trained here: {reason}")
            self._wait()
        # The next run must start with idle workers, or it would measure the end of this one.
        while self._grid.running() or self._grid.waiting:  # their uploads wait for the next round
            self._wait()
        self._loop.generator.record_sent()
        return cycles.mean_s

    def _wait(self) -> None:
        """Wait for the grid.

        Raises:
            RunFolderError: The disk is full, for which a run would wait.
        """
        self._grid.wait(_WAIT_S)
        if self._grid.shortage is not None:
            raise self._grid.shortage

    def _shards(self, count: int) -> Iterator[Path]:
        """Yield `count` shard files, the run's shards again and again."""
        return itertools.islice(itertools.cycle(self.run.shard_files), count)

    def _evict_shards(self, count: int) -> Iterator[Path]:
        """Yield like `_shards`, and drop each file from the page cache before."""
        for shard in self._shards(count):
            _evict(shard)
            yield shard


class _Cycles:
    """Measures cycles: from a worker's start of a subtask to its next start, or to the end of its last subtask."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._since_s: dict[str, float] = {}
        self._last_s: dict[str, float] = {}
        """Worker → the time of its last event, if it has not started another subtask."""

    def begins(self, worker: str, now_s: float) -> None:
        """Record that a worker starts a subtask."""
        if worker in self._since_s:
            # From start to start, so that the time between two subtasks is included.
            self._times_s.append(now_s - self._since_s[worker])
        self._since_s[worker] = now_s
        self._last_s.pop(worker, None)

    def ends(self, worker: str, now_s: float) -> None:
        """Record that a worker has trained a subtask."""
        self._last_s[worker] = now_s - self._since_s[worker]

    @property
    def count(self) -> int:
        """Number of cycles."""
        return len(self._times_s)

    @property
    def mean_s(self) -> float:
        """Mean seconds of a cycle."""
        return statistics.mean([*self._times_s, *self._last_s.values()])


def _evict(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as file:
        # Write dirty pages first, because they are not evicted.
        os.fsync(file)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _can_evict(folder: Path) -> bool:
    """Return whether files of a folder can be evicted from the page cache; tmpfs and macOS cannot do that."""
    # Find out by trying: tmpfs accepts the advice and keeps the pages.
    if not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"):
        return False
    probe = folder / "probe"
    probe.write_bytes(bytes(1 << 16))
    _evict(probe)
    with probe.open("rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)  # this also starts reading it
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False
