"""Measures versions of the weights on held-out data, in a process of its own: beside assimilation, never in front of it.

`python -m vcdl.evaluator RUN_FOLDER` follows the journal: every `evaluation_wanted` without a `version_evaluated` is measured from
its snapshot. It may be killed and started again at any moment, waits while its disk is full, and ends when its standard input closes.
"""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.coordinator import FINAL_SPLITS, VALIDATION
from vcdl.errors import VcdlError
from vcdl.events import EvaluationWanted, RunFinished, RunReopened, VersionEvaluated
from vcdl.held_out import HeldOutStep
from vcdl.job import Job, load_frozen_job
from vcdl.journal import Journal
from vcdl.patience import patiently
from vcdl.processes.log import log_lines
from vcdl.processes.orphan import end_with_parent
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.weights import ParamsHeader, Vector, assign, read_weights
from vcdl.workunit import Named, Training

_BATCH_SIZE = 256
_POLL_S = 0.1


class Evaluator:
    """Evaluates the versions one job asks for."""

    def __init__(self, folder: RunFolder, job: Job, journal: Journal | None = None) -> None:
        """`journal` None: the folder's own."""
        from vcdl.client.compile import compile_model
        from vcdl.client.model import load_model
        from vcdl.data.npz_file import read_split
        from vcdl.normalise import normalise

        self._folder = folder
        self._journal = journal or Journal.at(folder.journal_file)
        self._wanted: dict[tuple[int, str], EvaluationWanted] = {}
        self._last_id = 0
        self.run_has_finished = False
        """Nothing more will be wanted."""
        prepared = Prepared.read(folder)
        self._layout = prepared.layout
        self._classifies = job.data.task == "classification"
        self._model = load_model(folder.model_file.read_text())
        compile_model(self._model, _metrics_only(prepared.training(job), self._classifies))
        x, y = read_split(folder.validation_file)
        x = normalise(x, prepared.normalisation)
        sample = _sample(len(x), job.validate_.samples, job.seed)
        self._data = {VALIDATION: (x[sample], y[sample]), "final_validation": (x, y)}
        if prepared.has_test:
            x_test, y_test = read_split(folder.test_file)
            self._data["test"] = (normalise(x_test, prepared.normalisation), y_test)
        self._held_out: HeldOutStep | None = None
        if HeldOutStep.is_asked_for(job):
            self._held_out = HeldOutStep(folder, job, prepared, *self._data[VALIDATION])
            self._follow()
            self._begin_with_a_held_out_step(self._held_out)

    def run_once(self) -> int:
        """Evaluate what is wanted now; returns how many versions that were."""
        self._follow()
        wanted = list(self._wanted.values())
        for evaluation in wanted:
            self._journal.append(self._evaluate(evaluation))
            del self._wanted[evaluation.version, evaluation.split]
        return len(wanted)

    def _follow(self) -> None:
        for recorded in self._journal.read(self._last_id):
            self._last_id = recorded.id
            if self._held_out is not None:
                self._held_out.follow(recorded)
            match recorded.event:
                case EvaluationWanted(version, _, split):
                    self._wanted[version, split] = recorded.event
                case VersionEvaluated(version=version, split=split):
                    self._wanted.pop((version, split), None)
                case RunFinished():
                    self.run_has_finished = True
                case RunReopened():
                    self.run_has_finished = False

    def close(self) -> None:
        self._journal.close()

    @property
    def final_splits(self) -> tuple[str, ...]:
        """That a job's end is measured on: those of FINAL_SPLITS that the data have."""
        return tuple(split for split in FINAL_SPLITS if split in self._data)

    def _evaluate(self, wanted: EvaluationWanted) -> VersionEvaluated:
        vector, _ = read_weights(self._folder.snapshot(wanted.version), self._layout.size)
        if self._held_out is not None and wanted.split == VALIDATION:
            self._held_out.leave(wanted.version, vector)
        return self.evaluation(wanted, vector)

    def evaluation(self, wanted: EvaluationWanted, vector: Vector) -> VersionEvaluated:
        """Of weights of shape (n,), whatever version they are said to be."""
        begin_s = time.perf_counter()
        assign(self._model, vector[: self._layout.model.size])
        x, y = self._data[wanted.split]
        measured: dict[str, Any] = self._model.evaluate(x, y, batch_size=_BATCH_SIZE, verbose=0, return_dict=True)
        return VersionEvaluated(
            version=wanted.version,
            epoch=wanted.epoch,
            split=wanted.split,
            samples=len(x),
            loss=float(measured["loss"]),
            accuracy=float(measured["accuracy"]) if self._classifies else None,
            evaluation_s=time.perf_counter() - begin_s,
        )

    def _begin_with_a_held_out_step(self, held_out: HeldOutStep) -> None:
        """Nothing is assimilated before there is one; a version is evaluated only later."""
        newest = max(self._folder.snapshots.glob("params_v*.h5"), default=self._folder.snapshot(0))
        vector, text = read_weights(newest, self._layout.size)
        held_out.leave(ParamsHeader.from_json(text).version, vector)


def _metrics_only(training: Training, classifies: bool) -> Training:
    metrics = (Named("accuracy"),) if classifies else ()
    return Training(training.optimizer, training.learning_rate, 1, 1, training.loss, metrics)


def _sample(count: int, samples: int | str, seed: int) -> Any:
    """The same random part of the validation set each time."""
    if isinstance(samples, str) or samples >= count:
        return slice(None)
    return np.sort(np.random.default_rng([seed, count]).permutation(count)[:samples])


def main(path: str) -> int:
    """Evaluate until the standard input closes."""
    end_with_parent()
    say = log_lines("evaluator")
    try:
        folder = RunFolder.existing(Path(path))
        evaluator = patiently(partial(Evaluator, folder, load_frozen_job(folder.job_file)), say)
        while True:
            if not patiently(evaluator.run_once, say):
                time.sleep(_POLL_S)
    except VcdlError as error:
        say(str(error))
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
