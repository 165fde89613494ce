"""The confusion matrix of a run that has ended: its last weights on the test set, or on the validation set."""

from vcdl.models.measuring import BATCH_SIZE, outputs_of
from vcdl.report.confusion_matrix import MOST_CLASSES, MOST_DRAWN, ConfusionMatrix
from vcdl.run.export import trained_model
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.wire.task import HAS_CLASSES


def leave_confusion_matrix(folder: RunFolder, version: int) -> None:
    """Write confusion_matrix.csv, and the picture, unless there are too many classes; nothing for other tasks.

    Raises VcdlError.
    """
    from vcdl.client.compile import make_loss
    from vcdl.data.npz_file import read_split
    from vcdl.wire.normalise import normalise

    run = Run.open(folder)
    if run.job.data.task not in HAS_CLASSES:
        return
    split = "test" if run.prepared.has_test else "validation"
    x, y = read_split(folder.test_file if run.prepared.has_test else folder.validation_file)
    model = trained_model(run, version)
    if model.outputs[0].shape[-1] > MOST_CLASSES:
        return
    is_logit = make_loss(run.training.loss).get_config().get("from_logits")
    labels = (y[begin : begin + BATCH_SIZE] for begin in range(0, len(y), BATCH_SIZE))
    batches = zip(labels, outputs_of(model, normalise(x, run.prepared.normalisation)), strict=True)
    matrix = ConfusionMatrix.of(batches, run.prepared.classes, threshold=0.0 if is_logit else 0.5)
    matrix.write(folder.confusion_file)
    if len(matrix.names) <= MOST_DRAWN:
        matrix.draw(folder.confusion_picture, f"{run.name}, {split}")
