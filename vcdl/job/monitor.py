"""The measure by which a job is judged, from its file."""

from vcdl.client.metrics import metric_name, metric_names
from vcdl.job.training import TrainingSettings
from vcdl.journal.events import ACCURACY, LOSS
from vcdl.journal.monitor import MIN, Monitor
from vcdl.wire.task import HAS_CLASSES, Task

_SIGNED_LOSSES = ("poisson", "cosine_similarity")
"""Losses that may be below zero."""


def monitor_of(task: Task, training: TrainingSettings) -> Monitor:
    """Accuracy where it is measured, else the loss on validation data."""
    if task in HAS_CLASSES or (task != "regression" and ACCURACY in metric_names(training.metrics)):
        return Monitor()
    return Monitor(LOSS, MIN, is_signed=metric_name(training.loss) in _SIGNED_LOSSES)
