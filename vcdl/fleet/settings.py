"""Read the fleet file into the frozen `FleetSettings`; docs/fleet.md describes every key."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, model_validator

from vcdl.files.plugins import Parts
from vcdl.fleet.project_settings import ProjectSettings
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.file_kind import FLEET
from vcdl.yaml_schema.reading import Problem, ProblemsError, show
from vcdl.yaml_schema.section import Section, list_of_sections, load_section, section_or_nothing

Cloud = str
"""Name of a cloud in `CLOUDS`."""
_KEYS_OF_ONE_CLOUD = {"zones": "gcp", "network": "gcp", "security_groups": "aws"}
"""Keys of a place that only one of our two clouds has; the provider of another package checks its keys itself."""
Unit = Literal["vcpu", "gpu", "instance"]
GRACE_S = 30
"""Longest time in seconds after its drain time until systemd powers off a machine that has not done so, to bound its
cost."""
Follow = Literal["fixed", "queue"]


def _wrong(_name: str, found: object) -> str | None:
    return None if callable(getattr(found, "of_fleet", None)) else "is no subclass of vcdl.fleet.provider.Provider"


CLOUDS: Parts[Any] = Parts("cloud", _wrong)
"""The providers (vcdl.fleet.provider) by the name of their cloud in a fleet file."""


def _parse_cloud(value: Any) -> str:
    if not isinstance(value, str) or value not in CLOUDS:
        raise ValueError(f"{kinds.expected_one_of(tuple(CLOUDS), value)}; {CLOUDS.how_to_add}")
    return value


_Whole = Annotated[int, kinds.whole(0)]
_AboveZero = Annotated[float, kinds.above_zero()]
_Word = Annotated[str, kinds.text(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,254}", "a name of the cloud's")]


_Words = Annotated[tuple[str, ...], kinds.names()]


class OnDemandSettings(Section):
    """The part of the capacity that the cloud cannot take back."""

    min: _Whole = 0
    """Units that are always on demand."""
    share: Annotated[float, kinds.fraction(zero=True, one=True)] = 0.0
    """Fraction of the wanted units that is on demand, if that is more than `min`."""
    after_s: Annotated[int, kinds.whole(0)] | None = None
    """Seconds without a preemptible instance after which on-demand instances stand in, or None for never."""

    def units(self, wanted: int) -> int:
        """Return how many of `wanted` units should be on demand at all times."""
        return min(wanted, max(self.min, math.ceil(self.share * wanted)))

    @property
    def is_used(self) -> bool:
        """Whether on-demand instances may ever be launched."""
        return bool(self.min or self.share or self.after_s is not None)


class CapacitySettings(Section):
    """The capacity that the fleet should have."""

    unit: Annotated[Unit, kinds.one_of(Unit)] = "vcpu"
    target: Annotated[int, kinds.whole(0, 100_000)]
    """Units that the fleet should have. With `follow: queue` they are used until the queue was read for the first time.
    """
    min: _Whole = 0
    """Least units while a job is open, with `follow: queue`."""
    max: _Whole | None = None
    """Most units, with `follow: queue` and for `scale`, or None for the target."""
    follow: Annotated[Follow, kinds.one_of(Follow)] = "fixed"
    project_dir: Annotated[Path, kinds.any_path()] | None = None
    """Folder of the project on this machine, for `follow: queue`."""
    units_per_subtask: _AboveZero = 1.0
    """Units that one subtask occupies, with `follow: queue`: the threads of the app version, or 1 GPU."""
    deadline: Annotated[datetime, kinds.moment()] | None = None
    """Time at which the open jobs should be done, with `follow: queue`, or None for as fast as `max` allows."""
    on_demand: OnDemandSettings = OnDemandSettings()

    @model_validator(mode="after")
    def _agree(self) -> "CapacitySettings":
        problems = []
        if not self.min <= self.target <= self.limit:
            problems.append(
                Problem(("target",), f"expected min ≤ target ≤ max, got {self.min} ≤ {self.target} ≤ {self.limit}")
            )
        if self.on_demand.min > self.target:
            problems.append(Problem(("on_demand", "min"), f"expected at most the target, {self.target}"))
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
        """`max`, or the target without one."""
        return self.target if self.max is None else self.max


class Range(Section):
    """Bounds of a number, inclusive and optional."""

    min: Annotated[float, kinds.at_least(0)] = 0.0
    max: Annotated[float, kinds.above_zero()] | None = None

    @model_validator(mode="after")
    def _agree(self) -> "Range":
        if self.max is not None and self.min > self.max:
            raise ValueError(f"expected min ≤ max, got {self.min:g} and {self.max:g}")
        return self

    def holds(self, value: float) -> bool:
        """Return whether a value lies between the bounds."""
        return self.min <= value and (self.max is None or value <= self.max)


class Requirements(Section):
    """Bounds that a type must meet to be allowed."""

    vcpus: Range = Range()
    memory_gb: Range = Range()
    gpus: Range = Range(max=0.5)
    """Number of GPUs. The default is none, because GPUs are expensive; `{min: 1, max: 1}` means exactly one."""

    def met_by(self, vcpus: int, memory_gb: float, gpus: int) -> bool:
        """Return whether a type is allowed."""
        return self.vcpus.holds(vcpus) and self.memory_gb.holds(memory_gb) and self.gpus.holds(gpus)


class InstanceSettings(Section):
    """The types that may be launched: exactly one of the two keys."""

    types: _Words = ()
    requirements: Annotated[Requirements | None, section_or_nothing(Requirements)] = None

    @model_validator(mode="after")
    def _is_one(self) -> "InstanceSettings":
        if bool(self.types) == (self.requirements is not None):
            raise ValueError("expected exactly one of types (a list that is not empty), requirements")
        return self


class PlaceSettings(Section):
    """A region and the parts of it that may be used."""

    region: _Word
    subnets: _Words = ()
    """On AWS ids (by default the default subnets of the region's default VPC), on GCP one name (by default the
    network's own)."""
    security_groups: _Words = ()
    """Ids, only on AWS. By default the VPC's default group, which admits nothing from outside."""
    network: _Word | None = None
    """Name, only on GCP. By default `default`, unless a subnet is named."""
    zones: _Words = ()
    """Names, only on GCP. By default all zones of the region."""
    image: _Word | None = None
    """Image in this region, instead of the fleet's: on AWS an image has a different id in each region."""


class AlertSettings(Section):
    """Where alerts are sent; by default only to the log."""

    command: _Words = ()
    """Command that is run with the message as one more argument."""


class FleetSettings(Section):
    """A fleet file, checked and complete."""

    name: Annotated[
        str, kinds.text("[a-z0-9][a-z0-9_-]{0,62}", "1 to 63 of a-z, 0-9, - and _, not beginning with - or _")
    ]
    """Value of the tag by which everything of the fleet is found."""
    cloud: Annotated[Cloud, PlainValidator(_parse_cloud)]
    gcp_project: Annotated[str, kinds.text("[a-z][a-z0-9-]{4,28}[a-z0-9]", "the id of a GCP project")] | None = None
    project: ProjectSettings
    capacity: CapacitySettings
    instances: InstanceSettings
    places: Annotated[tuple[PlaceSettings, ...], list_of_sections(PlaceSettings)]
    image: _Word | None = None
    """Image of the instances, or None for Ubuntu 24.04 as its maker publishes it in that cloud."""
    public_address: Annotated[bool, kinds.true_or_false()] = True
    """Whether instances get a public address; without one the subnet needs another way out, such as a NAT gateway."""
    ssh: Annotated[bool, kinds.true_or_false()] = False
    """Whether the image's SSH server runs; nothing else listens on an instance."""
    disk_gb: Annotated[int, kinds.whole(8, 16_000)] = 20
    unit_limit_usd_per_h: _AboveZero | None = None
    """Most dollars an hour for a unit of capacity; more expensive pools are not used."""
    budget_usd: _AboveZero | None = None
    """A hard stop: the fleet is drained and taken down once the ledger shows this cost."""
    alerts: AlertSettings = AlertSettings()
    tags: Annotated[Mapping[str, str], PlainValidator(lambda raw: _tags(raw))] = Field(
        default_factory=lambda: MappingProxyType({})
    )
    idle_shutdown_s: Annotated[int, kinds.whole(600)] = 1800
    """Seconds without a running subtask, set-up included, after which an instance powers itself off."""
    max_life_h: Annotated[int, kinds.whole(1, 8760)] = 24
    """Age in hours at which an instance drains."""
    lease_s: Annotated[int, kinds.whole(600, 604_800)] = 7200
    """Seconds without a pass that renews its lease after which an instance drains."""
    cooldown_s: Annotated[int, kinds.whole(30, 86_400)] = 900
    """Seconds for which a pool without capacity is not used."""
    drain_s: Annotated[int, kinds.whole(0, 86_400)] = 900
    """Seconds that a drained instance has to finish its subtasks before it is terminated."""
    reconcile_every_s: Annotated[int, kinds.whole(5, 3600)] = 30
    """Seconds between two passes of `vcdl fleet run`."""

    @model_validator(mode="after")
    def _agree(self) -> "FleetSettings":
        places = (problem for number in range(len(self.places)) for problem in self._problems_of_place(number))
        if problems := [*self._problems_of_clouds(), *self._problems_of_times(), *places]:
            raise ProblemsError(problems)
        return self

    def _problems_of_clouds(self) -> Iterator[Problem]:
        if self.cloud == "gcp" and self.gcp_project is None:
            yield Problem(("gcp_project",), "is missing; add the id of the GCP project")
        if self.cloud != "gcp" and self.gcp_project is not None:
            yield Problem(("gcp_project",), "is only used with `cloud: gcp`; remove it")
        if self.capacity.unit == "gpu" and any(self.image_in(region) is None for region in self.regions):
            yield Problem(("image",), "is missing; `unit: gpu` needs one with NVIDIA's driver")
        requirements = self.instances.requirements
        if self.capacity.unit != "gpu" and requirements is not None and requirements.gpus.holds(1):
            yield Problem(("capacity", "unit"), "expected gpu, as `instances > requirements` allow GPUs")

    def _problems_of_times(self) -> Iterator[Problem]:
        # A drain time longer than the lease, or a pass rarer than a quarter of it, would let leases run out in normal
        # operation.
        for key, seconds, limit, limit_s in (
            ("drain_s", self.drain_s, "lease_s", self.lease_s),
            ("lease_s", self.lease_s, "max_life_h", self.max_life_h * 3600),
            ("reconcile_every_s", self.reconcile_every_s, "a quarter of lease_s", self.lease_s / 4),
        ):
            if seconds > limit_s:
                yield Problem((key,), f"expected at most {limit}, {limit_s:g} s, got {seconds}")

    def _problems_of_place(self, number: int) -> Iterator[Problem]:
        place, is_gcp = self.places[number], self.cloud == "gcp"
        for key, owner in _KEYS_OF_ONE_CLOUD.items():
            if getattr(place, key) and self.cloud != owner and self.cloud in _KEYS_OF_ONE_CLOUD.values():
                yield Problem(("places", number, key), f"is only used with `cloud: {owner}`; remove it")
        if place.region in [one.region for one in self.places[:number]]:
            yield Problem(("places", number, "region"), f"{place.region} already has a place")
        if is_gcp and any(not zone.startswith(f"{place.region}-") for zone in place.zones):
            yield Problem(("places", number, "zones"), f"expected zones of {place.region}")
        if is_gcp and len(place.subnets) > 1:
            yield Problem(("places", number, "subnets"), "expected one: on GCP a subnet spans a region")

    @property
    def draining_s(self) -> float:
        """Seconds for which instances may still cost once they are to drain: the drain time plus four passes.

        A lease must last for two passes, so that it is renewed in time. Up to two more go by until passes see that the
        lease and the drain time are over.
        """
        return self.drain_s + 4.0 * self.reconcile_every_s

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions of the places, in the file's order."""
        return tuple(dict.fromkeys(place.region for place in self.places))

    def image_in(self, region: str) -> str | None:
        """Return the machine image for a region: that of its first place that names one, otherwise the fleet's.

        None means that neither is set, so that Ubuntu 24.04 is used.
        """
        return next((place.image for place in self.places if place.region == region and place.image), self.image)


def load_fleet_settings(path: Path, overrides: Sequence[str] = ()) -> FleetSettings:
    """Read and check a fleet file.

    Args:
        path: The file.
        overrides: Changes of its keys, such as `capacity.target=8`.

    Raises:
        JobError: The file is missing or invalid; the message has a line for each fault.
    """
    return load_section(FleetSettings, FLEET, path, overrides, Path(os.path.abspath(path)).parent)


def _tags(raw: Any) -> Mapping[str, str]:
    """Check that tags are valid on both clouds, by the rules for GCP's labels, which are stricter than AWS's."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"expected keys indented below it, got {show(raw)}")
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    problems = []
    for key, value in raw.items():
        if not (isinstance(key, str) and 0 < len(key) <= 63 and set(key) <= allowed and key[0].isalpha()):
            problems.append(Problem((str(key),), "expected a key of a-z, 0-9, - and _, beginning with a letter"))
        elif key.startswith("vcdl-"):
            problems.append(Problem((key,), "tags that start with vcdl- are reserved; choose another name"))
        elif not (isinstance(value, str) and len(value) <= 63 and set(value) <= allowed):
            problems.append(Problem((key,), str(kinds.expected("text of a-z, 0-9, - and _", value))))
    if problems:
        raise ProblemsError(problems)
    return MappingProxyType(dict(raw))
