"""Apply `training > class_weight`: turn the weights of classes into weights of samples, which shards contain."""

from dataclasses import replace

import numpy as np

from vcdl.data.dataset import Dataset
from vcdl.data.labels import Classes
from vcdl.data.rows import Array
from vcdl.errors import JobError
from vcdl.job.class_weight import ClassWeight


def with_class_weights(dataset: Dataset, given: ClassWeight | None) -> Dataset:
    """Return the data set with the weight of each training and validation sample multiplied by that of its class.

    Args:
        dataset: The data set.
        given: Weights by class, or `balanced`, which gives each class n / (classes · its samples). None: nothing is
            changed.

    Raises:
        JobError: The weights do not fit the data set's classes.
    """
    if given is None:
        return dataset
    if dataset.classes is None or dataset.y_train.ndim != 1:
        raise JobError(
            "training > class_weight is for data > task: classification; give weight_train in the npz for other tasks"
        )
    by_class = (
        _balance(dataset.y_train, dataset.classes)
        if given == "balanced"
        else _weights_from_names(given, dataset.classes)
    )
    weights = _times(by_class[dataset.y_train], dataset.weights_train)
    if not weights.any():
        raise JobError("training > class_weight gives no training sample a weight above 0: nothing would be learned")
    return replace(dataset, weights_train=weights, weights_val=_times(by_class[dataset.y_val], dataset.weights_val))


def _times(weights: Array, others: Array | None) -> Array:
    return (weights if others is None else weights * others).astype(np.float32)


def _balance(y: Array, classes: Classes) -> Array:
    counts = np.bincount(y, minlength=classes.count)
    # Count only the classes that occur: then the mean weight of a sample is 1, and the scale of the loss stays the
    # same.
    present = np.count_nonzero(counts)
    return np.asarray(len(y) / (present * np.maximum(counts, 1)))


def _weights_from_names(given: ClassWeight, classes: Classes) -> Array:
    numbers = [str(number) for number in range(classes.count)]
    known = list(classes.names) or numbers
    # Accept the number of a class as well as its name. If names are such numbers themselves, accept only names, because
    # 1 could mean two classes.
    by_number = {} if set(numbers) & set(known) else dict(zip(numbers, known, strict=True))
    weights = np.ones(classes.count)
    for given_name, weight in dict(given).items():  # type: ignore[arg-type]
        name = by_number.get(str(given_name), given_name)
        if str(name) not in known:
            listed = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
            raise JobError(f"training > class_weight: {name} is no class of the data, which has {listed}"[:500])
        weights[known.index(str(name))] = float(weight)
    return weights
