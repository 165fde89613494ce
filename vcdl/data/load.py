"""Load a job's data set, or only the facts about it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from vcdl.data import npz_file, streamed
from vcdl.data.dataset import Dataset, DataSource, Facts, Part, make_part, number_labels
from vcdl.data.rows import Inputs, Rows, in_memory
from vcdl.data.split import Indices, hold_out
from vcdl.errors import DataError

if TYPE_CHECKING:
    from vcdl.job.data import DataSettings


class _NamedSource(Protocol):
    """A module with one published data set: its facts, and the function that loads it."""

    FACTS: Facts

    def load(self, local: Path | None) -> DataSource: ...


def load_dataset(data: "DataSettings", seed: int) -> Dataset:
    """Load and check a job's data set; without validation samples of its own, split some off by `seed`.

    Raises:
        DataError: The data cannot be used for the job.
        FileUnavailable: A file cannot be read now.
    """
    if data.from_ is not None:
        source = streamed.load(data.from_, data)
    elif data.npz is not None:
        source = npz_file.load(data.npz, data)
    else:
        source = _find_source(data).load(_data_folder())
        checked = {name: make_part(name, in_memory(part.x), part.y, data.task) for name, part in source.parts().items()}
        classes = data.classes or _find_source(data).FACTS.classes or None
        source = number_labels(DataSource(checked["train"], test=checked.get("test")), classes)
    train, val = (source.train, source.val) if source.val is not None else _cut_validation(source.train, data, seed)
    test = source.test
    return Dataset(
        x_train=train.x,
        y_train=train.y,
        x_val=val.x,
        y_val=val.y,
        x_test=test.x if test else None,
        y_test=test.y if test else None,
        classes=source.classes,
        classes_by_output=source.classes_by_output,
        weights_train=train.weights,
        groups_train=train.groups,
        weights_val=val.weights,
    )


def facts_of(data: "DataSettings") -> Facts:
    """Return the shapes and counts of the data set that `load_dataset` would return.

    Only a source of `data > from` is read for that, unless its survey is cached; of an `.npz` file only the labels.

    Raises:
        DataError: The data cannot be used for the job.
        FileUnavailable: A file cannot be read now.
    """
    if data.from_ is not None:
        facts = streamed.facts(data.from_, data)
    else:
        facts = npz_file.facts(data.npz, data) if data.npz is not None else _find_source(data).FACTS
    if facts.val_samples:
        return facts
    count = _validation_count(facts.train_samples, data.validation)
    return replace(facts, train_samples=facts.train_samples - count, val_samples=count)


def _find_source(data: "DataSettings") -> _NamedSource:
    """Return the module of the named source.

    Raises:
        DataError: The job names no source.
        PluginError: The source of another package cannot be loaded.
    """
    from vcdl.job.data import SOURCES

    if data.dataset is None or data.dataset not in SOURCES:
        raise DataError(f"there is no data set {data.dataset!r}: choose {', '.join(SOURCES)}, or give data > from")
    found: _NamedSource = SOURCES[data.dataset]
    return found


def _data_folder() -> Path | None:
    folder = os.environ.get("VCDL_DATA_DIR")
    return Path(folder) if folder else None


def _cut_validation(train: Part, data: "DataSettings", seed: int) -> tuple[Part, Part]:
    count = _validation_count(len(train), data.validation)
    # Use a random stream of its own (shards use [seed, 2]), so that the validation set does not change with the number
    # of shards or the way they are cut.
    rng = np.random.default_rng([seed, 1])
    keep, out = hold_out(train.y, count, data.task == "classification", rng)
    if isinstance(train.x, Rows):
        # A streamed source is read in its own order, and Rows requires ascending places.
        keep, out = np.sort(keep), np.sort(out)
    return _select(train, keep), _select(train, out)


def _select(part: Part, some: Indices) -> Part:
    x: Inputs = part.x.only(some) if isinstance(part.x, Rows) else part.x[some]
    if isinstance(x, Rows):
        # The labels of an autoencoder on the disk are a stand-in of one element, and indexing it would allocate the
        # whole array.
        y = np.broadcast_to(part.y[:1], x.shape) if x.are_labels else part.y[some]
    else:
        # Keep the identity, which marks an autoencoder (Dataset.predicts_itself): a copy would be stored a second time.
        y = x if part.y is part.x else part.y[some]
    weights, groups = (None if one is None else one[some] for one in (part.weights, part.groups))
    return Part(x, y, weights, groups)


def _validation_count(samples: int, validation: int | float) -> int:
    count = validation if isinstance(validation, int) else max(1, round(samples * validation))
    if count >= samples:
        raise DataError(f"data > validation takes {count} of {samples} training samples, and none is left: give less")
    return count
