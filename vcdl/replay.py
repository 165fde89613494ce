"""Folds the kept uploads of a finished run again under another rule: what the server would have had of the very same uploads.

Nothing is trained. With another rule clients would have started from other weights, and uploaded others: what comes out says how a rule
treats these uploads, and not how the run would have gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vcdl.coordinator import VALIDATION
from vcdl.errors import RunFolderError
from vcdl.evaluator import Evaluator
from vcdl.events import EvaluationWanted, UpdateApplied, VersionEvaluated
from vcdl.job import Job
from vcdl.journal import Journal
from vcdl.report.measures import Report, measure
from vcdl.rules.of_job import rule_of
from vcdl.run.finding import is_finished
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.run.recovery import applied_updates, fold_again
from vcdl.weights import Vector, read_weights


@dataclass(frozen=True)
class Compared:
    """A version of the weights as the run had it, and as the other rule has it; accuracy, or the loss of a regression."""

    version: int
    epoch: int
    """0: the end of the job."""
    split: str
    run: float
    replay: float


@dataclass(frozen=True)
class Replayed:
    """What the other rule makes of a run's uploads."""

    epochs: tuple[Compared, ...]
    """The end of each epoch on the validation set, as much of it as the run used."""
    final: tuple[Compared, ...]
    """The last version on the whole validation set and on the test set."""
    weights: Vector
    """Of the last version, of shape (n,)."""
    is_the_runs_own: bool
    """Whether they are the run's own to the last bit."""
    is_regression: bool


def replay(folder: RunFolder, job: Job) -> Replayed:
    """Fold a run again by the rule of `job`: the run's own, with another section `update`.

    Raises RunFolderError for a run that is not finished or did not keep its uploads, JournalError, StoreError.
    """
    if not is_finished(folder):
        raise RunFolderError(f"{folder.path} is not finished: wait for it, or go on with `vcdl resume`")
    journal = Journal.read_only(folder.journal_file)
    try:
        report = Report.of(journal.read())
        applied = sorted(applied_updates(journal), key=lambda update: update.version)
        _check_kept(folder, job, applied)
        return _replayed(folder, job, journal, report, applied)
    finally:
        journal.close()


def _replayed(folder: RunFolder, job: Job, journal: Journal, report: Report, applied: list[UpdateApplied]) -> Replayed:
    prepared, evaluator = Prepared.read(folder), Evaluator(folder, job, journal)
    measured = {(timed.event.version, timed.event.split): timed.event for timed in report.evaluations}
    last = report.stop.version if report.stop else 0
    wanted = [EvaluationWanted(timed.event.version, epoch, VALIDATION) for epoch, timed in report.closed.items()]
    wanted += [EvaluationWanted(last, 0, split) for split in evaluator.final_splits]
    compared: list[Compared] = []
    weights = np.empty(0, np.float32)
    for version, weights in _versions(folder, job, prepared, applied):
        for evaluation in (one for one in wanted if one.version == version):
            run = measured.get((version, evaluation.split))
            if run is not None:
                compared.append(_compared(run, evaluator.evaluation(evaluation, weights), evaluation.epoch))
    own = read_weights(folder.snapshot(last), prepared.layout.size)[0]
    return Replayed(
        epochs=tuple(one for one in compared if one.epoch > 0),
        final=tuple(one for one in compared if one.epoch == 0),
        weights=weights,
        is_the_runs_own=own.tobytes() == weights.tobytes(),
        is_regression=report.is_regression,
    )


def _versions(
    folder: RunFolder, job: Job, prepared: Prepared, applied: list[UpdateApplied]
) -> Iterator[tuple[int, Vector]]:
    """Each version with its weights of shape (n,), which change in place."""
    rule, layout = rule_of(job), prepared.layout
    whole = rule.state.begun(read_weights(folder.snapshot(0), layout.size)[0])
    vector = rule.state.weights(whole)
    yield 0, vector
    for update in applied:
        fold_again(update, folder, rule, layout, whole, job.transport.told)
        yield update.version, vector


def _compared(run: VersionEvaluated, replayed: VersionEvaluated, epoch: int) -> Compared:
    return Compared(run.version, epoch, run.split, measure(run), measure(replayed))


def _check_kept(folder: RunFolder, job: Job, applied: list[UpdateApplied]) -> None:
    missing = [one for one in applied if not folder.kept_upload(one.version, one.workunit).exists()]
    if missing or not job.keeps_uploads:
        raise RunFolderError(
            f"{folder.path} has not kept its uploads: there is nothing to fold again. "
            "Run the job again with --set keep.uploads=all"
        )
    bases = {update.base_version for update in applied}
    if not folder.snapshot(0).exists() or any(not folder.snapshot(base).exists() for base in bases):
        raise RunFolderError(f"{folder.snapshots} lacks weights that clients started from: run the job again")
