"""Write the results of a run that has ended: model, curve, confusion matrix, TensorBoard's file, summary.json.

Before a run counts as finished, plain Keras loads the exported file and evaluates it on the user's samples, as they
are. The loss must equal the evaluator's for the same weights: different code builds the two models, in different
processes.
"""

from contextlib import closing
from dataclasses import dataclass
from gc import collect
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.data.npz_file import map_split
from vcdl.data.samples import Samples, read_samples
from vcdl.errors import ModelError
from vcdl.job import Job
from vcdl.journal.events import UpdateApplied, VersionEvaluated
from vcdl.journal.journal import Journal
from vcdl.journal.observer import RunObserver, ShieldedObserver
from vcdl.models.measuring import BATCH_SIZE, as_compared, outputs_of
from vcdl.models.meter import meter_of
from vcdl.report.confusion_matrix import MOST_CLASSES, MOST_DRAWN, ConfusionMatrix
from vcdl.report.measures import Report
from vcdl.report.plot import Curve, can_draw, plot_curves
from vcdl.report.summary import summary_of, write_summary
from vcdl.report.tensorboard import write_event_file
from vcdl.run.export import load_trained_model, newest_version, write_model
from vcdl.run.folder import RunFolder
from vcdl.run.reading import read_report
from vcdl.run.run import Run
from vcdl.wire.task import HAS_CLASSES, LOSS

_MOST_SAMPLES = 10_000
"""Samples that are scored, so that a run ends soon. Of a larger validation set only a part is scored, and the run's own
model is scored on the same part."""
_ROUNDING, _SMALLEST = 0.02, 1e-6
"""Relative and absolute difference up to which losses agree. In the tests rounding changed the loss by up to 1e-4 of
its value; if inputs of 1e6 ± 1 are normalised, it may reach 1 %. A wrong model differs by far more."""


@dataclass(frozen=True)
class ExportedScore:
    """The loss of a run's last weights on validation samples, by the exported model and by the run's own."""

    exported: float
    evaluated: float
    samples: int
    """Number of samples."""

    @property
    def agrees(self) -> bool:
        """Whether rounding explains the difference; two losses of NaN agree."""
        return bool(np.isclose(self.exported, self.evaluated, rtol=_ROUNDING, atol=_SMALLEST, equal_nan=True))


def leave_results(folder: RunFolder, job: str, observer: RunObserver) -> Report:
    """Write a run's results from its journal and its last weights, and return its report.

    summary.json is written last, and marks the run as finished. Each file is replaced as a whole, so after a kill the
    function can be called again.

    Raises:
        VcdlError: A file cannot be read or written, or the exported model does not predict like the trained one.
    """
    observer, report = ShieldedObserver(observer), read_report(folder)
    observer.phase("writing model.keras")
    run = Run.open(folder)
    model = load_trained_model(run, report.stop.version if report.stop else newest_version(folder))
    write_model(run, model, folder.keras_file)
    score = compare_export(folder, report)
    if score is not None and not score.agrees:
        raise ModelError(
            f"{folder.keras_file} is not the model that was trained and measured: plain Keras gives it a loss of "
            f"{score.exported:.4g} on {score.samples} validation samples, the run's evaluator {score.evaluated:.4g}. "
            "Do not use it: report this with the job file, and train again with a newer VCDL"
        )
    if can_draw():
        observer.phase("drawing curves.png")
        plot_curves([Curve.of(folder.path.name, report)], folder.plot_file, job)
    leave_confusion_matrix(run, model)
    with closing(Journal.read_only(folder.journal_file)) as journal:
        write_event_file(folder.tensorboard, report, journal.stream(kinds=(UpdateApplied, VersionEvaluated)))
    write_summary(folder.summary_file, summary_of(job, report))
    return report


def leave_confusion_matrix(run: Run, model: Any) -> None:
    """Write confusion_matrix.csv, and a picture if there are few classes. Raises VcdlError.

    Nothing is written if the labels are not classes, if there are more than MOST_CLASSES, or if the model measures
    itself.

    Args:
        run: The run.
        model: The model that `load_trained_model` returned.
    """
    from vcdl.client.compile import make_loss, measures_itself

    if run.job.data.task not in HAS_CLASSES or measures_itself(model):
        return
    if model.outputs[0].shape[-1] > MOST_CLASSES:
        return
    folder = run.folder
    split = "test" if run.prepared.has_test else "validation"
    path = folder.test_file if run.prepared.has_test else folder.validation_file
    x, y, _ = read_samples(path, run.prepared.normalisation)
    is_logit = make_loss(run.training.loss).get_config().get("from_logits")
    labels = (y[begin : begin + BATCH_SIZE] for begin in range(0, len(y), BATCH_SIZE))
    batches = zip(labels, outputs_of(model, x), strict=True)
    matrix = ConfusionMatrix.of(batches, run.prepared.classes, threshold=0.0 if is_logit else 0.5)
    matrix.write(folder.confusion_file)
    if len(matrix.names) <= MOST_DRAWN and can_draw():
        matrix.draw(folder.confusion_picture, f"{run.name}, {split}")


def compare_export(folder: RunFolder, report: Report, *, on_all: bool = False) -> ExportedScore | None:
    """Compare the loss of a run's `model.keras` with that of its own model, on validation samples.

    Args:
        folder: The run's folder.
        report: Its report.
        on_all: Whether to score all samples and not only the first _MOST_SAMPLES, so that the evaluator's score is the
            one in the journal.

    Returns:
        Both losses. None while the last weights are not evaluated, and for a model class with training and test steps
        of its own: the exported model, which rescales its input, does not call these steps, and they may draw random
        numbers.

    Raises:
        RunFolderError, ModelError, DataError, FileUnavailable: Some file of the run is gone or damaged.
    """
    from vcdl.client.compile import measures_itself

    measured = report.final_validation
    if measured is None:
        return None
    run = Run.open(folder)
    run.permit_code()
    if run.prepared.frozen is not None:
        collect()  # free the exported model: it may be large, and its layers refer to one another
    samples = measured.samples if on_all else min(measured.samples, _MOST_SAMPLES)
    some = read_samples(folder.validation_file, run.prepared.normalisation).take(slice(samples))
    evaluated = measured.loss
    if samples < measured.samples or run.job.model.code is not None:
        trained = load_trained_model(run, measured.version)
        if measures_itself(trained):
            return None
        evaluated = _loss(trained, run, some)
    as_given = np.asarray(map_split(folder.validation_file)[0][:samples])
    exported = load_exported(folder.keras_file, run.job, folder)
    return ExportedScore(_loss(exported, run, some._replace(x=as_given)), evaluated, samples)


def load_exported(file: Path, job: Job, folder: RunFolder) -> Any:
    """Load an exported model with plain Keras. Raises ModelError.

    If the job has code of its own, which this process must be permitted to run, the model is loaded with the job's
    classes and is not compiled, because its loss may be the job's own, too.

    Args:
        file: The exported `.keras` file.
        job: The job.
        folder: The run's folder.
    """
    import keras

    from vcdl.client.model import own_parts

    if job.model.code is None:
        return keras.models.load_model(file)
    return keras.models.load_model(file, own_parts(folder.read_model_json()), compile=False)


def _loss(model: Any, run: Run, samples: Samples) -> float:
    """Compile a model with the run's loss, and return its loss on samples."""
    from vcdl.client.compile import compile_model

    compile_model(model, run.training.without_metrics())
    y = as_compared(samples.y, model)
    return float(meter_of(model).measure(samples.x, y, samples.counted, BATCH_SIZE)[LOSS])
