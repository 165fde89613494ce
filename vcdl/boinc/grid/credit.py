"""Credit by what a subtask costs: its samples, by arithmetic or measured time, whichever is more. BOINC's own follows
time, mostly Python's start: 0.019 or 1.5 for one effort. So workunits carry it (`--credit_from_wu`).
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.results import host_name
from vcdl.boinc.grid.workunit_rows import INIT, of_job
from vcdl.wire.workunit import WorkunitName

CREDIT_PER_OPERATION = 200 / 86400e9
"""BOINC's measure: a day of a computer with 10^9 operations a second is worth 200."""
MEASURED = 50
"""Number of last updates that say what a sample costs."""
_NEEDED = 3
"""Updates below which the cost of a sample is unknown."""
_EVERY_S = 10.0
_DRIFT = 0.02
"""Share by which an open workunit's credit may differ from today's."""


@dataclass(frozen=True)
class HostTraining:
    """A training as its host reports it."""

    host: str
    train_s: float
    samples: int


def operations_of_sample(arithmetic: float, trainings: Iterable[HostTraining], speeds: Mapping[str, float]) -> float:
    """The cost of a sample in operations; `arithmetic`: of the layers, `speeds`: by BOINC's benchmark of each host."""
    told: dict[str, list[float]] = defaultdict(list)
    for one in trainings:
        if one.samples > 0 and speeds.get(one.host, 0.0) > 0:
            told[one.host].append(one.train_s / one.samples * speeds[one.host])
    if sum(map(len, told.values())) < _NEEDED:
        return arithmetic
    return max(arithmetic, median(median(costs) for costs in told.values()))


class Credit:
    """Sets the credit of one job's workunits; all calls may raise GridUnavailable or GridError."""

    def __init__(self, database: BoincDatabase, job: str, arithmetic: float, samples: Sequence[int]) -> None:
        """`arithmetic`: operations of a sample. `samples`: of a subtask, by shard."""
        self._database = database
        self._job = job
        self._samples = samples
        self._arithmetic = arithmetic
        self.of_sample = arithmetic * CREDIT_PER_OPERATION
        """The credit of a sample."""
        self._due_s = 0.0

    def follow(self, trainings: Callable[[], Sequence[HostTraining]]) -> None:
        """Follow the last trainings, and give the open workunits their credit, each some seconds."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + _EVERY_S
        self.of_sample = CREDIT_PER_OPERATION * operations_of_sample(self._arithmetic, trainings(), self._speeds())
        changed: dict[float, list[int]] = defaultdict(list)
        for number, name, credit in self._open():
            wanted = self.of_sample * self._samples[WorkunitName.parse(name).shard]
            if abs(credit - wanted) > _DRIFT * wanted:
                changed[wanted].append(number)
        for credit, ids in changed.items():
            self._database.execute(
                "UPDATE workunit SET canonical_credit = %s WHERE id IN %s AND canonical_resultid = 0",
                credit, tuple(ids),
            )  # fmt: skip

    def _open(self) -> Sequence[tuple[int, str, float]]:
        match, arguments = of_job(self._job)
        return self._database.execute(
            "SELECT w.id, w.name, w.canonical_credit FROM workunit w"
            f" WHERE w.appid = %s AND w.assimilate_state = %s AND w.canonical_resultid = 0 AND {match}",
            self._database.app_id, INIT, *arguments,
        )  # fmt: skip

    def _speeds(self) -> dict[str, float]:
        return {host_name(host): speed for host, speed in self._database.execute("SELECT id, p_fpops FROM host")}
