"""Describe a source and suggest a job for it.

The source is read as a run would read it. Every guess is written into the job file, where the user can correct it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.data import streamed
from vcdl.data.dataset import DataSource
from vcdl.data.readers.images import picture_table_keys
from vcdl.data.rows import Rows
from vcdl.errors import DataError
from vcdl.files.fetched import address_of, pin_address
from vcdl.job.data import DataSettings
from vcdl.job.reader import Outline
from vcdl.yaml_schema.section import section_of

_SHOWN_CLASSES = 12
"""Classes that `facts_lines` lists, so that a data set of a thousand classes still fits in one line."""
_FEWEST_EPOCHS, _MOST_EPOCHS, _SAMPLES_TRAINED = 5, 60, 20_000
"""Least and most epochs of a suggested job, and samples that it trains in all epochs between these bounds."""


@dataclass(frozen=True)
class Suggestion:
    """A source, and the suggested section `data` of a job."""

    outline: Outline
    data: Mapping[str, Any]

    def load(self) -> DataSource:
        """Load the source as a run would read it.

        Raises:
            DataError: The source is invalid.
            FileUnavailable: It cannot be read now.
        """
        settings = section_of(DataSettings, self.data, "vcdl data")
        if settings.from_ is None:
            raise DataError("there is no source: name a file or a folder")
        return streamed.load(settings.from_, settings)


def suggestion_for(source: str, label: str | None = None, given: Mapping[str, Any] | None = None) -> Suggestion:
    """Examine a source, and suggest a job's section `data` for it. A source at a URL is downloaded.

    Args:
        source: A file, a folder, or a URL.
        label: The column of labels; None: the likeliest.
        given: Keys of `data > from` that are not to be guessed.

    Raises:
        DataError, JobError, FileUnavailable, RunFolderError: The source does not exist, or no reader supports it.
    """
    given = given or {}
    try:
        address = address_of(source)
    except ValueError as error:
        raise DataError(str(error)) from error
    path, named = Path(source).resolve(), ""
    if address is not None:
        # Put the checksum into the suggested job, so that it means the same data when it is started next month.
        address = pin_address(address)
        path, named = address.copy, str(address)
    if not path.exists():
        raise DataError(f"{source} is not there: name a file or a folder")
    pictures = picture_table_keys(path, label) if path.is_dir() and given.get("as") in (None, "images") else {}
    settings = section_of(DataSettings, {"from": {"path": str(path), **pictures, **given}}, "vcdl data")
    if settings.from_ is None:
        raise DataError("there is no source: name a file or a folder")
    outline = settings.from_.outline(label)
    keys = {"path": named or str(path), **pictures, **outline.source, **given}
    if named and path.is_dir():  # a URL does not say that it is a folder
        keys["as"] = type(settings.from_).model_fields["as_"].default
    return Suggestion(outline, {"from": keys, **outline.data})


def epochs_for(source: DataSource) -> int:
    """Return the number of epochs of a suggested job: the smaller the data set, the more."""
    return min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, _SAMPLES_TRAINED // len(source.train)))


def facts_lines(source: DataSource) -> list[str]:
    """Describe a loaded source in lines: shapes, types, ranges, and the balance of the classes."""
    lines = []
    for name, part in source.parts().items():
        x = part.x
        if isinstance(x, Rows):
            low, high = float(x.numbers.low.min()), float(x.numbers.high.max())
            held = f"{len(x)} samples of shape {x.sample_shape}, {x.dtype} in shards, from {low:.6g} to {high:.6g}"
            lines.append(f"{name:<6} {held}")
    if source.classes is not None:
        counts = np.bincount(source.train.y.ravel(), minlength=source.classes.count)
        names = source.classes.names or tuple(map(str, range(source.classes.count)))
        # List the commonest classes first, because an imbalance shows in the first few.
        order = np.argsort(-counts, kind="stable")
        shown = ", ".join(
            f"{names[at]!r} {counts[at]}" if names[at].isspace() else f"{names[at]} {counts[at]}"
            for at in order[:_SHOWN_CLASSES]
        )
        more = ", …" if len(names) > _SHOWN_CLASSES else ""
        lines.append(f"labels {len(names)} classes, in train: {shown}{more}")
    elif source.train.y.size and not (isinstance(source.train.x, Rows) and source.train.x.are_labels):
        lines.append(f"labels numbers from {source.train.y.min():.6g} to {source.train.y.max():.6g}")
    return lines
