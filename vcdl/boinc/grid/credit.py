"""Grant credit by the operations of a subtask: the same for equal work, from the first result on.

BOINC's own credit follows time, and so mostly measures the start of Python: it granted 0.019 or 1.5 for the same work.
So workunits carry their credit (`--credit_from_wu`).
"""

import time
from collections import defaultdict
from collections.abc import Collection, Sequence

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.workunit_rows import INIT, of_job
from vcdl.wire.workunit import WorkunitName

_PER_OPERATION = 200 / 86400e9
"""Credit per floating-point operation, by BOINC's definition: a day of a computer with 10^9 operations a second is
worth 200."""
# Starting, reading and writing take one core about a second. By the operations of its training alone, a small model's
# subtask would be credited a thousandth of its time. When credit followed the hosts' times instead, a job's first
# results got a thousandth of the later ones.
_BESIDE_TRAINING = 4e9
"""Operations that a subtask is credited with in addition to its training, so that small models earn enough."""
_EVERY_S = 10.0
"""Seconds between two passes over the open workunits, because their credit changes slowly."""
_DRIFT = 0.02
"""Fraction by which an open workunit's credit may differ from its target, so that few rows are written."""


def credit_of(operations: float) -> float:
    """Return the credit of a subtask whose training takes this many operations."""
    return _PER_OPERATION * (_BESIDE_TRAINING + operations)


class Credit:
    """Sets the credit of one job's workunits by their shards; all calls may raise GridUnavailable or GridError."""

    def __init__(self, database: BoincDatabase, job: str, operations: Sequence[float]) -> None:
        """Prepare the credit of a job.

        Args:
            database: BOINC's database.
            job: The job's name.
            operations: The operations of a subtask's training, by shard.
        """
        self._database = database
        self._job = job
        self._credit = list(map(credit_of, operations))
        self._due_s = 0.0

    def follow(self) -> None:
        """Set the credit of each open workunit to its shard's, at most once per _EVERY_S.

        Workunits are created with the credit of the largest shard.
        """
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + _EVERY_S
        changed: dict[float, list[int]] = defaultdict(list)
        # All workunits of one run of create_work have the same --credit, that of the largest shard. It is corrected
        # here, before their first result is validated.
        for number, name, credit in self._open():
            wanted = self._credit[WorkunitName.parse(name).shard]
            if abs(credit - wanted) > _DRIFT * wanted:
                changed[wanted].append(number)
        for credit, ids in changed.items():
            # Leave workunits with a canonical result: their credit has been granted, and a late second copy must get
            # the same.
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


def take_back(database: BoincDatabase, host: int, workunits: Collection[str]) -> float:
    """Set a host's credit for these workunits to 0, and subtract it from host, user and team; return the sum.

    Repeating the call revokes nothing: a result without credit has none to lose. The recent average credit falls by as
    much, but not below zero.

    Raises:
        GridUnavailable, GridError: The database cannot be used.
    """
    # Lock the rows (FOR UPDATE): a second process that revokes the same credit waits, and then finds 0.
    with database.transaction():
        rows = database.execute(
            "SELECT r.id, r.granted_credit, r.userid, r.teamid FROM result r JOIN workunit w ON w.id = r.workunitid"
            " WHERE r.appid = %s AND r.hostid = %s AND r.granted_credit > 0 AND w.name IN %s FOR UPDATE",
            database.app_id, host, tuple(workunits) or ("",),
        )  # fmt: skip
        database.execute(
            "UPDATE result SET granted_credit = 0 WHERE id IN %s", tuple(int(row[0]) for row in rows) or (0,)
        )
        for _, credit, user, team in rows:
            for table, number in (("host", host), ("user", user), ("team", team)):
                database.execute(
                    f"UPDATE {table} SET total_credit = GREATEST(0, total_credit - %s),"
                    " expavg_credit = GREATEST(0, expavg_credit - %s) WHERE id = %s",
                    credit, credit, number,
                )  # fmt: skip
    return float(sum(row[1] for row in rows))
