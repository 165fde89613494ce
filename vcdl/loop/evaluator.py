"""The evaluator measures versions of the weights on held-out data, in parallel with assimilation.

It follows the journal and evaluates each version, from its snapshot, with an `evaluation_wanted` row and no
`version_evaluated` row. It may be killed and restarted at any moment.
"""

import time
from typing import Any

import numpy as np

from vcdl.data.samples import read_samples
from vcdl.journal.events import VALIDATION, EvaluationWanted, VersionEvaluated
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import kept_history
from vcdl.models.measuring import BATCH_SIZE, as_compared, measuring
from vcdl.models.meter import meter_of
from vcdl.run.folder import RunFolder
from vcdl.run.own_statistics import OwnStatistics
from vcdl.run.run import Run
from vcdl.trust.kept_hosts import load_host_history
from vcdl.trust.reference_update import ReferenceUpdate
from vcdl.trust.retraining import Retraining
from vcdl.trust.verification import Verification
from vcdl.wire.layout import Vector
from vcdl.wire.params import ParamsHeader
from vcdl.wire.task import LOSS
from vcdl.wire.weights import read_weights


class Evaluator:
    """Evaluates the versions that one job's journal requests, and retrains drawn uploads while none is requested."""

    def __init__(self, run: Run, journal: Journal) -> None:
        """Load model and data, and follow the journal, to which results will be appended.

        In a job for strangers, this also trains and writes the first reference update.
        """
        from vcdl.client.compile import compile_model

        job, folder = run.job, run.folder
        self._folder = folder
        self._journal = journal
        self._kept = kept_history(journal)
        self._history = self._kept.state
        self._layout = run.layout
        self._model = run.load_model()
        # Keras keeps the seeds of dropout and the like as variables that are not weights. Training of a model that has
        # them cannot be repeated bit by bit on another machine, so verification must know.
        draws = len(self._model.variables) > len(self._model.weights)
        compile_model(self._model, measuring(run.training, job.data), weigh_metrics=job.data.mask is not None)
        self._meter = meter_of(self._model)
        self._statistics = OwnStatistics.of(run, self._model)
        held_out = read_samples(folder.validation_file, run.prepared.normalisation)
        # Epochs are compared with each other, so all of them are evaluated on the same part. The final evaluation uses
        # all samples.
        sample = _sample(len(held_out.x), job.validate_.samples, job.seed)
        whole = held_out._replace(y=as_compared(held_out.y, self._model))
        self._data = {VALIDATION: whole.take(sample), "final_validation": whole}
        if run.prepared.has_test:
            test = read_samples(folder.test_file, run.prepared.normalisation)
            self._data["test"] = test._replace(y=as_compared(test.y, self._model))
        self._verification: Verification | None = None
        if job.verifies:
            hosts, retraining = load_host_history(journal), self._retraining(folder)
            self._verification = Verification(run, journal, self._history, hosts, retraining, draws=draws)
        self._reference: ReferenceUpdate | None = None
        # Servers wait for the first reference update before they assimilate anything, so it cannot wait for
        # `run_once`. Its learning rate follows from the history, which has to be at the journal's end for that.
        if run.prepared.own_step:  # its bounds compare uploads with it
            self._reference = ReferenceUpdate(run, self._history, held_out.take(sample))
            self._follow()
            self._leave_first_reference(self._reference)

    def run_once(self) -> int:
        """Evaluate the requested versions; if none is requested, retrain a drawn upload for a time slice.

        Returns:
            The number of versions evaluated. Without any, a positive number if a retraining recorded a result or needs
            further slices, so that the caller should not wait before the next call.
        """
        self._follow()
        wanted = list(self._history.wanted.values())
        # Append a row for each, so that a kill loses at most the evaluation in progress.
        for evaluation in wanted:
            self._journal.append(self._evaluate(evaluation))
        # Evaluations first, as the coordinator may wait for them. Verification uses the time that is left.
        return len(wanted) or (0 if self._verification is None else self._train_again(self._verification))

    def _train_again(self, verification: Verification) -> int:
        """Retrain an upload for a time slice, and record the result; return 0 if nothing is left to retrain."""
        events = verification.next_events()
        self._journal.append(*events)
        return len(events) or int(verification.is_busy)

    def _retraining(self, folder: RunFolder) -> Retraining:
        """Return the trainer of uploads drawn for verification."""
        return Retraining(folder.verify)

    @property
    def run_has_finished(self) -> bool:
        """Whether the job has ended, so that no further evaluation will be requested."""
        return self._history.finished

    def _follow(self) -> None:
        """Apply the journal's new events to the history and to the verification."""
        # Both states, which were saved at different events, follow in one pass over the rows. Each skips the rows that
        # it has already applied.
        verification, last_id = self._verification, self._kept.last_id
        for recorded in self._journal.stream(last_id if verification is None else min(last_id, verification.last_id)):
            self._kept.follow(recorded)
            if verification is not None:
                verification.follow(recorded)

    def _evaluate(self, wanted: EvaluationWanted) -> VersionEvaluated:
        vector, _ = read_weights(self._folder.snapshot(wanted.version), self._layout.size)
        # Write the reference before the evaluation's row: servers wait for the file, not for the row, and a kill in
        # between only repeats both.
        if self._reference is not None and wanted.split == VALIDATION:
            self._reference.leave(wanted.version, vector)
        return self.evaluation(wanted, vector)

    def evaluation(self, wanted: EvaluationWanted, vector: Vector) -> VersionEvaluated:
        """Evaluate a vector of weights, and return the event without recording it.

        Args:
            wanted: The request, which names the version and the split.
            vector: The weights, shape (n,).
        """
        begin_s = time.perf_counter()
        # Optimizer moments follow the model's weights in the vector; an evaluation does not need them.
        self._meter.set(vector[: self._layout.model.size])
        # Set the statistics after the weights, because they belong to exactly these weights (decision 117).
        if self._statistics is not None:
            self._statistics.set()
        samples = self._data[wanted.split]
        measured = self._meter.measure(samples.x, samples.y, samples.counted, BATCH_SIZE)
        return VersionEvaluated(
            version=wanted.version,
            epoch=wanted.epoch,
            split=wanted.split,
            samples=len(samples.x),
            loss=float(measured[LOSS]),
            evaluation_s=time.perf_counter() - begin_s,
            metrics={name: float(np.squeeze(value)) for name, value in measured.items() if name != LOSS},
        )

    def _leave_first_reference(self, reference: ReferenceUpdate) -> None:
        """Create the first reference update now, because servers wait for it before they assimilate anything."""
        newest = max(self._folder.snapshot_versions(), default=0)
        vector, text = read_weights(self._folder.snapshot(newest), self._layout.size)
        reference.leave(ParamsHeader.from_json(text).version, vector)


def _sample(count: int, samples: int | str, seed: int) -> Any:
    """Return what to index the validation set with: a random part, the same at each call, or all of it.

    Args:
        count: Number of samples in the set.
        samples: Number of samples to take; a text, or a number that is not below `count`, means all.
        seed: The job's seed.
    """
    if isinstance(samples, str) or samples >= count:
        return slice(None)
    # Sort them, so that a memory-mapped or encoded file is read front to back.
    return np.sort(np.random.default_rng([seed, count]).permutation(count)[:samples])
