"""The simulated clients of a run, frozen, and read like a job file (docs/simulate.md)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, ValidationInfo, field_validator

from vcdl.files.atomic import whole_file
from vcdl.run.folder import RunFolder
from vcdl.simulate.population import AsPopulation
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.file_kind import CLIENTS
from vcdl.yaml_schema.reading import YamlDumper
from vcdl.yaml_schema.section import Section, load_section

_TIMEOUT_SUBTASKS = 10.0
"""Default time limit of a subtask in multiples of its usual time, so that only lost subtasks exceed it."""

_Count = Annotated[int, kinds.whole(1)]
_Seconds = Annotated[float, kinds.at_least(0)]
_AboveZero = Annotated[float, kinds.above_zero()]
_Part = Annotated[float, kinds.fraction(zero=True, one=False)]


class ClientFleet(Section):
    """Settings of simulated clients and network. Random numbers come from `seed`; times are virtual seconds."""

    seed: Annotated[int, kinds.whole(0, 2**32 - 1)] = 1
    clients: _Count = 10
    """Number of clients: the paper's C."""
    slots: _Count = 2
    """Subtasks that a client runs at a time: the paper's T."""
    servers: _Count = 1
    """Number of parameter servers: the paper's P."""
    update_s: _Seconds = 0.0
    """Seconds that a server takes to fold an update; other uploads wait meanwhile."""
    subtask_s: _AboveZero = 60.0
    """Mean training time of a subtask on a client of speed 1 with one slot."""
    jitter: _Part = 0.3
    """Relative spread of durations, drawn uniformly from 1 − jitter to 1 + jitter times their mean."""
    speed_ratio: Annotated[float, kinds.at_least(1)] = 1.0
    """The fastest client's speed divided by the slowest's. Neighbours differ by equal ratios; the mean speed is 1."""
    core_sharing: Annotated[float, kinds.fraction(zero=True, one=True)] = 0.0
    """The fraction of `subtask_s` that each further slot adds to all subtasks of its client: 0 when every slot has its
    own core, 1 when all slots share one."""
    download_s: _Seconds = 0.0
    upload_s: _Seconds = 0.0
    """Seconds from the end of training to the upload's arrival. The slot trains the next subtask meanwhile."""
    link_mb_per_s: _AboveZero | None = None
    """Median rate of the clients' links, megabytes a second each way; None: the size of a transfer costs no time."""
    link_ratio: Annotated[float, kinds.at_least(1)] = 1.0
    """The fastest link's rate divided by the slowest's. Neighbours differ by equal ratios."""
    population: AsPopulation = None
    """Realistic hosts, by a name, a file or a trace: their speeds, links and absences replace those of this file."""
    lost: _Part = 0.0
    """Probability that a subtask is lost, after a uniformly drawn fraction of its training."""
    lost_uploads: _Part = 0.0
    """Probability that a finished upload is lost on its way without the client's knowledge."""
    loss_report_s: _Seconds | None = None
    """Seconds from a loss until the server learns of it; None: it waits for the timeout."""
    timeout_s: _AboveZero | None = Field(default=None, validate_default=True)
    """Seconds from a subtask's start until the server gives it up; None: ten times `subtask_s`."""
    second_copies: Annotated[bool, kinds.true_or_false()] = False
    """Whether a late subtask goes to a second client as well, as on a BOINC server."""
    preempted_every_s: _AboveZero | None = None
    """Mean seconds between preemptions of a client (exponential); None: there are none."""
    away_s: _Seconds = 120.0
    """Mean seconds that a preempted client is away (exponential)."""
    checkpoint_every_s: _Seconds | None = 0.0
    """Seconds of training between checkpoints, from which a preempted subtask continues; None: without checkpoints it
    is lost."""
    usd_per_h: _Seconds = 0.0
    """The price of a client for an hour, in USD, for the cost of a run."""

    @field_validator("timeout_s")
    @classmethod
    def _has_a_default(cls, timeout_s: float | None, info: ValidationInfo) -> float | None:
        # A `subtask_s` that was refused itself is missing here. Its own message is enough.
        return _TIMEOUT_SUBTASKS * info.data.get("subtask_s", math.nan) if timeout_s is None else timeout_s

    @property
    def all_slots(self) -> int:
        """Number of subtasks that all clients run at a time."""
        return self.clients * self.slots

    @property
    def result_timeout_s(self) -> float:
        """Seconds from a subtask's start until the server gives it up: `timeout_s`, or its default."""
        return _TIMEOUT_SUBTASKS * self.subtask_s if self.timeout_s is None else self.timeout_s


def load_clients(path: Path | None, overrides: Sequence[str] = ()) -> ClientFleet:
    """Read a clients file, and check it.

    Args:
        path: The file; None: the defaults.
        overrides: Keys to replace, such as `("lost=0.3",)`.

    Raises:
        JobError: A line for each mistake.
    """
    return load_section(ClientFleet, CLIENTS, path, overrides, None if path is None else path.parent)


def save_clients(fleet: ClientFleet, folder: RunFolder) -> None:
    """Write the settings of simulated clients to a run's folder.

    Raises:
        RunFolderError: The folder cannot be written.
    """
    text = yaml.dump(fleet.model_dump(mode="json"), Dumper=YamlDumper, sort_keys=False)
    with whole_file(folder.clients_file) as temporary:
        temporary.write_text(f"# Made by VCDL: the clients of this simulated run.\n{text}", encoding="utf-8")
