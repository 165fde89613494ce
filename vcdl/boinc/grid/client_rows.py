"""Query BOINC's tables about clients: which workunits they were sent, how many are active, which files they keep."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.host_care import hosts_at_work
from vcdl.boinc.grid.supply import Demand
from vcdl.boinc.grid.workunit_rows import IN_PROGRESS, OVER, SUCCESS, of_job

_RECENT = 50
"""Newest results whose times are averaged, so that the mean follows a changing fleet."""
_HELD = 100
"""Newest tasks of a host that a query reads: more than a host ever has at a time."""
_DELETE = "delete_file"
_OURS = "<delete_file_info>vcdl\\_%"


@dataclass(frozen=True)
class Sending:
    """A result that was sent to a host, with the ids in BOINC's database."""

    result: int
    workunit: str
    host: int
    time_s: int


class ClientRows:
    """Queries about clients; all calls may raise GridUnavailable or GridError."""

    def __init__(self, database: BoincDatabase, account: int | None = None) -> None:
        """Prepare the queries.

        Args:
            database: BOINC's database.
            account: The only account whose hosts `demand` counts; None: all hosts.
        """
        self._database = database
        self._account = account

    def first_unsent(self) -> int:
        """Return the lowest id of a result that may still be sent: all lower ones have been sent or are over.

        If there is none, return the id after the last result's.
        """
        # Ids grow with creation. `sent_results` need not read results below the lowest unsent one again.
        rows = self._database.execute(
            "SELECT COALESCE("
            "(SELECT MIN(id) FROM result WHERE appid = %s AND server_state < %s), (SELECT MAX(id) + 1 FROM result), 0)",
            self._database.app_id, IN_PROGRESS,
        )  # fmt: skip
        return int(rows[0][0])

    def sent_results(self, job: str, since_s: float, from_result: int) -> list[Sending]:
        """Return a job's results that were sent to hosts, in the order of sending.

        Args:
            job: The job.
            since_s: Unix time; results that were sent earlier, or then, are left out.
            from_result: Lowest id of a result to read.
        """
        match, arguments = of_job(job)
        rows = self._database.execute(
            "SELECT r.id, w.name, r.hostid, r.sent_time FROM result r JOIN workunit w ON w.id = r.workunitid"
            f" WHERE r.id >= %s AND r.appid = %s AND r.sent_time > %s AND {match} ORDER BY r.sent_time, r.id",
            from_result, self._database.app_id, int(since_s), *arguments,
        )  # fmt: skip
        return [Sending(*row) for row in rows]

    def had(self, sending: Sending, name: str, *, is_sticky: bool) -> bool:
        """Return whether a host already had a file when this result was sent to it.

        A host keeps a sticky file until it is asked to delete it, and other files while a task needs them.

        Args:
            sending: The result.
            name: Physical name of the file.
            is_sticky: The file is sticky.
        """
        results = "result" if is_sticky else f"(SELECT * FROM result WHERE hostid = %s ORDER BY id DESC LIMIT {_HELD})"
        rows = self._database.execute(
            f"SELECT 1 FROM {results} r JOIN workunit w ON w.id = r.workunitid"
            " WHERE r.hostid = %s AND r.appid = %s AND (r.sent_time < %s OR (r.sent_time = %s AND r.id < %s))"
            " AND (%s OR r.received_time = 0 OR r.received_time > %s) AND INSTR(w.xml_doc, %s) > 0 AND r.sent_time >="
            " COALESCE((SELECT MAX(m.create_time) FROM msg_to_host m"
            " WHERE m.hostid = %s AND m.variety = %s AND m.xml = %s), 0)"
            " LIMIT 1",
            *(() if is_sticky else (sending.host,)),
            # Several results of one request have the same sent_time: among those the id decides which came first.
            sending.host, self._database.app_id, sending.time_s, sending.time_s, sending.result,
            is_sticky, sending.time_s, f"<name>{name}</name>", sending.host, _DELETE, _deletion(name),
        )  # fmt: skip
        return bool(rows)

    def demand(self) -> Demand:
        """Return how much work the clients use, over all jobs of our app."""
        whose, account = ("", ()) if self._account is None else (" AND userid = %s", (self._account,))
        running = self._database.execute(
            f"SELECT hostid, COUNT(*) FROM result WHERE appid = %s AND server_state = %s{whose} GROUP BY hostid",
            self._database.app_id, IN_PROGRESS, *account,
        )  # fmt: skip
        # Count hosts without a task: they ask again soon, and a client that is answered "no work" backs off.
        idle = hosts_at_work(self._database, self._account) - {int(host) for host, _ in running}
        # Use the time since sending, not processor time, because it determines how soon a host asks for its next task.
        recent = self._database.execute(
            "SELECT AVG(took) FROM (SELECT received_time - sent_time AS took FROM result"
            f" WHERE appid = %s AND server_state = %s AND outcome = %s{whose} ORDER BY id DESC LIMIT %s) AS recent",
            self._database.app_id, OVER, SUCCESS, *account, _RECENT,
        )  # fmt: skip
        return Demand(
            sum(int(tasks) for _, tasks in running), len(idle), None if recent[0][0] is None else float(recent[0][0])
        )

    def sticky_hosts(self, job: str) -> set[tuple[int, str]]:
        """Return (host's id, workunit's name) for all workunits of the job that hosts were sent."""
        match, arguments = of_job(job)
        rows = self._database.execute(
            "SELECT DISTINCT r.hostid, w.name FROM workunit w JOIN result r ON r.workunitid = w.id"
            f" WHERE {match} AND r.hostid > 0",
            *arguments,
        )
        return {(int(host), name) for host, name in rows}

    def keep(self, job: str, name: str) -> bool:
        """Return whether a host that was sent work of the job may still have this sticky file."""
        match, arguments = of_job(job)
        rows = self._database.execute(
            "SELECT 1 FROM workunit w JOIN result r ON r.workunitid = w.id"
            f" WHERE {match} AND r.hostid > 0 AND r.sent_time >"
            " COALESCE((SELECT MAX(m.create_time) FROM msg_to_host m"
            " WHERE m.hostid = r.hostid AND m.variety = %s AND m.xml = %s), 0)"
            " LIMIT 1",
            *arguments, _DELETE, _deletion(name),
        )  # fmt: skip
        return bool(rows)

    def not_told(self) -> int:
        """Return the number of hosts that have not received our requests to delete files yet."""
        rows = self._database.execute(
            "SELECT COUNT(DISTINCT hostid) FROM msg_to_host WHERE variety = %s AND handled = 0 AND xml LIKE %s",
            _DELETE, _OURS,
        )  # fmt: skip
        return int(rows[0][0])

    def delete_requests(self) -> None:
        """Delete all requests to delete our files, also those that no host has received."""
        self._database.execute("DELETE FROM msg_to_host WHERE variety = %s AND xml LIKE %s", _DELETE, _OURS)

    def ask_to_delete(self, files: Collection[tuple[int, str]]) -> None:
        """Have hosts delete sticky files when they next contact the scheduler (config.xml: msg_to_host).

        A request that a host has not received yet is not repeated.

        Args:
            files: Pairs of a host's id and a file's physical name.
        """
        if not files:
            return
        texts = {_deletion(name) for _, name in files}
        # The loop may repeat this call after a failure. A second request would make a host delete a file that a later
        # job has sent it meanwhile.
        pending = set(
            self._database.execute(
                "SELECT hostid, xml FROM msg_to_host WHERE variety = %s AND handled = 0 AND xml IN %s",
                _DELETE,
                tuple(texts),
            )
        )
        rows: Sequence[tuple[object, ...]] = [
            (int(time.time()), host, _DELETE, _deletion(name))
            for host, name in sorted(files)
            if (host, _deletion(name)) not in pending
        ]
        if rows:
            self._database.insert(
                "INSERT INTO msg_to_host (create_time, hostid, variety, handled, xml) VALUES (%s, %s, %s, 0, %s)", rows
            )

    def withdraw_delete_requests(self, names: Collection[str]) -> None:
        """Withdraw the requests to delete these files, as far as hosts have not received them."""
        if names:
            # Mark the requests as handled instead of deleting them: `had` and `keep` take the newest request as the
            # time since which a host lacks a file.
            self._database.execute(
                "UPDATE msg_to_host SET handled = 1 WHERE variety = %s AND handled = 0 AND xml IN %s",
                _DELETE, tuple(_deletion(name) for name in names),
            )  # fmt: skip


def _deletion(name: str) -> str:
    """Return a deletion request, as BOINC's own delete_file writes it."""
    return f"<delete_file_info>{name}</delete_file_info>\n"
