"""The fleet of a simulated run: how many clients, how fast, how reliable, how honest. Frozen, and read like a job file.

Every key is explained in docs/simulate.md.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator

from vcdl.job import values as kinds
from vcdl.job.reading import Document, JobDumper, problems_of, read_document, replace_key, report
from vcdl.job.section import Section
from vcdl.run.folder import RunFolder
from vcdl.whole_file import whole_file

Attack = Literal["sign_flip", "noise"]

FLEET_FILE = "fleet.yaml"
"""In the folder of a run: it is a simulated one, with this fleet."""
_TIMEOUT_SUBTASKS = 10.0


_Count = Annotated[int, kinds.whole(1)]
_Seconds = Annotated[float, kinds.at_least(0)]
_AboveZero = Annotated[float, kinds.above_zero()]
_Part = Annotated[float, kinds.fraction(zero=True, one=False)]


class Hostile(Section):
    """A client that uploads something else than what it trained."""

    client: Annotated[int, kinds.whole(0)]
    """Counted from 0."""
    attack: Annotated[Attack, kinds.one_of(Attack)]
    scale: _AboveZero = 10.0
    """Of what it uploads instead of the honest step C − B; see vcdl.simulate.hostile."""


class Fleet(Section):
    """Settings of the simulated clients and of the way to them; all chance is drawn from `seed`."""

    seed: Annotated[int, kinds.whole(0, 2**32 - 1)] = 1
    clients: _Count = 10
    """The paper's C."""
    slots: _Count = 2
    """Subtasks that a client runs at a time: the paper's T."""
    servers: _Count = 1
    """Parameter servers: the paper's P."""
    server_s: _Seconds = 0.0
    """Virtual seconds that a server takes for an update; others wait meanwhile."""
    subtask_s: _AboveZero = 60.0
    """Virtual seconds of training a subtask, on average over its jitter, on a client of speed 1 that has one slot."""
    jitter: _Part = 0.3
    """Durations and latencies are drawn evenly from 1 − jitter to 1 + jitter of their mean."""
    spread: Annotated[float, kinds.at_least(1)] = 1.0
    """The fastest client's speed by the slowest's; the others lie between at equal ratios, and the mean speed is 1."""
    sharing: Annotated[float, kinds.fraction(zero=True, one=True)] = 0.0
    """Each further slot of a client adds this part of `subtask_s` to all of its subtasks: 0 for cores of their own, 1 for one core."""
    download_s: _Seconds = 0.0
    upload_s: _Seconds = 0.0
    """The slot trains the next subtask meanwhile."""
    lost: _Part = 0.0
    """Probability that a subtask is lost, after an evenly drawn part of its training."""
    notice_s: _Seconds | None = None
    """After a loss, until the server hears of it; None: at the timeout."""
    timeout_s: _AboveZero | None = Field(default=None, validate_default=True)
    """From the begin of a subtask until it is given up; None: ten times `subtask_s`."""
    preempted_every_s: _AboveZero | None = None
    """Mean time that a client is there at a stretch (exponential); None: always."""
    away_s: _Seconds = 120.0
    """Mean time that it is away then (exponential)."""
    checkpoint_s: _Seconds | None = 0.0
    """Training time between checkpoints, from which a preempted subtask goes on; None: there are none and it is lost."""
    hostile: tuple[Hostile, ...] = ()

    @field_validator("timeout_s")
    @classmethod
    def _has_a_default(cls, timeout_s: float | None, info: ValidationInfo) -> float | None:
        return _TIMEOUT_SUBTASKS * info.data.get("subtask_s", math.nan) if timeout_s is None else timeout_s

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
    def patience_s(self) -> float:
        """`timeout_s` as a plain number."""
        return _TIMEOUT_SUBTASKS * self.subtask_s if self.timeout_s is None else self.timeout_s

    @property
    def is_reliable(self) -> bool:
        """Whether no subtask comes to nothing by chance or malice."""
        return self.lost == 0 and self.preempted_every_s is None and not self.hostile

    def alone(self) -> "Fleet":
        """One reliable client of speed 1 that trains one subtask after the other without a pause: the serial control's clock."""
        return Fleet(seed=self.seed, clients=1, slots=1, subtask_s=self.subtask_s, jitter=0.0)


def load_fleet(path: Path | None, overrides: Sequence[str] = ()) -> Fleet:
    """Read and check a fleet file, or take the defaults, with some keys replaced: `("lost=0.3",)`.

    Raises JobError: all that is wrong with it, one problem a line.
    """
    document = Document(values={}) if path is None else read_document(path)
    for setting in overrides:
        replace_key(document, setting)
    problems = list(document.problems)
    try:
        fleet = Fleet.model_validate(document.values)
    except ValidationError as error:
        problems += problems_of(error, Fleet)
    if problems:
        raise report(path or Path("the fleet"), document, problems) from None
    return fleet


def save_fleet(fleet: Fleet, folder: RunFolder) -> None:
    """Freeze the fleet in a run's folder. Raises RunFolderError."""
    text = yaml.dump(fleet.model_dump(mode="json"), Dumper=JobDumper, sort_keys=False)
    with whole_file(folder.path / FLEET_FILE) as temporary:
        temporary.write_text(f"# Made by VCDL: the fleet of this simulated run.\n{text}", encoding="utf-8")


def is_simulated(folder: RunFolder) -> bool:
    """Whether a folder holds a simulated run, finished or not: one that cannot be gone on with, only begun anew."""
    return (folder.path / FLEET_FILE).is_file()
