"""Try a job's first training steps before anything is created."""

from typing import TYPE_CHECKING

import numpy as np

from vcdl.client.compile import compile_model
from vcdl.client.loops import BatchLoop
from vcdl.data.rows import Array, first_of
from vcdl.errors import JobError, one_line
from vcdl.models.fitted import Fitted
from vcdl.models.measuring import as_compared, measuring
from vcdl.models.meter import KerasMeter
from vcdl.wire.inputs import parts_of
from vcdl.wire.layout import Vector
from vcdl.wire.normalise import normalise
from vcdl.wire.task import LOSS

if TYPE_CHECKING:
    from vcdl.client.trainer import Trainer
    from vcdl.job import Job
    from vcdl.job.training import TrainingSettings

_TRIED = 64
"""Samples of a trial: enough for its steps, and as few as take no noticeable time."""

_STEPS = 2
"""Steps of a trial: two, because the second one shows where the first has led."""
_BATCH = 16
"""Batch size of a trial, small because only finite weights matter here."""
_HUGE = 1e6
"""Numbers in x above this are a likelier cause of weights that are not finite than the rate. All usual units are
smaller, and from here on a rate of 0.001 moves the outputs by thousands in one step."""


def try_job(job: "Job", fit: Fitted, trainer: "Trainer") -> None:
    """Train a job's first steps; if the model is of the job's own code, measure it once as well.

    The trainer is unusable afterwards: its model runs uncompiled.

    Args:
        job: The job.
        fit: Its checked model and data.
        trainer: A trainer of the job's model.

    Raises:
        JobError: Training or measurement fails, or ends in weights that are not finite.
    """
    dataset = fit.dataset
    x = normalise(first_of(dataset.x_train, _TRIED), fit.normalisation)
    y = x if dataset.predicts_itself else dataset.y_train[:_TRIED]
    try_steps(trainer, job.training, trainer.with_moments(fit.model.weights), x, y)
    if job.model.code is None:
        return
    model = trainer.model
    compile_model(model, measuring(fit.training, job.data))
    # Run without a graph, which would take seconds to compile for a few samples.
    model.run_eagerly = True
    try:
        measured = KerasMeter(model).measure(x, as_compared(y, model), None, _BATCH)
    except Exception as error:  # the job's own code may raise anything
        raise JobError(f"training: the model cannot be measured ({one_line(error)})") from error
    missing = next((name for name in (LOSS, job.monitor.name) if name not in measured), None)
    if missing is not None:
        raise JobError(
            f"stop > monitor: the model's test_step gives {', '.join(measured)}, and no {missing}: "
            + ("return {'loss': …, …}, as Keras' own does" if missing == LOSS else "set stop > monitor to one of these")
        )


def try_steps(trainer: "Trainer", training: "TrainingSettings", begin: Vector, x: Array, y: Array) -> None:
    """Train the first steps on a few samples, without a graph. The trainer's model stays in this mode.

    Args:
        trainer: The job's trainer.
        training: The job's settings.
        begin: Weights with moments, shape (n,).
        x: Normalised samples.
        y: Their labels.

    Raises:
        JobError: Keras cannot train the model, or the steps end in weights that are not finite.
    """
    size, batches = min(training.batch_size, _BATCH, len(x)), _STEPS * training.batches_a_step
    trainer.model.run_eagerly = True
    trainer.begin(begin, 0, training.peak_rate, batches)
    try:
        BatchLoop(trainer.model).steps((x, y), np.arange(size * batches) % len(x), size)
    except Exception as error:  # Keras and its backends each raise their own exceptions
        import keras

        is_own = type(trainer.model).compile is not keras.Model.compile
        hint = (
            "; its own compile gets the job's optimizer alone: use self.optimizer for all its parts" if is_own else ""
        )
        raise JobError(f"training: Keras cannot train this model ({one_line(error)}){hint}") from error
    trained = trainer.finish()
    squares = [trained[first:behind] for first, behind in trainer.layout.second_moments]
    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = np.isfinite(trained @ trained)
    # The check of uploads refuses negative second moments, so every subtask of a job with such an optimizer would fail.
    if not is_finite or any(part.min() < 0 for part in squares):
        raise divergence_error(training, x)


def divergence_error(training: "TrainingSettings", x: Array) -> JobError:
    """Return the error for settings whose first steps end in weights that float32 cannot compute with.

    Args:
        training: The job's settings.
        x: Some samples as they are trained, shape (n, …).
    """
    name, largest = training.optimizer.name, max(float(np.abs(part).max()) for part in parts_of(x).values())
    if largest > _HUGE:
        cure = f"x holds numbers up to {largest:.2g}, set data > normalise: standardise, or scale them before"
    else:
        other = "" if name == "adam" else ", or another optimizer, such as adam"
        cure = f"name training > optimizer: {name} with a lower learning_rate{other}"
    return JobError(
        f"training: the first steps with {name} at the rate {training.peak_rate:g} end in weights that are not "
        f"finite: {cure}"
    )
