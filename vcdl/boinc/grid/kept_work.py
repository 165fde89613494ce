"""Reserve a job's workunits for the hosts of one account: BOINC's targeted jobs.

`create_work --target_user` creates a row in `assignment`, and a workunit for which the transitioner creates no results.
The scheduler creates the result when a host of the account requests work. After a lost or failed result it creates
another one for another host, never for the same one. Targeted jobs are sent before all others, and bypass the feeder.
"""

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.workunit_rows import INIT, USER, assign, of_job, unassign
from vcdl.errors import JobError


class KeptWork:
    """The assignments that reserve one job's workunits for an account's hosts.

    All calls may raise GridUnavailable or GridError. Without an account nothing is assigned.
    """

    def __init__(self, database: BoincDatabase, job: str, account: int | None) -> None:
        self._database = database
        self._job = job
        self._account = account

    def repair(self) -> None:
        """Add assignments that are missing, and delete those of finished workunits.

        The scheduler reads all assignments of an account at each request of its hosts.
        """
        if self._account is None:
            return
        # create_work writes a workunit and its assignment in two statements. If it is killed in between, the workunit
        # has no results and no assignment, and would never be sent.
        match, arguments = of_job(self._job)
        rows = self._database.execute(
            "SELECT w.id FROM workunit w"
            f" WHERE w.appid = %s AND w.assimilate_state = %s AND w.error_mask = 0 AND {match}"
            " AND w.id NOT IN (SELECT a.workunitid FROM assignment a WHERE a.target_type = %s AND a.target_id = %s)",
            self._database.app_id, INIT, *arguments, USER, self._account,
        )  # fmt: skip
        if rows:
            assign(self._database, USER, [(row[0], self._account) for row in rows])
        over = "AND (w.assimilate_state <> %s OR w.error_mask <> 0 OR w.canonical_resultid <> 0)"
        # Include workunits with a canonical result: they may stay INIT for a while, and every request to the scheduler
        # would read their assignment.
        unassign(self._database, self._job, USER, over, INIT)

    def clear(self) -> None:
        """Delete the assignments of the job's workunits, so that no host gets them: the job has ended or pauses."""
        unassign(self._database, self._job, USER)


def account_number(database: BoincDatabase, account: str) -> int:
    """Return the id of an account that is given by its id or its e-mail address.

    Raises:
        JobError: The project has no such account.
        GridError: The database cannot be read.
    """
    # Accept less than ten digits: ids have 32 bits, and a larger literal would make the query fail. 0 is no user's id.
    number = int(account) if account.isascii() and account.isdigit() and len(account) < 10 else 0
    rows = database.execute("SELECT id FROM user WHERE id = %s OR email_addr = %s", number, account)
    if not rows:
        raise JobError(f"the project has no account {account}: its owner makes one on the project's pages")
    return int(rows[0][0])
