"""Evaluation that takes no virtual time: versions are measured in the run's own process, while the clock stands."""

from collections.abc import Sequence
from dataclasses import replace

from vcdl.coordinator import FINAL_SPLITS
from vcdl.evaluator import Evaluator
from vcdl.events import EpochClosed, EvaluationWanted, Recorded, VersionEvaluated
from vcdl.job import Job
from vcdl.journal import Journal
from vcdl.run_folder import RunFolder


class InstantEvaluator(Evaluator):
    """Evaluates into the journal of a simulated run, whose clock it shares."""

    def __init__(self, folder: RunFolder, job: Job, journal: Journal) -> None:
        super().__init__(folder, job)
        self._journal.close()
        self._journal = journal

    def measure(self, new: Sequence[Recorded]) -> int:
        """Evaluate what is wanted now, and the end of each epoch in `new` on the test set as well; returns how many versions that were."""
        test = FINAL_SPLITS[1]
        if test in self._data:
            closed = [recorded.event for recorded in new if isinstance(recorded.event, EpochClosed)]
            self._journal.append(*(EvaluationWanted(event.version, event.epoch, test) for event in closed))
        return self.run_once()

    def _evaluate(self, wanted: EvaluationWanted) -> VersionEvaluated:
        return replace(super()._evaluate(wanted), evaluation_s=0.0)
