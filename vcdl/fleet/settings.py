"""The fleet file: one declarative schema, and the frozen `FleetSettings` behind it; read and refused as a job file is.

Every key is explained in docs/fleet.md; a test keeps the two in agreement.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, ValidationError, ValidationInfo, model_validator

from vcdl.errors import FleetError
from vcdl.job import values as kinds
from vcdl.job.reading import Problem, ProblemsError, problems_of, read_document, replace_key, report, show
from vcdl.job.section import Section, list_of_sections, read_section

Cloud = Literal["aws", "gcp"]
Unit = Literal["vcpu", "gpu", "instance"]
Follow = Literal["fixed", "queue"]
CpuCredits = Literal["standard", "unlimited"]

_Whole = Annotated[int, kinds.whole(0)]
_AboveZero = Annotated[float, kinds.above_zero()]
_Word = Annotated[str, kinds.text(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,254}", "a name of the cloud's")]


def _words() -> PlainValidator:
    def check(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(word, str) and word.strip() for word in value):
            raise kinds.expected("a list of names, such as [a, b]", value)
        return tuple(value)

    return PlainValidator(check)


_Words = Annotated[tuple[str, ...], _words()]


def _path_beside(raw: Any, info: ValidationInfo) -> Path | None:
    """A path relative to the fleet file's folder; whether there is something shows when it is needed."""
    if raw is None:
        return None
    if not isinstance(raw, str | Path) or not str(raw).strip():
        raise kinds.expected("the name of a file or folder", raw)
    return (info.context / raw).resolve() if info.context is not None else Path(raw)


_PathBeside = Annotated[Path | None, PlainValidator(_path_beside)]


class ProjectSettings(Section):
    """The BOINC project whose clients the instances are. The key itself is never in the file, nor in a log."""

    url: Annotated[str, kinds.text(r"https?://[^\s\"'<>\\]{1,250}", "the project's URL, http://… or https://…")]
    account_key_file: _PathBeside = None
    """A file that holds the account key (BOINC's weak one is enough), and nothing else."""
    account_key_env: (
        Annotated[str, kinds.text("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")] | None
    ) = None

    @model_validator(mode="after")
    def _is_one(self) -> "ProjectSettings":
        if (self.account_key_file is None) == (self.account_key_env is None):
            raise ValueError("expected exactly one of account_key_file, account_key_env")
        return self

    def account_key(self, environment: Mapping[str, str]) -> str:
        """The account key. Raises FleetError, without it, when it cannot be had or is none."""
        if self.account_key_file is not None:
            where = str(self.account_key_file)
            try:
                key = self.account_key_file.read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise FleetError(
                    f"the account key cannot be read from {where}: {type(error).__name__}; write it there"
                ) from None
        else:
            where = f"the environment variable {self.account_key_env}"
            key = environment.get(self.account_key_env or "", "").strip()
        if not key or len(key) > 128 or not all(c.isascii() and (c.isalnum() or c == "_") for c in key):
            raise FleetError(
                f"{where} holds no account key (letters, digits and _): take it from the project's web page, Account keys"
            )
        return key


def _moment(raw: Any) -> datetime | None:
    if raw is None or isinstance(raw, datetime):
        return raw
    try:
        moment = datetime.fromisoformat(raw)
    except (TypeError, ValueError):
        raise kinds.expected("a time such as 2026-12-01T08:00Z", raw) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_Moment = Annotated[
    datetime | None,
    PlainValidator(_moment),
    PlainSerializer(lambda moment: moment.isoformat() if moment else None),
]


class CapacitySettings(Section):
    """How much there should be."""

    unit: Annotated[Unit, kinds.one_of(Unit)] = "vcpu"
    target: Annotated[int, kinds.whole(0, 100_000)]
    """In units; where `follow` is queue, what `up` begins with while nothing is known of the queue."""
    min: _Whole = 0
    """Of `queue`, while a job is open."""
    max: Annotated[int | None, PlainValidator(lambda raw: raw)] = Field(default=None, validate_default=True)
    """Of `queue` and of `scale`; never None once loaded: the target where the file has none."""
    follow: Annotated[Follow, kinds.one_of(Follow)] = "fixed"
    project_dir: _PathBeside = None
    """Of `queue`: the project's folder on this machine."""
    units_per_subtask: _AboveZero = 1.0
    """Of `queue`: units that one subtask occupies: the threads of the app version, or 1 GPU."""
    deadline: _Moment = None
    """Of `queue`: when the open jobs should be done; None: as fast as `max` allows."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_maximum(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping) and raw.get("max") is None:
            return {**raw, "max": raw.get("target")}
        return raw

    @model_validator(mode="after")
    def _agree(self) -> "CapacitySettings":
        problems = []
        if not isinstance(self.max, int) or isinstance(self.max, bool) or self.max < 0:
            problems.append(Problem(("max",), str(kinds.expected("a whole number ≥ 0", self.max))))
        elif not self.min <= self.target <= self.max:
            problems.append(
                Problem(("target",), f"expected min ≤ target ≤ max, got {self.min} ≤ {self.target} ≤ {self.max}")
            )
        if self.follow == "queue" and self.project_dir is None:
            problems.append(Problem(("project_dir",), "is missing; follow: queue needs the BOINC project's folder"))
        if self.follow == "fixed" and (self.project_dir is not None or self.deadline is not None):
            key = "project_dir" if self.project_dir is not None else "deadline"
            problems.append(Problem((key,), "is used with `follow: queue` only; remove it"))
        if problems:
            raise ProblemsError(problems)
        return self

    @property
    def limit(self) -> int:
        """`max`, which is a number once loaded."""
        return self.max if self.max is not None else self.target


class Range(Section):
    """At least, at most; both ends included, and either may be left out."""

    min: Annotated[float, kinds.at_least(0)] = 0.0
    max: Annotated[float, kinds.above_zero()] | None = None

    def holds(self, value: float) -> bool:
        """Whether a value lies in it."""
        return self.min <= value and (self.max is None or value <= self.max)


class Requirements(Section):
    """What a type must have; those that the place offers and that meet it are allowed."""

    vcpus: Range = Range()
    memory_gb: Range = Range()
    gpus: Range = Range(max=0.5)
    """Default: none, as GPUs cost; `{min: 1, max: 1}`: exactly one."""

    def met_by(self, vcpus: int, memory_gb: float, gpus: int) -> bool:
        """Whether a type is allowed."""
        return self.vcpus.holds(vcpus) and self.memory_gb.holds(memory_gb) and self.gpus.holds(gpus)


def _section_or_none(kind: type[Section]) -> PlainValidator:
    return PlainValidator(lambda raw: raw if raw is None or isinstance(raw, kind) else read_section(kind, raw))


class InstanceSettings(Section):
    """Which types may be launched: exactly one of the two."""

    types: _Words = ()
    requirements: Annotated[Requirements | None, _section_or_none(Requirements)] = None

    @model_validator(mode="after")
    def _is_one(self) -> "InstanceSettings":
        if bool(self.types) == (self.requirements is not None):
            raise ValueError("expected exactly one of types (a list that is not empty), requirements")
        return self


class PlaceSettings(Section):
    """A region, and where in it."""

    region: _Word
    subnets: _Words = ()
    """AWS only: their ids; empty: the default subnets of the region's default VPC."""
    zones: _Words = ()
    """GCP only; empty: all of the region."""
    image: _Word | None = None
    """In place of the fleet's: on AWS an image has another id in each region."""


class FleetSettings(Section):
    """A fleet file, checked and complete."""

    name: Annotated[
        str, kinds.text("[a-z0-9][a-z0-9_-]{0,62}", "1 to 63 of a-z, 0-9, - and _, not beginning with - or _")
    ]
    """The value of the tag by which all of the fleet is found."""
    cloud: Annotated[Cloud, kinds.one_of(Cloud)]
    gcp_project: Annotated[str, kinds.text("[a-z][a-z0-9-]{4,28}[a-z0-9]", "the id of a GCP project")] | None = None
    project: ProjectSettings
    capacity: CapacitySettings
    instances: InstanceSettings
    places: Annotated[tuple[PlaceSettings, ...], list_of_sections(PlaceSettings)]
    image: _Word | None = None
    """None: Ubuntu 24.04 as its maker publishes it in that cloud."""
    disk_gb: Annotated[int, kinds.whole(8, 16_000)] = 20
    cpu_credits: Annotated[CpuCredits, kinds.one_of(CpuCredits)] = "standard"
    """Of AWS's T types. `unlimited` is AWS's own default, whose surplus at full load costs more than the spot price."""
    price_limit_usd_per_h: _AboveZero | None = None
    """A warning, never a bid: AWS interrupts those that bid."""
    budget_usd: _AboveZero | None = None
    """A hard stop: once the ledger says so much is spent, the fleet is drained and taken down."""
    tags: Annotated[Mapping[str, str], PlainValidator(lambda raw: _tags(raw))] = Field(
        default_factory=lambda: MappingProxyType({})
    )
    shutdown_when_unreachable_s: Annotated[int, kinds.whole(60)] = 1800
    """An instance that has not reached the project for so long shuts itself down."""
    rest_s: Annotated[int, kinds.whole(30, 86_400)] = 900
    """How long a pool without capacity is left alone."""
    drain_s: Annotated[int, kinds.whole(0, 86_400)] = 900
    """How long a drained instance may finish its subtasks before it is terminated."""
    look_every_s: Annotated[int, kinds.whole(5, 3600)] = 30
    """Between two passes of `vcdl fleet run`."""

    @model_validator(mode="after")
    def _agree(self) -> "FleetSettings":
        problems = []
        if self.cloud == "gcp" and self.gcp_project is None:
            problems.append(Problem(("gcp_project",), "is missing; add the id of the GCP project"))
        if self.cloud == "aws" and self.gcp_project is not None:
            problems.append(Problem(("gcp_project",), "is used with `cloud: gcp` only; remove it"))
        foreign = "zones" if self.cloud == "aws" else "subnets"
        for number, place in enumerate(self.places):
            if getattr(place, foreign):
                other = "gcp" if self.cloud == "aws" else "aws"
                problems.append(Problem(("places", number, foreign), f"is used with `cloud: {other}` only; remove it"))
        if problems:
            raise ProblemsError(problems)
        return self

    def image_in(self, region: str) -> str | None:
        """The image of a place, or of the fleet."""
        return next((place.image for place in self.places if place.region == region and place.image), self.image)


def load_fleet_settings(path: Path, overrides: Sequence[str] = ()) -> FleetSettings:
    """Read and check a fleet file, with some of its keys replaced: `("capacity.target=8",)`.

    Raises JobError: all that is wrong with it, one problem a line.
    """
    document = read_document(path)
    for setting in overrides:
        replace_key(document, setting)
    problems = list(document.problems)
    folder = Path(os.path.abspath(path)).parent
    try:
        settings = FleetSettings.model_validate(document.values, context=folder)
    except ValidationError as error:
        refused = {problem.at for problem in problems}
        problems += [problem for problem in problems_of(error, FleetSettings) if problem.at not in refused]
        raise report(path, document, problems) from None
    if problems:
        raise report(path, document, problems)
    return settings


def _tags(raw: Any) -> Mapping[str, str]:
    """Tags that both clouds take: GCP's labels are the narrower kind."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"expected keys indented below it, got {show(raw)}")
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    problems = []
    for key, value in raw.items():
        if not (isinstance(key, str) and 0 < len(key) <= 63 and set(key) <= allowed and key[0].isalpha()):
            problems.append(Problem((str(key),), "expected a key of a-z, 0-9, - and _, beginning with a letter"))
        elif key.startswith("vcdl-"):
            problems.append(Problem((key,), "tags that begin with vcdl- are ours; choose another name"))
        elif not (isinstance(value, str) and len(value) <= 63 and set(value) <= allowed):
            problems.append(Problem((key,), str(kinds.expected("text of a-z, 0-9, - and _", value))))
    if problems:
        raise ProblemsError(problems)
    return MappingProxyType(dict(raw))
