"""Define the key `data > from`, a source with its reader: `{path: table.csv, label: species}` or `module:function`."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field, PlainValidator, PrivateAttr, ValidationInfo

from vcdl.errors import DataError
from vcdl.files.fetched import Address, address_of
from vcdl.files.plugins import Parts
from vcdl.job.data_file import never_read
from vcdl.wire.task import Task
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.reading import Problem, ProblemsError
from vcdl.yaml_schema.section import Section, one_of_sections

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_PATHS = ("path", "validation", "test", "tokenizer")
"""Keys of readers whose value is a path."""
_ENDINGS = {
    ".csv": "table",
    ".tsv": "table",
    ".parquet": "table",
    ".pq": "table",
    ".arrow": "table",
    ".npy": "arrays",
    ".txt": "text",
}


class Block(NamedTuple):
    """Consecutive samples of a source with their labels."""

    x: "npt.NDArray[np.generic]"
    """The samples, shape (n, …), of the same number type in each block."""
    y: "npt.NDArray[np.generic] | None"
    """Their labels, shape (n, …): text or numbers; None: the source has none."""
    encoded: "Sequence[bytes] | None" = None
    """The samples as JPEG files, which are stored in place of x; None: x is stored."""


@dataclass(frozen=True)
class Outline:
    """A summary of a source, made without a job file: facts for people, and keys by which a job could use it."""

    lines: tuple[str, ...] = ()
    """Facts for people, such as a line for each column."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Keys of `data > from` in addition to `path`."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Keys of `data` in addition to `from`."""
    model: str = "mlp"
    """A model that fits: a built-in one, or the name of a file of examples/from."""


class Reader(Section, ABC):
    """The base class of readers: a source, with the keys of `data > from` that say how it is read.

    A subclass names itself by `as_: Literal["table"] = Field("table", alias="as")`.
    """

    path: Path
    validation: Path | None = None
    """The source of validation samples, read like `path`; None: they are cut from the samples of `path`."""
    test: Path | None = None
    _addresses: tuple[Address, ...] = PrivateAttr(())

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses of remote sources, empty if all are local.

        The path fields contain the paths of their local copies.
        """
        return self._addresses

    @property
    def files(self) -> tuple[Path, ...]:
        """The paths of all files and folders that the job file names for this reader, including a tokenizer's."""
        return tuple(getattr(self, key) for key in _PATHS if getattr(self, key, None) is not None)

    @property
    def parts(self) -> Mapping[str, Path]:
        """Name of a part (train, val, test) → path of its source. Parts without a source of their own are missing."""
        named = {"train": self.path, "val": self.validation, "test": self.test}
        return {part: path for part, path in named.items() if path is not None}

    @abstractmethod
    def blocks(self, path: Path, task: Task, begin: int = 0) -> Iterator[Block]:
        """Yield the samples of a part in blocks of some MB, in the same order at each call.

        Args:
            path: The part, a value of `parts`.
            task: The kind of labels.
            begin: Number of samples to skip at the start.

        Raises:
            DataError, FileUnavailable: The source cannot be read.
        """

    def encoded(self, path: Path, task: Task, begin: int = 0) -> Iterator[Sequence[bytes]]:
        """Yield only the `encoded` of the blocks of a part, for readers whose blocks have it.

        Override it if these can be read faster than whole blocks.

        Args:
            path: The part, a value of `parts`.
            task: The kind of labels.
            begin: Number of samples to skip at the start.

        Raises:
            DataError, FileUnavailable: The source cannot be read.
        """
        for block in self.blocks(path, task, begin):
            yield block.encoded or ()

    def groups(self, path: Path, by: str, task: Task) -> "npt.NDArray[np.intp]":
        """Return, for each sample of a part, the number of its value in a column: equal values form a group.

        The groups are numbered in the order of the column's values.

        Args:
            path: The part.
            by: The column.
            task: The kind of labels: samples without a label are left out.

        Raises:
            DataError: The source has no such column, or no columns at all.
            FileUnavailable: It cannot be read now.
        """
        raise DataError(f"{path.name}: data > by needs an npz file or a table, which this is not: remove it")

    def class_names(self) -> tuple[str, ...]:
        """Return the class names of a source that numbers its classes; empty: its labels themselves are the names."""
        return ()

    def outline(self, label: str | None) -> Outline:
        """Return a summary of `path`'s content for a first job file; a reader without one returns an empty Outline.

        Args:
            label: The column of labels, or None.

        Raises:
            DataError, FileUnavailable: The source cannot be read.
        """
        return Outline()

    def training_samples(self) -> int | None:
        """Return the number of training samples, exact or estimated, without reading all of `path`; None if unknown."""
        return None


def _wrong(name: str, found: object) -> str | None:
    if not (isinstance(found, type) and issubclass(found, Reader)):
        return "is no subclass of vcdl.job.reader.Reader"
    own = found.model_fields["as_"].default if "as_" in found.model_fields else None
    return None if own == name else f"calls itself {own!r}: both names must be the same"


READERS: Parts[type[Reader]] = Parts("reader", _wrong)
_one_of: Any = one_of_sections("as", READERS, cure=READERS.how_to_add).func


def _from(raw: Any, info: ValidationInfo) -> Any:
    if isinstance(raw, Reader | None):
        return raw
    fields = {"path": raw} if isinstance(raw, str | Path) else raw
    if not isinstance(fields, Mapping):
        raise kinds.expected("the name of a file or a folder, or keys indented below it", raw)
    if "path" not in fields:
        raise ProblemsError([Problem(("path",), "is missing; add it")])
    fields, addresses, key = dict(fields), [], "path"
    try:
        for key in _PATHS:
            if fields.get(key) is None:
                continue
            if (address := address_of(str(fields[key]))) is not None:
                addresses.append(address)
            fields[key] = _path(fields[key], info.context) if address is None else address.copy
        key = "path"
        if "as" not in fields:
            fields["as"] = "images" if fields.get("table") is not None else _kind_of(fields["path"])
    except ValueError as error:
        raise ProblemsError([Problem(() if isinstance(raw, str) else (key,), str(error))]) from None
    reader = _one_of(fields)
    reader._addresses = tuple(addresses)
    return reader


def _path(raw: Any, job_folder: Path | None) -> Path:
    """Return the path of a source; for a function `module:name`, that name as if it were a file in the job's folder.

    Args:
        raw: The path or function as the user gave it.
        job_folder: The folder of the job file, where relative paths start; None: whether a path exists is not checked.

    Raises:
        ValueError: There is no such file or folder. Whether a function exists is not checked.
    """
    # A file that exists wins over a function, because on Linux `module:function` is a valid file name.
    if isinstance(raw, str) and kinds.FUNCTION.fullmatch(raw) and not (job_folder and (job_folder / raw).exists()):
        return (job_folder or Path()).resolve() / raw
    return kinds.existing_path(raw, job_folder)


def _kind_of(path: Path) -> str:
    """Choose the reader for a path without the key `as`, by its ending or by a folder's content, and return its name.

    Raises:
        ValueError: No reader is known; the message contains advice.
    """
    if kinds.FUNCTION.fullmatch(path.name):
        return "python"
    # A pipe is refused without being opened, because opening it would wait for its writer.
    if path.is_fifo():
        raise ValueError(
            f"{path.name} is a pipe, which can be read once, and data are read several times: write it to a file"
        )
    if path.is_dir():
        train = path / "train"  # for a folder with parts
        names = sorted(entry.name for entry in (train if train.is_dir() else path).iterdir())
        found = {_ENDINGS.get(Path(name).suffix.lower()) for name in names} - {None, "text"}
        # A folder with several kinds of files may be meant either way. A wrong guess would train a model on nonsense
        # (decision 064), so the user decides.
        if len(found) > 1:
            raise ValueError(f"{path.name} holds {' and '.join(sorted(map(str, found)))}: say which with `as`")
        return str(found.pop()) if found else "images"
    if path.suffix.lower() in _ENDINGS:
        return _ENDINGS[path.suffix.lower()]
    raise ValueError(never_read(path) or f"{path.name}: its ending names no kind; add `as: {' or '.join(READERS)}`")


FROM = PlainValidator(_from)


def as_key(default: str) -> Any:
    """Return the pydantic field `as_` of a reader, whose key in the job file is `as`.

    Args:
        default: The reader's name.
    """
    return Field(default=default, alias="as")
