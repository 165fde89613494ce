"""Take the number of classes from the model if the labels do not determine it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from vcdl.client.model import load_model
from vcdl.errors import DataError
from vcdl.models.build import json_in_file
from vcdl.wire.task import HAS_CLASSES

if TYPE_CHECKING:
    from vcdl.job import Job
    from vcdl.job.data import DataSettings
    from vcdl.job.model import ModelSettings

Loaded = TypeVar("Loaded")


def load_data_with_model_classes(job: "Job", load: "Callable[[DataSettings], Loaded]") -> Loaded:
    """Load a job's data; if the labels leave the number of classes open, take it from the model and load again.

    Args:
        job: The job.
        load: Loads the data set for the settings it is given.

    Raises:
        DataError: `load` refused the data, and the model in the job's file does not help.
        ModelError: The model's file cannot be read.
    """
    try:
        return load(job.data)
    except DataError as refused:
        if job.data.classes is not None or job.data.task not in HAS_CLASSES:
            raise
        count = _outputs_of(job.model)
        if count is None:
            raise
        try:
            # The number of outputs decides what the labels leave open, such as a class that only the test set has.
            return load(job.data.model_copy(update={"classes": count}))
        except DataError:
            # Raise the first refusal, which names the labels as the user wrote them. The second would speak of a key
            # that is not in the job file.
            raise refused from None


def _outputs_of(model: "ModelSettings") -> int | None:
    """Return the number of outputs of the model in the job's model file. Raises ModelError.

    It is None if the job's model is not in a file, has several outputs, or has too few for classes.
    """
    text = json_in_file(model)
    if text is None:
        return None
    built = load_model(text)
    count = built.outputs[0].shape[-1] if len(built.outputs) == 1 else None
    return count if count is not None and count >= 2 else None
