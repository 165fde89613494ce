"""The section `data` of a job file."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator, ValidationInfo, field_validator, model_validator

from vcdl.job.data_file import not_an_npz
from vcdl.job.keras_keys import KERAS_KEYS
from vcdl.wire.task import MASKABLE, NAMES_OUTPUTS, Task
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import Section, exactly_one

DataSet = Literal["fashion-mnist", "cifar10", "digits"]
Split = Literal["iid", "dirichlet"]
Normalise = Literal["auto", "scale", "standardise", "none"]

_Count = Annotated[int, kinds.whole(1)]
_AboveZero = Annotated[float, kinds.above_zero()]
_File = Annotated[Path, kinds.existing_file(misread=not_an_npz)]


_MOST_CLASSES = 1_000_000


def class_names(raw: Any) -> int | tuple[str | int, ...]:
    """Two different names or more, or a count ≥ 2. Raises ValueError."""
    if isinstance(raw, int) and not isinstance(raw, bool) and 2 <= raw <= _MOST_CLASSES:
        return raw
    if isinstance(raw, list | tuple) and len(raw) >= 2 and all(_is_name(name) for name in raw):
        kinds_of_names = {type(name) for name in raw}
        if len(kinds_of_names) > 1:
            raise ValueError("expected all names as text, or all as whole numbers; put them in quotes")
        twice = next((name for place, name in enumerate(raw) if name in raw[:place]), None)
        if twice is not None:
            raise ValueError(f"holds {twice} twice; a class is named once")
        return tuple(raw)
    raise kinds.expected(
        "a list of two names or more, such as [cat, dog], or a number of classes from 2 to 1000000", raw
    )


def mask_label(raw: Any) -> str | int:
    """A label: a whole number or text. Raises ValueError."""
    if not _is_name(raw):
        raise kinds.expected("a label, a whole number or text", raw)
    return raw  # type: ignore[no-any-return]


def _plain(classes: Any) -> Any:
    return list(classes) if isinstance(classes, tuple) else classes


def _is_name(name: Any) -> bool:
    if isinstance(name, str):
        return 0 < len(name) <= 200
    return isinstance(name, int) and not isinstance(name, bool) and abs(name) < 2**31


class DataSettings(Section):
    """The data, and how they are cut: exactly one of `dataset` and `npz`."""

    foreign_keys = KERAS_KEYS

    dataset: Annotated[DataSet, kinds.one_of(DataSet)] | None = None
    npz: _File | None = None
    task: Annotated[Task, kinds.one_of(Task)] = "classification"
    classes: Annotated[int | tuple[str | int, ...], PlainValidator(class_names), PlainSerializer(_plain)] | None = None
    """The classes by name, in the order of the model's outputs; or how many there are."""
    mask: Annotated[str | int, PlainValidator(mask_label), PlainSerializer(_plain)] | None = None
    """The label of what does not count: padding of sequences, pixels of nothing."""
    shards: _Count = 50
    split: Annotated[Split, kinds.one_of(Split)] = "iid"
    concentration: _AboveZero = 0.5
    """The parameter of the Dirichlet distribution; `iid` does not use it."""
    validation: Annotated[int | float, kinds.count_or_fraction()] = 0.1
    """A number of samples, or a fraction of the training set."""
    normalise: Annotated[Normalise, kinds.one_of(Normalise)] = "auto"
    """`auto`: nothing for whole numbers that the model takes as such (vcdl.models.integer_inputs), else `scale`."""

    @field_validator("task")
    @classmethod
    def _fits_the_data(cls, task: Task, info: ValidationInfo) -> Task:
        if task != "classification" and info.data.get("dataset") is not None:
            raise ValueError(f"{info.data['dataset']} has a label for each sample; use classification")
        return task

    @field_validator("classes")
    @classmethod
    def _names_outputs(
        cls, classes: int | tuple[str | int, ...] | None, info: ValidationInfo
    ) -> int | tuple[str | int, ...] | None:
        if classes is not None and info.data.get("task", "classification") not in NAMES_OUTPUTS:
            raise ValueError(f"{info.data['task']} has no classes; remove it")
        return classes

    @field_validator("mask")
    @classmethod
    def _may_mask(cls, mask: str | int | None, info: ValidationInfo) -> str | int | None:
        if mask is not None and info.data.get("task", "classification") not in MASKABLE:
            raise ValueError(
                f"{info.data['task']} has no labels to pass over; use it with {' or '.join(sorted(MASKABLE))}"
            )
        return mask

    @field_validator("split")
    @classmethod
    def _has_classes(cls, split: Split, info: ValidationInfo) -> Split:
        if split == "dirichlet" and info.data.get("task", "classification") != "classification":
            raise ValueError(f"dirichlet cuts by the class of a sample, which {info.data['task']} has not; use iid")
        return split

    @field_validator("concentration")
    @classmethod
    def _is_used(cls, concentration: float, info: ValidationInfo) -> float:
        if info.data.get("split") == "iid":
            raise ValueError("is used with `split: dirichlet` only; remove it, or set the split")
        return concentration

    @model_validator(mode="after")
    def _is_one(self) -> "DataSettings":
        exactly_one(self, "dataset", "npz")
        return self
