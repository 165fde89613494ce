"""Claim the results of one job from BOINC's database, by any number of servers.

A claim is a lock on rows for one transaction, called a turn. Other servers skip locked rows. The database releases the
rows of a killed server immediately.
"""

import re
import shutil
import stat
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import RESULTS_WAIT, BoincProject, add_advice
from vcdl.boinc.grid.workunit_rows import CANCELLED, DONE, READY, VALID, of_job
from vcdl.errors import GridError
from vcdl.files.atomic import whole_file
from vcdl.loop.grid import GaveUp, Outcome, Results
from vcdl.run.folder import RunFolder
from vcdl.run.staging import Uploaded
from vcdl.wire.workunit import OUTPUT_FILE

_CANDIDATES = 256
"""Number of ready rows that a claim considers: more than all servers claim at a time, so that each finds free ones."""
_ORPHANS_AT_ONCE = 1000
"""Rows that one call concludes, so that its statement and its locks stay short; later calls conclude the others."""

UPLOAD_FAILED = -187
"""result.exit_status of a task whose file did not arrive (BOINC's ERR_RESULT_UPLOAD)."""
TRANSFER_FAILED = (-186, UPLOAD_FAILED)
"""result.exit_status of tasks whose files were not transferred, down or up."""
_ERRORS = (
    (CANCELLED, "it was cancelled"),
    (2, "too many clients failed"),
    (8, "too many clients were tried"),
    (4, "too many results and none was valid"),
    (1, "it could not be sent to any client"),
    (32, "none of its results is valid"),
)
"""Bits of workunit.error_mask, the most informative first."""
_OUTCOMES = {
    3: "client error",
    4: "no reply before the deadline",
    6: "the upload was refused",
    7: "the client left the project",
}
"""result.outcome"""
_UPLOAD = re.compile(
    r"(?P<workunit>.+_v[0-9]{6,18})_(?P<result>[0-9]{1,18}|[0-9]+_(?P<sent>[0-9]{1,18})_[0-9]+)_r[0-9]+_[0-9]+"
)
"""BOINC's name of an output file: WORKUNIT_RESULT_rN_M.

RESULT is a number. If the scheduler created the result for an assigned host, RESULT is PROCESS_TIME_NUMBER, and we use
the time as the result's number.
"""


def workunit_and_result(file: Path) -> tuple[str, int]:
    """Return the workunit and the result's number of an output file.

    For any other file: its whole name and 0.
    """
    match = _UPLOAD.fullmatch(file.name)
    return (match["workunit"], int(match["sent"] or match["result"])) if match else (file.name, 0)


def result_name(file: Path) -> str:
    """Return the name of the result that an output file is for."""
    return file.name.rpartition("_r")[0]


class BoincResults(Results):
    """One server's access to the ended workunits of a job; used inside `turn()`."""

    def __init__(self, project: BoincProject, database: BoincDatabase, folder: RunFolder, at_most: int = 8) -> None:
        self._project = project
        self._database = database
        self._folder = folder
        self._job = folder.path.name
        self.at_most = at_most
        self._claimed: dict[str, Outcome] = {}
        """Outcomes of the workunits that were claimed in this turn, or in the last one, by name."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Open a transaction, which is applied as a whole at its end or not at all.

        Results claimed inside belong to this server alone. BOINC's transitioner waits for locked rows, so a turn must
        not wait for anything.
        """
        # Forget the last turn's claims, because a turn that was rolled back has claimed nothing.
        self._claimed.clear()
        with self._database.transaction():
            yield

    def claim(self) -> Sequence[Outcome]:
        """Claim the oldest ended workunits that no server has claimed, at most `at_most`, and return how each ended.

        Raises:
            GridError: The database cannot be used.
        """
        match, arguments = of_job(self._job)
        # Select candidates without locks: InnoDB locks each row that a locking read examines, including other jobs'
        # rows here.
        candidates = self._database.execute(
            f"SELECT w.id FROM workunit w WHERE w.appid = %s AND w.assimilate_state = %s AND {match}"
            " ORDER BY w.id LIMIT %s",
            self._database.app_id, READY, *arguments, _CANDIDATES,
        )  # fmt: skip
        return self._claim(candidates)

    def claim_again(self, workunits: Collection[str]) -> Sequence[Outcome]:
        """Claim failed workunits of an earlier turn that are still free and have ended.

        Args:
            workunits: Their names.

        Raises:
            GridError: The database cannot be used.
        """
        if not workunits:
            return []
        return self._claim(
            self._database.execute(
                "SELECT id FROM workunit WHERE name IN %s AND assimilate_state = %s", tuple(workunits), READY
            )
        )

    @property
    def claimed(self) -> tuple[str, ...]:
        """The workunits claimed in this turn, or in the last one."""
        return tuple(self._claimed)

    def _claim(self, candidates: Sequence[tuple[int]]) -> Sequence[Outcome]:
        if not candidates:
            return []
        # Claim by primary key, so that only claimed rows are locked.
        rows = self._database.execute(
            "SELECT id, name, error_mask, canonical_resultid FROM workunit WHERE id IN %s AND assimilate_state = %s"
            " ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED",
            tuple(row[0] for row in candidates), READY, self.at_most,
        )  # fmt: skip
        outcomes = [self._outcome(*row) for row in rows]
        self._claimed.update((outcome.workunit, outcome) for outcome in outcomes)
        return outcomes

    def done(self, workunit: str, version: int | None = None) -> None:
        """Conclude a workunit whose update is in store and journal.

        BOINC deletes its files after the turn.

        Args:
            workunit: The workunit's name.
            version: The version that its upload created; None if it created none. Its upload is kept, if the run keeps
                uploads, so that a store that lost the version can apply it again.

        Raises:
            GridError, RunFolderError: The row or the kept upload cannot be written.
        """
        outcome = self._claimed.get(workunit)
        if version is not None and isinstance(outcome, Uploaded) and self._folder.kept_uploads.is_dir():
            # Copy the upload before the row is DONE: then BOINC's file_deleter may remove it right after the turn.
            _keep(outcome.path, self._folder.kept_upload(version, workunit))
        # Set transition_time to now, as BOINC's own assimilator does: the transitioner then marks the files for
        # deletion.
        self._database.execute(
            "UPDATE workunit SET assimilate_state = %s, transition_time = %s WHERE name = %s AND assimilate_state = %s",
            DONE, int(time.time()), workunit, READY,
        )  # fmt: skip

    def second_copies(self) -> Iterator[tuple[str, str, int]]:
        """Yield (workunit, host, bytes) of each valid upload of this turn's workunits that was not applied.

        BOINC credits them and passes them to no daemon. An upload that was checked after its subtask was applied is
        recorded by vcdl_validate.

        Raises:
            GridError: The database cannot be read.
        """
        if not self._claimed:
            return
        rows = self._database.execute(
            "SELECT w.name, r.hostid, r.xml_doc_in FROM workunit w JOIN result r ON r.workunitid = w.id"
            " WHERE w.name IN %s AND w.assimilate_state = %s AND r.validate_state = %s AND r.id <> w.canonical_resultid"
            " AND w.canonical_resultid <> 0",
            self.claimed, DONE, VALID,
        )  # fmt: skip
        for workunit, host, description in rows:
            size_bytes = 0
            with suppress(GridError, OSError):  # BOINC may have deleted it by now
                size_bytes = self._project.upload_path(output_file(description)).stat().st_size
            yield workunit, host_name(host), size_bytes

    def _outcome(self, number: int, name: str, error_mask: int, canonical: int) -> Outcome:
        if error_mask:
            return self._gave_up(number, name, error_mask)
        rows = self._database.execute("SELECT xml_doc_in, hostid, received_time FROM result WHERE id = %s", canonical)
        if not rows:
            return GaveUp(name, "its result is not in the database")
        description, host, received_s = rows[0]
        try:
            path = self._project.upload_path(output_file(description))
        except GridError as error:
            return GaveUp(name, f"its upload cannot be used: {error}")
        with add_advice(path, RESULTS_WAIT):
            try:
                found = path.lstat()
            except FileNotFoundError as error:
                # A missing upload is lost only if upload/ is the right folder. Otherwise this raises, and the row stays
                # READY.
                self._project.check_uploads()
                return GaveUp(name, f"its upload cannot be used: {error}", cancelled=True)  # it was there when checked
        # lstat does not follow links, by which anyone who can write into upload/ could have another file read as an
        # upload.
        if not stat.S_ISREG(found.st_mode):
            return GaveUp(name, f"its upload cannot be used: {path.name} is not a regular file")
        return Uploaded(name, path, found.st_size, host_name(host), float(received_s))

    def _gave_up(self, number: int, name: str, error_mask: int) -> GaveUp:
        reason = next((words for bit, words in _ERRORS if error_mask & bit), f"error mask {error_mask}")
        tried = self._database.execute(
            "SELECT outcome, exit_status, hostid FROM result WHERE workunitid = %s AND outcome IN %s ORDER BY id DESC",
            number, tuple(_OUTCOMES),
        )  # fmt: skip
        if tried:
            outcome, exit_status, host = tried[0]
            reason += f"; the last on host {host}: {_OUTCOMES[outcome]}"
            reason += f" (exit status {exit_status})" if exit_status else ""
        # Transfers fail for the server's reasons, such as a full disk. If nothing else went wrong, the subtask must not
        # lose one of its tries.
        is_lost = bool(tried) and all(status in TRANSFER_FAILED for _, status, _ in tried)  # by the server: no try
        return GaveUp(name, reason, cancelled=is_lost or bool(error_mask & CANCELLED))


def host_name(host: int) -> str:
    """Return the name in the journal of a host with this id in BOINC's database."""
    return f"host-{host}"


def host_number(name: str) -> int:
    """Return the id of a host in BOINC's database, by its name in the journal."""
    return int(name.removeprefix("host-"))


def host_of(database: BoincDatabase, result: str) -> int | None:
    """Return the id of the host that a result was sent to; None if the database has no result of this name.

    Raises:
        GridError: The database cannot be read.
    """
    rows = database.execute("SELECT hostid FROM result WHERE name = %s", result)
    return int(rows[0][0]) if rows else None


def mark_lost(database: BoincDatabase, result: str) -> None:
    """Mark a result whose file never arrived: that counts against its host only if other hosts' files arrived.

    Raises:
        GridError: The database cannot be used.
    """
    database.execute("UPDATE result SET exit_status = %s WHERE name = %s", UPLOAD_FAILED, result)


def output_file(xml_doc_in: bytes | str) -> str:
    """Return the physical name of update.h5 in a result's description, an XML fragment with several roots.

    Raises:
        GridError: The description is damaged.
    """
    text = xml_doc_in.decode(errors="replace") if isinstance(xml_doc_in, bytes) else xml_doc_in
    if "<!" in text:  # no entity expansion; BOINC writes none
        raise GridError("the description of its result is not BOINC's")
    try:
        fragment = ElementTree.fromstring(f"<fragment>{text}</fragment>")
    except ElementTree.ParseError as error:
        raise GridError(f"the description of its result is not XML: {error}") from error
    for reference in fragment.iter("file_ref"):
        if reference.findtext("open_name", "").strip() == OUTPUT_FILE:
            return reference.findtext("file_name", "").strip()
    raise GridError(f"the description of its result names no {OUTPUT_FILE}")


def has_arrived(project: BoincProject, description: bytes | str) -> bool:
    """Return whether the upload of a result with this description has arrived."""
    with suppress(GridError):
        return project.upload_path(output_file(description)).is_file()
    return False


def conclude_orphans(project: BoincProject, database: BoincDatabase, open_jobs: Collection[str]) -> int:
    """Mark results without an open job as done, so that BOINC deletes their files; return their number.

    Args:
        project: The BOINC project.
        database: Its database.
        open_jobs: The jobs whose results stay, including paused ones.
    """
    matches = [of_job(job) for job in open_jobs]
    # Exclude open jobs, because the names of removed jobs are not known any more.
    condition = "".join(f" AND NOT {match}" for match, _ in matches)
    rows = database.execute(
        f"SELECT w.id FROM workunit w WHERE w.appid = %s AND w.assimilate_state = %s{condition} LIMIT %s",
        database.app_id, READY, *(argument for _, arguments in matches for argument in arguments), _ORPHANS_AT_ONCE,
    )  # fmt: skip
    if rows:
        database.execute(
            "UPDATE workunit SET assimilate_state = %s, transition_time = %s WHERE id IN %s AND assimilate_state = %s",
            DONE, int(time.time()), tuple(row[0] for row in rows), READY,
        )  # fmt: skip
    return len(rows)


def _keep(upload: Path, kept: Path) -> None:
    """Copy an upload into the run's folder, atomically.

    A hard link would not do: if the client sends the file again, the kept upload would change with it, unchecked.
    """
    with whole_file(kept) as target:
        shutil.copyfile(upload, target)
