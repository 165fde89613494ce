"""Load a source of `data > from`: labels into memory, samples only when shards are cut."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vcdl.data.dataset import DataSource, Facts, Part, make_part, name_labels, number_labels, outputs_of
from vcdl.data.rows import Rows
from vcdl.data.survey import Surveyed, survey
from vcdl.errors import DataError
from vcdl.wire.task import HAS_CLASSES

if TYPE_CHECKING:
    from vcdl.job.data import DataSettings
    from vcdl.job.reader import Reader


def load(reader: "Reader", settings: "DataSettings") -> DataSource:
    """Read each part of a source once (or use its cached survey), check it, and return the parts.

    Raises:
        DataError: The source is invalid, or its parts do not agree.
        FileUnavailable: It cannot be read now.
    """
    paths = reader.parts
    surveyed = {part: survey(reader, path, settings.task, settings.normalise) for part, path in paths.items()}
    train = surveyed["train"].rows
    for part, found in surveyed.items():
        if found.rows.sample_shape != train.sample_shape:
            raise DataError(
                f"{paths[part].name}: a sample has shape {found.rows.sample_shape}, one of {paths['train'].name} "
                f"{train.sample_shape}: they must agree"
            )
    parts = {part: _part(part, found, settings, paths[part]) for part, found in surveyed.items()}
    if settings.by is not None:
        groups = reader.groups(paths["train"], settings.by, settings.task)
        if len(groups) != len(parts["train"]):
            raise DataError(f"{paths['train'].name} changed while it was read: start again once nothing writes to it")
        parts["train"] = replace(parts["train"], groups=groups)
    source = DataSource(parts["train"], parts.get("val"), parts.get("test"))
    with _naming(reader.path):
        return _number_labels(source, settings, reader)


def facts(reader: "Reader", settings: "DataSettings") -> Facts:
    """Return shapes and counts of a source. The whole source is read for them unless its survey is cached.

    Raises:
        DataError: The source is invalid, or its parts do not agree.
        FileUnavailable: It cannot be read now.
    """
    source = load(reader, settings)
    counts = {name: len(part) for name, part in source.parts().items()}
    x, y = source.train.x, source.train.y
    assert isinstance(x, Rows)  # noqa: S101
    return Facts(
        input_shape=x.sample_shape,
        outputs=outputs_of(y, source.classes, {}),
        train_samples=counts["train"],
        val_samples=counts.get("val", 0),
        test_samples=counts.get("test", 0),
        sample_bytes=x.sample_bytes + (0 if x.are_labels else y[:1].nbytes),
        packed=1.0 if x.encoded is None else float(x.encoded.size_bytes.mean() / x.sample_bytes),
    )


def _part(name: str, found: Surveyed, settings: "DataSettings", path: Path) -> Part:
    if settings.task == "autoencoder":
        # The labels of an autoencoder are its inputs, which are not in memory: use a stand-in of their shape without
        # memory.
        stand_in = np.broadcast_to(np.zeros((), found.rows.dtype), found.rows.shape)
        return Part(replace(found.rows, are_labels=True), stand_in)
    if found.y is None:
        raise DataError(f"{path.name} has no labels: say where they are, or set data > task: autoencoder")
    checked = np.zeros((found.rows.source_count, 1), found.rows.dtype)  # the survey has checked the samples
    with _naming(path):
        return Part(found.rows, make_part(name, checked, found.y, settings.task).y)


def _number_labels(source: DataSource, settings: "DataSettings", reader: "Reader") -> DataSource:
    if settings.task == "multi_label":
        return name_labels(source, settings.classes)
    if settings.task not in HAS_CLASSES:
        return source
    # Use the names in the source's metadata only if the job file lists no classes.
    return number_labels(source, settings.classes or reader.class_names() or None, settings.mask)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Prefix errors about labels with the name of the source."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path.name}: {error}") from error
