"""The section `stop` of a job file, and the measure by which the job is judged."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from vcdl.client.metrics import metric_name, metric_names
from vcdl.errors import nearest
from vcdl.job.data import DataSettings
from vcdl.job.outputs import OutputSettings
from vcdl.job.training import MOST_EPOCHS, TrainingSettings
from vcdl.journal.monitor import MAX, MIN, Monitor
from vcdl.wire.task import ACCURACY, HAS_CLASSES, LOSS, PREDICTS_NUMBERS, Task
from vcdl.wire.workunit import Named
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.reading import Problem
from vcdl.yaml_schema.section import Section

Mode = Literal["min", "max"]

_Count = Annotated[int, kinds.whole(1)]
_VALIDATION = "val_"
"""Keras' prefix of a measure on validation data; all of ours are measured there."""
_LOW = ("loss", "error", "crossentropy", "hinge", "poisson", "divergence", "perplexity", "cosh", "false_")
_RIGHT = "accuracy auc precision recall score iou similarity correlation sensitivity specificity true_"
_HIGH = tuple(_RIGHT.split())
"""Parts of the names of Keras' metrics that should be low, or high."""
_AT_MOST_ONE = ("accuracy", "auc", "precision", "recall", "score", "iou")
"""Parts of the names of measures that are at most 1, so that a target in per cent is recognised as a mistake."""
_SIGNED = ("poisson", "cosine_similarity")
"""Losses that should be low and may be negative."""


class StopSettings(Section):
    """The measure by which the job is judged, and the conditions to end it. The job ends when the first one is met."""

    epochs: Annotated[int, kinds.whole(1, MOST_EPOCHS)] = 20
    monitor: Annotated[str, kinds.text("[A-Za-z0-9_]+", "val_loss, or the name of a metric")] | None = None
    """The name of that measure; None: accuracy where it is measured, else the loss."""
    mode: Annotated[Mode, kinds.one_of(Mode)] | None = None
    """Whether it should be high or low; None: its name decides."""
    target: Annotated[float, kinds.any_number()] | None = None
    target_accuracy: Annotated[float, kinds.fraction(zero=False, one=True)] | None = None
    wall_time_s: Annotated[float, kinds.above_zero()] | None = None
    patience: _Count | None = None
    """Epochs without improvement after which the job ends."""

    def problems(self, data: DataSettings, training: TrainingSettings) -> Iterator[Problem]:
        """Yield the mistakes of this section that depend on the data's task and the measured metrics."""
        known, name = measured_names(data, training), self._name(data, training)
        if name not in known:
            near = nearest(name, ["val_loss", *known[1:]])
            yield Problem(("monitor",), f"{self.monitor} is not measured, add it to training > metrics; {near}")
        elif self.mode is None and direction(name) is None:
            yield Problem(
                ("monitor",), f"the name {name} does not say which way is better: set stop > mode to min or max"
            )
        yield from self._target_problems(data, name)

    def _target_problems(self, data: DataSettings, name: str) -> Iterator[Problem]:
        if self.target_accuracy is not None and self.target is not None:
            yield Problem(("target",), "is another name for target_accuracy here; remove one of the two")
        elif self.target_accuracy is not None and name != ACCURACY:
            message = f"is for the monitor accuracy, and the job is judged by {name}: use target"
            if self.monitor is None:
                message = f"{data.task} has no accuracy; remove it, or use target, epochs or patience"
            yield Problem(("target_accuracy",), message)
        # A target above 1, such as 95 for 95 %, would never be reached by a measure that is at most 1.
        elif self.target is not None and self.target > 1 and any(part in name for part in _AT_MOST_ONE):
            yield Problem(("target",), f"{self.target:g} is never reached: {name} is at most 1")

    def monitor_for(self, data: DataSettings, training: TrainingSettings) -> Monitor:
        """Return the measure by which the job is judged, with its direction and whether it may be negative."""
        name = self._name(data, training)
        mode = self.mode or direction(name) or MIN
        measured = metric_name(training.loss) if name == LOSS else name
        # A measure whose name is unknown may be negative, so code that compares ratios must not assume that it is
        # positive.
        is_signed = any(part in measured for part in _SIGNED) or direction(name) != MIN
        return Monitor(name, mode, is_signed=mode == MIN and is_signed)

    def _name(self, data: DataSettings, training: TrainingSettings) -> str:
        if self.monitor is not None:
            return metric_name(Named(self.monitor.removeprefix(_VALIDATION)))
        # Keras accepts `accuracy` for numbers as well, where it counts exact equality and is useless as a monitor.
        is_measured = data.task not in PREDICTS_NUMBERS and ACCURACY in metric_names(training.metrics)
        is_accuracy = data.task in HAS_CLASSES or is_measured
        return ACCURACY if is_accuracy else LOSS


def measured_names(data: DataSettings, training: TrainingSettings) -> list[str]:
    """Return the names of all measures on validation data, the loss first; with several outputs as `OUTPUT_NAME`."""
    if data.outputs is not None:
        return [LOSS, *(f"{output.name}_{name}" for output in data.outputs for name in _of_output(output))]
    return _measure_names(data.task, training.metrics)


def _of_output(output: OutputSettings) -> list[str]:
    return _measure_names(output.task, output.to_wire().metrics)


def _measure_names(task: Task, metrics: Sequence[Named]) -> list[str]:
    return list(dict.fromkeys([LOSS, *([ACCURACY] if task in HAS_CLASSES else []), *metric_names(metrics)]))


def direction(name: str) -> Mode | None:
    """Return whether a measure should be high (`max`) or low (`min`) by its name; None if the name does not show it."""
    is_low, is_high = (any(part in name for part in parts) for parts in (_LOW, _HIGH))
    # A name with words of both kinds or of neither, such as that of a user's own metric, does not show the direction.
    return None if is_low == is_high else MIN if is_low else MAX
