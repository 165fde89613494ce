"""The section `data` of a job file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from vcdl.files.fetched import Address, address_of, fetch
from vcdl.files.plugins import Parts
from vcdl.job.data_file import not_an_npz
from vcdl.job.keras_keys import KERAS_KEYS
from vcdl.job.labels import ClassNames, MaskLabel, first_duplicate
from vcdl.job.outputs import OutputSettings
from vcdl.job.reader import FROM, Reader
from vcdl.wire.task import MASKABLE, Task
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.reading import Problem, ProblemsError
from vcdl.yaml_schema.section import SECTION_AS_YAML, Section, exactly_one, list_of_sections

Split = Literal["iid", "dirichlet"]
Normalise = Literal["auto", "scale", "standardise", "none"]

_Count = Annotated[int, kinds.whole(1)]
_AboveZero = Annotated[float, kinds.above_zero()]
_local_file: Any = kinds.existing_file(misread=not_an_npz).func


def _file(raw: Any, info: ValidationInfo) -> Path:
    address = address_of(str(raw))
    # For remote data this is the path of a copy that does not exist yet. `fetch` downloads it when the whole job file
    # is valid, because a typo elsewhere must not cost a download.
    path: Path = _local_file(raw, info) if address is None else address.copy
    return path


def _wrong(_name: str, found: object) -> str | None:
    samples = getattr(getattr(found, "FACTS", None), "train_samples", None)
    return None if isinstance(samples, int) and callable(getattr(found, "load", None)) else "lacks `FACTS` or `load`"


SOURCES: Parts[Any] = Parts("source", _wrong)
"""Data set's name → its module, for published data sets (vcdl.data.load)."""


def _parse_source(value: Any) -> str:
    if not isinstance(value, str) or value not in SOURCES:
        raise ValueError(f"{kinds.expected_one_of(tuple(SOURCES), value)}; {SOURCES.how_to_add}")
    return value


class DataSettings(Section):
    """The data and their cut: exactly one of `dataset`, `npz` and `from` is given."""

    foreign_keys = KERAS_KEYS

    dataset: Annotated[str, PlainValidator(_parse_source)] | None = None
    """The name of a published data set, one of SOURCES."""
    npz: Annotated[Path, PlainValidator(_file)] | None = None
    _npz_address: Address | None = PrivateAttr(None)
    from_: Annotated[Reader | None, FROM, SECTION_AS_YAML] = Field(default=None, alias="from")
    """Any other source, with the reader that it needs."""
    task: Annotated[Task, kinds.one_of(Task)] = "classification"
    classes: ClassNames | None = None
    """The names of the classes, in the order of the model's outputs; or their number."""
    mask: MaskLabel | None = None
    """The label that is masked: padding of sequences, pixels without a class."""
    outputs: Annotated[tuple[OutputSettings, ...], list_of_sections(OutputSettings), SECTION_AS_YAML] | None = None
    """The outputs of a model with several, each with its own labels; None: it has one."""
    shards: _Count = 50
    split: Annotated[Split, kinds.one_of(Split)] = "iid"
    concentration: _AboveZero = 0.5
    """The parameter of the Dirichlet distribution; `iid` does not use it."""
    by: str | None = None
    """The column of a table, or the array NAME_train of an npz file, whose values determine the shards."""
    validation: Annotated[int | float, kinds.count_or_fraction()] = 0.1
    """A number of samples, or a fraction of the training set."""
    normalise: Annotated[Normalise, kinds.one_of(Normalise)] = "auto"
    """`auto`: none for whole numbers that the model accepts as such (vcdl.models.integer_inputs), else by the kind of
    the data (vcdl.data.normalisation)."""

    @field_validator("task")
    @classmethod
    def _fits_the_data(cls, task: Task, info: ValidationInfo) -> Task:
        if task != "classification" and info.data.get("dataset") is not None:
            raise ValueError(f"{info.data['dataset']} has a label for each sample; use classification")
        return task

    @field_validator("mask")
    @classmethod
    def _may_mask(cls, mask: str | int | None, info: ValidationInfo) -> str | int | None:
        if mask is not None and info.data.get("task", "classification") not in MASKABLE:
            cure = " (of several labels too: docs/data.md, `Several labels, some of them missing`)"
            raise ValueError(
                f"{info.data['task']} cannot mask labels; use it with {' or '.join(sorted(MASKABLE))}"
                f"{cure if info.data['task'] == 'multi_label' else ''}"
            )
        return mask

    @field_validator("split")
    @classmethod
    def _has_classes(cls, split: Split, info: ValidationInfo) -> Split:
        if split == "dirichlet" and info.data.get("task", "classification") != "classification":
            raise ValueError(f"dirichlet cuts by the class of a sample, which {info.data['task']} lacks; use iid")
        return split

    @field_validator("concentration")
    @classmethod
    def _is_used(cls, concentration: float, info: ValidationInfo) -> float:
        if info.data.get("split") == "iid":
            raise ValueError("is used with `split: dirichlet` only; remove it, or set the split")
        return concentration

    @field_validator("by")
    @classmethod
    def _cuts_alone(cls, by: str | None, info: ValidationInfo) -> str | None:
        if by is not None and info.data.get("split") == "dirichlet":
            raise ValueError("cuts the shards, and so does `split: dirichlet`; remove one of them")
        if by is not None and info.data.get("dataset") is not None:
            raise ValueError(f"names a column of a table or an array of an npz, and {info.data['dataset']} has none")
        return by

    @model_validator(mode="before")
    @classmethod
    def _several(cls, raw: Any) -> Any:
        # The task is filled in before the fields are validated, as `classes`, `mask` and `split` are checked against
        # it.
        return {"task": "several", **raw} if isinstance(raw, Mapping) and raw.get("outputs") else raw

    @field_validator("outputs")
    @classmethod
    def _differ(cls, outputs: tuple[OutputSettings, ...] | None, info: ValidationInfo) -> Any:
        if (twice := first_duplicate([output.name for output in outputs or ()])) is not None:
            raise ValueError(f"names {twice} twice; an output is named once")
        if outputs is not None and len(outputs) < 2:
            raise ValueError("is for several outputs; for one set data > task, training > loss and metrics")
        return outputs

    @model_validator(mode="after")
    def _fits_the_outputs(self) -> "DataSettings":
        if (self.task == "several") != (self.outputs is not None):
            message = "is set by data > outputs alone, where each output has a task; remove it"
            raise ProblemsError([Problem(("task",), message)])
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _keeps_address(cls, raw: Any, handler: ModelWrapValidatorHandler["DataSettings"]) -> "DataSettings":
        # The field `npz` contains the path of the copy only. The address may be signed, so it stays out of the run's
        # own job file, which is written from the fields.
        made = handler(raw)
        if made.npz is not None and isinstance(raw, Mapping):
            made._npz_address = address_of(str(raw["npz"]))
        return made

    def fetch(self) -> None:
        """Download remote data to this machine's copies, except copies that exist.

        Raises:
            DataError, FileUnavailable, RunFolderError: They cannot be fetched or stored.
        """
        for address in filter(None, (self._npz_address, *(self.from_.addresses if self.from_ else ()))):
            fetch(address)

    @property
    def file(self) -> Path:
        """The path of the user's own file or folder; for remote data that of the copy.

        Raises:
            ValueError: The data are a published set, which has no path: callers must check that first.
        """
        path = self.npz if self.from_ is None else self.from_.path
        if path is None:
            raise ValueError("a data set with a name has no file: this is a bug in vcdl")
        return path

    @model_validator(mode="after")
    def _is_one(self) -> "DataSettings":
        exactly_one(self, "dataset", "npz", "from_")
        return self
