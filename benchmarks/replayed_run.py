"""Folds the kept uploads of a finished run again, under another update rule.

Nothing is trained. With another rule clients would have started from other weights and uploaded others. So the outcome
says how a rule treats these uploads, not how the run would have gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vcdl.errors import RunFolderError
from vcdl.journal.events import FINAL_SPLITS, VALIDATION, EvaluationWanted, UpdateApplied, VersionEvaluated
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import kept_history
from vcdl.journal.lineage import Lineage
from vcdl.journal.monitor import Monitor
from vcdl.loop.evaluator import Evaluator
from vcdl.loop.refold import Proof, Refolding
from vcdl.report.measures import Report
from vcdl.run.reading import is_finished
from vcdl.run.run import Run
from vcdl.wire.layout import Vector
from vcdl.wire.weights import read_weights


@dataclass(frozen=True)
class Compared:
    """A version's measure, that of the run's monitor, in the run and under the other rule."""

    version: int
    epoch: int
    """0: the end of the job."""
    split: str
    run: float
    replay: float


@dataclass(frozen=True)
class Replayed:
    """The outcome of a run's uploads under the other rule."""

    epochs: tuple[Compared, ...]
    """The end of each epoch, on the part of the validation set that the run used."""
    final: tuple[Compared, ...]
    """The last version on the whole validation set and on the test set."""
    weights: Vector
    """The weights of the last version, of shape (n,)."""
    is_the_runs_own: bool
    """Whether these weights are the run's own, to the last bit."""
    monitor: Monitor


def replay(run: Run) -> Replayed:
    """Fold a run again by the rule of its job, whose section `update` may be another one than the run had.

    Raises RunFolderError for a run that is not finished or did not keep its uploads, JournalError, StoreError.
    """
    folder = run.folder
    if not is_finished(folder):
        raise RunFolderError(f"{folder.path} is not finished: wait for it, or continue with `vcdl resume`")
    journal = Journal.read_only(folder.journal_file)
    try:
        report = Report(kept_history(journal).advance())
        lineage = Lineage.of(recorded.event for recorded in journal.stream(kinds=Lineage.KINDS))
        _check_kept(run, lineage.recorded)
        return _replayed(run, journal, report, lineage)
    finally:
        journal.close()


def _replayed(run: Run, journal: Journal, report: Report, lineage: Lineage) -> Replayed:
    evaluator = Evaluator(run, journal)
    evaluated = (row.event for row in journal.stream(kinds=(VersionEvaluated,)))
    measured = {(one.version, one.split): one for one in evaluated if isinstance(one, VersionEvaluated)}
    last = report.stop.version if report.stop else 0
    wanted = [
        EvaluationWanted(timed.event.version, epoch, VALIDATION) for epoch, timed in report.history.closed.items()
    ]
    wanted += [EvaluationWanted(last, 0, split) for split in FINAL_SPLITS if (last, split) in measured]
    compared: list[Compared] = []
    weights = np.empty(0, np.float32)
    for version, weights in _versions(run, lineage, {one.version for one in wanted}):
        for evaluation in (one for one in wanted if one.version == version):
            own = measured.get((version, evaluation.split))
            if own is not None:
                replayed = evaluator.evaluation(evaluation, weights)
                compared.append(_compared(report.monitor, own, replayed, evaluation.epoch))
    own_weights = read_weights(run.folder.snapshot(last), run.layout.size)[0]
    return Replayed(
        epochs=tuple(one for one in compared if one.epoch > 0),
        final=tuple(one for one in compared if one.epoch == 0),
        weights=weights,
        is_the_runs_own=own_weights.tobytes() == weights.tobytes(),
        monitor=report.monitor,
    )


def _versions(run: Run, lineage: Lineage, also: set[int]) -> Iterator[tuple[int, Vector]]:
    """Each version with its weights of shape (n,), which change in place. `also`: numbers of no update."""
    refolding = Refolding(run, lineage, proof := Proof())
    refolding.may_begin_at(0)
    for version in sorted({0, *also, *refolding.steps}):
        whole = refolding.come_to(version)
        if whole is None:
            raise RunFolderError(f"{run.folder.path} cannot be folded again: {proof.why}")
        yield version, run.state.weights(whole)


def _compared(monitor: Monitor, run: VersionEvaluated, replayed: VersionEvaluated, epoch: int) -> Compared:
    return Compared(run.version, epoch, run.split, monitor.value(run), monitor.value(replayed))


def _check_kept(run: Run, applied: list[UpdateApplied]) -> None:
    folder = run.folder
    missing = [one for one in applied if not folder.kept_upload(one.version, one.workunit).exists()]
    if missing or not run.job.keeps_uploads:
        raise RunFolderError(
            f"{folder.path} has not kept its uploads: there is nothing to fold again. "
            "Run the job again with --set retention.uploads=all"
        )
    bases = {update.base_version for update in applied}
    if not folder.snapshot(0).exists() or any(not folder.snapshot(base).exists() for base in bases):
        raise RunFolderError(f"{folder.snapshots} lacks weights that clients started from: run the job again")
