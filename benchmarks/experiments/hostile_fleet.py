"""Simulated clients of which some are hostile: a clients file with one more key, `hostile`."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import ValidationInfo, field_validator, model_validator

from vcdl.simulate.client_fleet import ClientFleet
from vcdl.wire.workunit import WorkunitName
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.file_kind import CLIENTS
from vcdl.yaml_schema.section import Section, load_section

Attack = Literal[
    "sign_flip",
    "scaled",
    "noise",
    "constant",
    "label_flip",
    "alie",
    "inner_product",
    "statistics",
    "moments",
    "drift",
    "colluding",
    "free_rider",
    "free_rider_noise",
    "replay",
    "backdoor",
    "garbage",
    "decoy",
    "targeted",
    "part_trained",
    "little_trained",
    "other_backend",
    "tolerated",
    "hurried",
    "none",
]

SCALES: Mapping[Any, float] = MappingProxyType(
    {
        "sign_flip": 10.0,
        "scaled": 10.0,
        "noise": 10.0,
        "constant": 9.0,
        "alie": 1.5,
        "inner_product": 5.0,
        "moments": 1e15,
        "decoy": 1.45,
        "part_trained": 0.05,
        "little_trained": 0.03,
        "tolerated": 0.09,
        "hurried": 0.005,
    }
)
"""The scale of each attack that names none; 1 for the others."""

_Count = Annotated[int, kinds.whole(1)]
_AboveZero = Annotated[float, kinds.above_zero()]
_Part = Annotated[float, kinds.fraction(zero=True, one=False)]


class Hostile(Section):
    """A client that uploads something else than the weights it trained, or has another speed or name than the others.

    It attacks only when all of its conditions hold: epoch, part of the job, attempt.
    """

    client: Annotated[int, kinds.whole(0)]
    """Its number, from 0."""
    attack: Annotated[Attack, kinds.one_of(Attack)]
    scale: Annotated[float, kinds.at_least(0)] = 1.0
    """The s of benchmarks.experiments.attacks; where it is not given, the attack's own of SCALES."""
    from_epoch: Annotated[int, kinds.whole(1)] = 1
    """The first epoch whose subtasks it attacks; before, it is honest."""
    to_epoch: Annotated[int, kinds.whole(1)] | None = None
    """The last one; None: to the job's end."""
    from_part: _Part = 0.0
    """Part of the job's subtasks that must be done before it attacks."""
    from_attempt: Annotated[int, kinds.whole(0)] = 0
    """The first attempt at a subtask that it attacks; 2 is the third one."""
    speed: _AboveZero = 1.0
    """Its speed, in what it would be without this key."""
    renamed_every: _Count | None = None
    """Subtasks after which it has a new host name; None: it keeps its name."""
    names: _Count | None = None
    """Names that it uses in turns; None: one."""
    tasks: _Count = 1
    """Tasks that it has at a time, each for a little more than half of `target_s`, where it is `hurried`."""
    honest_every: _Count | None = None
    """The number of its subtasks of which one is honest; None: none is."""

    def attacks(self, name: WorkunitName, done: float) -> bool:
        """Whether it attacks a workunit when this part of the job's subtasks is done."""
        return (
            self.attack != "none"
            and self.from_epoch <= name.epoch
            and (self.to_epoch is None or name.epoch <= self.to_epoch)
            and done >= self.from_part
            and name.attempt >= self.from_attempt
        )

    @model_validator(mode="before")
    @classmethod
    def _has_its_attack_s_scale(cls, raw: Any) -> Any:
        if not isinstance(raw, Mapping) or raw.get("scale") is not None:
            return raw
        return {**raw, "scale": SCALES.get(raw.get("attack"), 1.0)}


class HostileFleet(ClientFleet):
    """A fleet with hostile clients."""

    hostile: tuple[Hostile, ...] = ()

    @field_validator("hostile", mode="before")
    @classmethod
    def _one_entry_a_client(cls, raw: Any) -> Any:
        """`{clients: [2, 7], attack: alie}` is short for an entry of each."""
        if not isinstance(raw, list):
            return raw
        entries: list[Any] = []
        for entry in raw:
            if isinstance(entry, Mapping) and isinstance(entry.get("clients"), list) and "client" not in entry:
                shared = {key: value for key, value in entry.items() if key != "clients"}
                entries += [{"client": client, **shared} for client in entry["clients"]]
            else:
                entries.append(entry)
        return entries

    @field_validator("hostile")
    @classmethod
    def _are_there(cls, hostile: tuple[Hostile, ...], info: ValidationInfo) -> tuple[Hostile, ...]:
        numbers = [one.client for one in hostile]
        clients = info.data.get("clients", math.inf)
        if any(number >= clients for number in numbers):
            raise ValueError(f"there are {clients} clients, numbered from 0; got {max(numbers)}")
        if len(set(numbers)) < len(numbers):
            raise ValueError("a client is listed twice; keep one attack of each")
        return hostile


def load_fleet(path: Path | None, overrides: Sequence[str] = ()) -> HostileFleet:
    """Read a clients file as `load_clients` does. Raises JobError."""
    return load_section(HostileFleet, CLIENTS, path, overrides)
