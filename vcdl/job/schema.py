"""The job file: one declarative schema, and the frozen `Job` behind it.

Every key is explained in docs/job-file.md; a test keeps the two in agreement. Names of optimizers, losses and
metrics are checked when Keras is loaded, not here: reading a job takes no Keras.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from vcdl.errors import JobError
from vcdl.job import values as kinds
from vcdl.job.preset import Preset, with_preset
from vcdl.job.reading import JobDumper, Problem, ProblemsError, problems_of, read_document, replace_key, report
from vcdl.job.section import SECTION_AS_YAML, Section, read_section
from vcdl.job.training import TrainingSettings
from vcdl.job.transport import TransportSettings
from vcdl.job.update import UPDATE, ForecastSettings, UpdateSettings
from vcdl.workunit import Named

DataSet = Literal["fashion-mnist", "cifar10", "digits"]
Task = Literal["classification", "regression"]
Split = Literal["iid", "dirichlet"]
Normalise = Literal["scale", "standardise", "none"]
ScheduleKind = Literal["rolling", "epoch"]
StoreConsistency = Literal["strong", "eventual"]
KeptUploads = Literal["needed", "all"]

_Count = Annotated[int, kinds.whole(1)]
_AboveZero = Annotated[float, kinds.above_zero()]
_File = Annotated[Path, kinds.existing_file()]
_ALONE = {"schedule": "kind", "store": "url"}
"""Sections that one key may stand for."""
_REGRESSION = {"loss": Named("mean_squared_error"), "metrics": (Named("mean_absolute_error"),)}


class MlpArguments(Section):
    """`builtin: {name: mlp, …}`: dense ReLU layers on the flattened input."""

    units: tuple[_Count, ...] = (128,)
    dropout: Annotated[float, kinds.fraction(zero=True, one=False)] = 0.0


class SmallCnnArguments(Section):
    """`builtin: small_cnn`: has no arguments."""


class ResnetV2Arguments(Section):
    """`builtin: {name: resnet_v2, …}`: bottleneck blocks with pre-activation (He et al. 2016)."""

    depth: Annotated[int, kinds.whole(11)] = 20

    @field_validator("depth")
    @classmethod
    def _is_three_stages(cls, depth: int) -> int:
        if depth % 9 != 2:
            near = max(11, round((depth - 2) / 9) * 9 + 2)
            raise ValueError(f"expected 9·n + 2 (11, 20, 29, …), got {depth}; the nearest is {near}")
        return depth


BUILTINS: dict[str, type[Section]] = {
    "mlp": MlpArguments,
    "small_cnn": SmallCnnArguments,
    "resnet_v2": ResnetV2Arguments,
}


class ModelSettings(Section):
    """The model: exactly one of the three."""

    builtin: Annotated[Named | None, kinds.NAMED_AS_YAML] = None
    """With all its arguments, defaults included."""
    keras_json: _File | None = None
    python: Annotated[str, kinds.function_path()] | None = None
    python_folder: Path | None = Field(default=None, validate_default=True)
    """Where the function's module is looked for first; None in the job file: that file's own folder."""

    @field_validator("builtin", mode="plain")
    @classmethod
    def _is_known(cls, raw: Any) -> Named | None:
        if raw is None:
            return None
        value = kinds.named(raw)
        if value.name not in BUILTINS:
            raise kinds.expected_one_of(tuple(BUILTINS), value.name)
        arguments = read_section(BUILTINS[value.name], value.arguments)
        return Named(value.name, arguments.model_dump(mode="json"))

    @field_validator("python_folder", mode="plain")
    @classmethod
    def _goes_with_python(cls, raw: Any, info: ValidationInfo) -> Path | None:
        if info.data.get("python") is not None:
            return kinds.folder(raw, info.context)
        if raw is not None and "python" in info.data:
            raise ValueError("is used with `python` only; remove it")
        return None

    @model_validator(mode="after")
    def _is_one(self) -> "ModelSettings":
        _exactly_one(self, "builtin", "keras_json", "python")
        return self


class DataSettings(Section):
    """The data, and how they are cut; exactly one of `dataset` and `npz`."""

    dataset: Annotated[DataSet, kinds.one_of(DataSet)] | None = None
    npz: _File | None = None
    task: Annotated[Task, kinds.one_of(Task)] = "classification"
    shards: _Count = 50
    split: Annotated[Split, kinds.one_of(Split)] = "iid"
    concentration: _AboveZero = 0.5
    """Of the Dirichlet distribution; without a meaning for `iid`."""
    validation: Annotated[int | float, kinds.count_or_fraction()] = 0.1
    """Samples, or a fraction of the training set."""
    normalise: Annotated[Normalise, kinds.one_of(Normalise)] = "scale"

    @field_validator("task")
    @classmethod
    def _fits_the_data(cls, task: Task, info: ValidationInfo) -> Task:
        if task == "regression" and info.data.get("dataset") is not None:
            raise ValueError(f"{info.data['dataset']} has labels, not numbers to predict; use classification")
        return task

    @field_validator("split")
    @classmethod
    def _has_classes(cls, split: Split, info: ValidationInfo) -> Split:
        if split == "dirichlet" and info.data.get("task") == "regression":
            raise ValueError("dirichlet cuts by class, which regression has not; use iid")
        return split

    @field_validator("concentration")
    @classmethod
    def _is_used(cls, concentration: float, info: ValidationInfo) -> float:
        if info.data.get("split") == "iid":
            raise ValueError("is used with `split: dirichlet` only; remove it, or set the split")
        return concentration

    @model_validator(mode="after")
    def _is_one(self) -> "DataSettings":
        _exactly_one(self, "dataset", "npz")
        return self


class ScheduleSettings(Section):
    """When subtasks are made."""

    kind: Annotated[ScheduleKind, kinds.one_of(ScheduleKind)] = "rolling"
    ahead: Annotated[int | Literal["auto"], kinds.whole(0, None, "auto")] = "auto"
    """Subtasks kept ready beyond those that run."""


class StopSettings(Section):
    """When the job ends; whatever comes first."""

    epochs: _Count = 20
    target_accuracy: Annotated[float, kinds.fraction(zero=False, one=True)] | None = None
    wall_time_s: _AboveZero | None = None
    patience: _Count | None = None
    """Epochs without improvement."""


class ValidateSettings(Section):
    """How often the shared weights are validated, and on how much."""

    every: Annotated[int | Literal["epoch", "update"], kinds.whole(1, None, "epoch", "update")] = 10
    """Updates; `update` is 1."""
    samples: Annotated[int | Literal["all"], kinds.whole(1, None, "all")] = 2000


class GridSettings(Section):
    """What runs the subtasks on this machine."""

    workers: Annotated[int | Literal["auto"], kinds.whole(1, None, "auto")] = "auto"
    """Processes; `auto`: one a core."""
    threads: _Count = 1
    """A worker."""
    timeout_s: _AboveZero = 600.0
    tries: _Count = 5
    servers: Annotated[int | Literal["auto"], kinds.whole(0, None, "auto")] = 1
    """Parameter servers; 1: the run's own process, 0: only `vcdl assimilator`, more or `auto`: processes beside it."""


class StoreSection(Section):
    """Where the shared weights are kept; the address is taken apart in vcdl.stores.settings."""

    url: Annotated[str, kinds.store_url()] | None = None
    """None: VCDL_STORE_URL, else a folder of the run."""
    consistency: Annotated[StoreConsistency, kinds.one_of(StoreConsistency)] = "strong"


class KeepSettings(Section):
    """What of a run is kept beyond its use."""

    uploads: Annotated[KeptUploads, kinds.one_of(KeptUploads)] = "needed"
    """`all`: for `vcdl replay`, with the weights that each started from."""


class BoincSettings(Section):
    """How a BOINC project treats the job's workunits; without a meaning on the local grid."""

    priority: Annotated[int, kinds.whole(1, 100)] = 1
    """Share of the clients, beside the other open jobs of the project."""
    deadline_s: _AboveZero = 3600.0
    """A client that has not reported a subtask by then has lost it."""


class Job(Section):
    """A job file, checked and complete: every default is filled in, every path is absolute."""

    name: Annotated[
        str, kinds.text("[a-z0-9][a-z0-9_-]{0,62}", "1 to 63 of a-z, 0-9, - and _, not beginning with - or _")
    ]
    preset: Annotated[Preset, kinds.one_of(Preset)] | None = None
    """What of it the file does not give itself is filled in from the preset."""
    seed: Annotated[int, kinds.whole(0, 2**32 - 1)] = 1
    model: ModelSettings
    data: DataSettings
    training: TrainingSettings = Field(default=TrainingSettings(), validate_default=True)
    update: Annotated[UpdateSettings, UPDATE, SECTION_AS_YAML] = ForecastSettings()
    transport: TransportSettings = TransportSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    stop: StopSettings = StopSettings()
    validate_: ValidateSettings = Field(default=ValidateSettings(), alias="validate")
    grid: GridSettings = GridSettings()
    store: StoreSection = StoreSection()
    keep: KeepSettings = KeepSettings()
    boinc: BoincSettings = BoincSettings()

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_preset(cls, raw: Any) -> Any:
        return with_preset(raw) if isinstance(raw, Mapping) else raw

    @field_validator("schedule", "store", mode="before")
    @classmethod
    def _may_be_one_word(cls, raw: Any, info: ValidationInfo) -> Any:
        return {_ALONE[str(info.field_name)]: raw} if isinstance(raw, str) else raw

    @field_validator("training")
    @classmethod
    def _fits_the_task(cls, training: TrainingSettings, info: ValidationInfo) -> TrainingSettings:
        data = info.data.get("data")
        if data is None or data.task == "classification":
            return training
        missing = {key: value for key, value in _REGRESSION.items() if key not in training.model_fields_set}
        return training.model_copy(update=missing)

    @field_validator("stop")
    @classmethod
    def _has_an_accuracy(cls, stop: StopSettings, info: ValidationInfo) -> StopSettings:
        data = info.data.get("data")
        if stop.target_accuracy is not None and data is not None and data.task == "regression":
            message = "regression has no accuracy; remove it, or stop by epochs or patience"
            raise ProblemsError([Problem(("target_accuracy",), message)])
        return stop

    @property
    def subtasks(self) -> int:
        """Of the whole job, when nothing ends it earlier."""
        return self.stop.epochs * self.data.shards

    @property
    def keeps_uploads(self) -> bool:
        """Whether nothing that could be folded again is ever removed."""
        return self.keep.uploads == "all"

    @property
    def validate_every(self) -> int:
        """In versions; 0 for the end of an epoch only."""
        every = self.validate_.every
        return 0 if every == "epoch" else 1 if every == "update" else int(every)

    def resolved(self) -> dict[str, Any]:
        """The whole job, defaults and preset filled in, as the plain values of a job file."""
        values = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        if self.data.split == "iid":
            del values["data"]["concentration"]
        return values

    def to_yaml(self) -> str:
        """`resolved` as a job file, which `load_job` reads back to an equal job."""
        return yaml.dump(self.resolved(), Dumper=JobDumper, sort_keys=False, width=110)


def load_job(path: Path, overrides: Sequence[str] = ()) -> Job:
    """Read and check a job file, with some of its keys replaced: `("stop.epochs=2",)`.

    Raises JobError: all that is wrong with it, one problem a line.
    """
    return _load(path, path.parent, overrides)


def load_frozen_job(path: Path, overrides: Sequence[str] = ()) -> Job:
    """Read what `save_job` wrote, with some of its keys replaced. The files it names were read when the run began and may be gone.

    Raises JobError.
    """
    return _load(path, None, overrides)


def save_job(job: Job, path: Path) -> None:
    """Write the job so that it is there whole or not at all. Raises JobError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(f"# Made by VCDL: the job as this run follows it.\n{job.to_yaml()}", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise JobError(f"{path}: cannot be written ({error.strerror}); check the folder and the disk") from error


def _load(path: Path, folder: Path | None, overrides: Sequence[str] = ()) -> Job:
    document = read_document(path)
    for setting in overrides:
        replace_key(document, setting)
    problems = list(document.problems)
    try:
        job = Job.model_validate(document.values, context=folder)
    except ValidationError as error:
        # What reading refused has no value; that its place is empty is not a second problem.
        refused = {problem.at for problem in problems}
        problems += [problem for problem in problems_of(error, Job) if problem.at not in refused]
        raise report(path, document, problems) from None
    if problems:
        raise report(path, document, problems)
    return job


def _exactly_one(section: Section, *keys: str) -> None:
    given = [key for key in keys if getattr(section, key) is not None]
    if len(given) != 1:
        raise ValueError(f"expected exactly one of {', '.join(keys)}; got {' and '.join(given) or 'none'}")
