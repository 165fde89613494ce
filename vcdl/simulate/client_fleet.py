"""The simulated clients of a run: how many, how fast, how reliable, how honest. Frozen, and read like a job file.

docs/simulate.md explains every key.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationInfo, field_validator, model_validator

from vcdl.files.atomic import whole_file
from vcdl.run.folder import RunFolder
from vcdl.wire.workunit import WorkunitName
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.file_kind import CLIENTS
from vcdl.yaml_schema.reading import YamlDumper
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
    }
)
"""The scale of each attack that names none; 1 for the others."""

CLIENTS_FILE = "clients.yaml"
"""The file in a run's folder that holds its simulated clients. A folder with this file holds a simulated run."""
_TIMEOUT_SUBTASKS = 10.0

_Count = Annotated[int, kinds.whole(1)]
_Seconds = Annotated[float, kinds.at_least(0)]
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
    """The s of vcdl.simulate.hostile; where it is not given, the attack's own of SCALES."""
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


class ClientFleet(Section):
    """Settings of the simulated clients and their network; every random number comes from `seed`.

    Times are virtual seconds.
    """

    seed: Annotated[int, kinds.whole(0, 2**32 - 1)] = 1
    clients: _Count = 10
    """The paper's C."""
    slots: _Count = 2
    """Subtasks that a client runs at a time: the paper's T."""
    servers: _Count = 1
    """Parameter servers: the paper's P."""
    update_s: _Seconds = 0.0
    """How long a server takes to fold an update in; other uploads wait meanwhile."""
    subtask_s: _AboveZero = 60.0
    """Mean training time of a subtask on a client of speed 1 with one slot."""
    jitter: _Part = 0.3
    """Durations are drawn evenly from 1 − jitter to 1 + jitter of their mean."""
    speed_ratio: Annotated[float, kinds.at_least(1)] = 1.0
    """The fastest client's speed divided by the slowest's. Neighbours differ by equal ratios; the mean speed is 1."""
    core_sharing: Annotated[float, kinds.fraction(zero=True, one=True)] = 0.0
    """The fraction of `subtask_s` that each further slot adds to all subtasks of its client: 0 when every slot has its
    own core, 1 when all slots share one."""
    download_s: _Seconds = 0.0
    upload_s: _Seconds = 0.0
    """The slot trains the next subtask meanwhile."""
    link_mb_per_s: _AboveZero | None = None
    """The middle rate of the clients' links, megabytes a second each way; None: files take no time but the above."""
    link_ratio: Annotated[float, kinds.at_least(1)] = 1.0
    """The fastest link's rate divided by the slowest's. Neighbours differ by equal ratios."""
    lost: _Part = 0.0
    """Probability that a subtask is lost, after an evenly drawn fraction of its training."""
    loss_report_s: _Seconds | None = None
    """Time from a loss until the server hears of it; None: the server waits for the timeout."""
    timeout_s: _AboveZero | None = Field(default=None, validate_default=True)
    """Time from the begin of a subtask until the server gives it up; None: ten times `subtask_s`."""
    second_copies: Annotated[bool, kinds.true_or_false()] = False
    """Whether a subtask that is late goes to a second client, as on a BOINC server."""
    preempted_every_s: _AboveZero | None = None
    """Mean time between preemptions of a client (exponential); None: there are none."""
    away_s: _Seconds = 120.0
    """Mean time that a preempted client is away (exponential)."""
    checkpoint_every_s: _Seconds | None = 0.0
    """Training time between checkpoints, from which a preempted subtask continues; None: without any it is lost."""
    usd_per_h: _Seconds = 0.0
    """The price of a client for an hour, for the cost of a run."""
    hostile: tuple[Hostile, ...] = ()

    @field_validator("timeout_s")
    @classmethod
    def _has_a_default(cls, timeout_s: float | None, info: ValidationInfo) -> float | None:
        return _TIMEOUT_SUBTASKS * info.data.get("subtask_s", math.nan) if timeout_s is None else timeout_s

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

    @property
    def result_timeout_s(self) -> float:
        """`timeout_s` as a plain number."""
        return _TIMEOUT_SUBTASKS * self.subtask_s if self.timeout_s is None else self.timeout_s

    def alone(self) -> "ClientFleet":
        """The clock of the serial control: one reliable client of speed 1 that trains subtask after subtask."""
        return ClientFleet(seed=self.seed, clients=1, slots=1, subtask_s=self.subtask_s, jitter=0.0)


def load_clients(path: Path | None, overrides: Sequence[str] = ()) -> ClientFleet:
    """Read and check a clients file, or take the defaults (None), with some keys replaced: `("lost=0.3",)`.

    Raises JobError with all that is wrong, one problem a line.
    """
    return load_section(ClientFleet, CLIENTS, path, overrides)


def save_clients(fleet: ClientFleet, folder: RunFolder) -> None:
    """Write the clients into a run's folder. Raises RunFolderError."""
    text = yaml.dump(fleet.model_dump(mode="json"), Dumper=YamlDumper, sort_keys=False)
    with whole_file(folder.path / CLIENTS_FILE) as temporary:
        temporary.write_text(f"# Made by VCDL: the clients of this simulated run.\n{text}", encoding="utf-8")
