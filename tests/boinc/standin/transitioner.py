"""Transitioner, validator and file deleter in one: what moves a workunit on between client and assimilator."""

import secrets
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import MySQLdb

from tests.boinc.standin.config import ProjectConfig
from tests.boinc.standin.project import StandinProject
from tests.boinc.standin.schema import Connection, change, insert, rows
from tests.boinc.standin.states import (
    ABORTED_BY_USER,
    NEVER,
    NO_NEW_RESULTS,
    VALIDATE_AGAIN,
    Assimilate,
    Delete,
    Error,
    Outcome,
    Server,
    Validate,
)

Row = dict[str, Any]
_SAFETY_S = 10 * 86400
LOCKED = (1205, 1213)
"""MariaDB's errors of who waited for another one's lock in vain."""


def transition(project: StandinProject) -> None:
    """Bring each workunit whose time has come to its next state."""
    with closing(project.connect()) as connection:
        due = rows(connection, "SELECT id FROM workunit WHERE transition_time<=%s ORDER BY id", int(time.time()))
        connection.commit()
        for workunit in due:
            try:
                _Transition(project, connection, workunit["id"]).run()
                connection.commit()
            except MySQLdb.OperationalError as error:
                if error.args[0] not in LOCKED:
                    raise
                connection.rollback()  # the next pass does it


def cancel(project: StandinProject, workunit: str) -> None:
    """What BOINC's cancel_jobs does."""
    with closing(project.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(
            "UPDATE result r JOIN workunit w ON w.id=r.workunitid SET r.server_state=%s, r.outcome=%s"
            " WHERE w.name=%s AND r.server_state=%s",
            (Server.OVER, Outcome.DIDNT_NEED, workunit, Server.UNSENT),
        )
        cursor.execute(
            "UPDATE workunit SET error_mask=error_mask|%s, transition_time=%s WHERE name=%s",
            (Error.CANCELLED, int(time.time()), workunit),
        )
        connection.commit()


class _Transition:
    """One workunit's step."""

    def __init__(self, project: StandinProject, connection: Connection, workunit: int) -> None:
        self._project = project
        self._config = project.config
        self._connection = connection
        self._now = int(time.time())
        (self._workunit,) = rows(connection, "SELECT * FROM workunit WHERE id=%s FOR UPDATE", workunit)
        self._results = rows(connection, "SELECT * FROM result WHERE workunitid=%s ORDER BY id FOR UPDATE", workunit)

    def run(self) -> None:
        for result in self._results:
            if result["server_state"] == Server.IN_PROGRESS and result["report_deadline"] < self._now:
                self._set(result, server_state=Server.OVER, outcome=Outcome.NO_REPLY)
        self._validate()
        self._find_errors()
        if self._workunit["error_mask"]:
            self._give_up()
        elif not self._workunit["canonical_resultid"] and self._workunit["transitioner_flags"] != NO_NEW_RESULTS:
            self._make_results()
        if self._workunit["assimilate_state"] == Assimilate.DONE:
            self._delete_files()
        self._set_workunit(transition_time=self._next_time())

    # -- its steps

    def _validate(self) -> None:
        """The first valid result is canonical: a quorum of 1 is all the stand-in knows."""
        for result in self._results:
            if result["outcome"] != Outcome.SUCCESS or result["validate_state"] != Validate.INIT:
                continue
            status = self._run_script(result)
            if status == VALIDATE_AGAIN:
                continue
            if status != 0:
                self._set(result, outcome=Outcome.VALIDATE_ERROR, validate_state=Validate.INVALID)
                continue
            self._set(result, validate_state=Validate.VALID, granted_credit=self._workunit["canonical_credit"])
            if not self._workunit["canonical_resultid"]:
                self._set_workunit(canonical_resultid=result["id"], assimilate_state=Assimilate.READY)
                for other in self._results:
                    if other["server_state"] == Server.UNSENT:
                        self._set(other, server_state=Server.OVER, outcome=Outcome.DIDNT_NEED)

    def _run_script(self, result: Row) -> int:
        """Exit status of our check, called as `script_validator --init_script vcdl_validate` does; 0 where
        there is none.
        """
        if not (self._project.path / "bin" / "vcdl_validate").exists():
            return 0
        paths = [str(path) for path in _outputs(self._config, result)]
        return subprocess.run(["../bin/vcdl_validate", *paths], cwd=self._project.working_folder).returncode

    def _find_errors(self) -> None:
        over = [each for each in self._results if each["server_state"] == Server.OVER]
        failed = [
            each
            for each in over
            if each["outcome"] == Outcome.VALIDATE_ERROR
            or (each["outcome"] == Outcome.CLIENT_ERROR and each["exit_status"] != ABORTED_BY_USER)
        ]
        mask = Error(self._workunit["error_mask"])
        if any(each["outcome"] == Outcome.COULDNT_SEND for each in over):
            mask |= Error.COULDNT_SEND
        if len(failed) > self._workunit["max_error_results"]:
            mask |= Error.TOO_MANY_ERRORS
        if self._missing() > 0 and len(self._results) >= self._workunit["max_total_results"]:
            mask |= Error.TOO_MANY_TOTAL
        if mask != self._workunit["error_mask"]:
            self._set_workunit(error_mask=int(mask))

    def _missing(self) -> int:
        """Results that must still be made."""
        return int(self._workunit["target_nresults"]) - sum(map(is_hopeful, self._results))

    def _give_up(self) -> None:
        for result in self._results:
            if result["server_state"] == Server.UNSENT:
                self._set(result, server_state=Server.OVER, outcome=Outcome.DIDNT_NEED)
            elif result["outcome"] == Outcome.SUCCESS and result["validate_state"] == Validate.INIT:
                self._set(result, validate_state=Validate.NO_CHECK)
        if self._workunit["assimilate_state"] == Assimilate.INIT:
            self._set_workunit(assimilate_state=Assimilate.READY)

    def _make_results(self) -> None:
        allowed = self._workunit["max_total_results"] - len(self._results)
        number = max((int(each["name"].rpartition("_")[2]) for each in self._results), default=-1)
        for made in range(1, 1 + min(self._missing(), allowed)):
            make_result(self._project, self._connection, self._workunit, str(number + made))

    def _delete_files(self) -> None:
        if any(each["server_state"] != Server.OVER for each in self._results):
            return
        if self._workunit["file_delete_state"] == Delete.INIT:
            for info in _fragments(self._workunit["xml_doc"]).iter("file_info"):
                if info.find("no_delete") is None:
                    path = self._config.download_path(info.findtext("name", ""))
                    for each in (path, path.with_name(f"{path.name}.gz"), path.with_name(f"{path.name}.md5")):
                        each.unlink(missing_ok=True)
            self._set_workunit(file_delete_state=int(Delete.DONE))
        for result in self._results:
            if result["file_delete_state"] == Delete.INIT and result["outcome"] in (
                Outcome.SUCCESS,
                Outcome.CLIENT_ERROR,
            ):
                for path in _outputs(self._config, result):
                    path.unlink(missing_ok=True)
                self._set(result, file_delete_state=Delete.DONE)

    def _next_time(self) -> int:
        waiting = [each["report_deadline"] for each in self._results if each["server_state"] == Server.IN_PROGRESS]
        if any(
            each["outcome"] == Outcome.SUCCESS and each["validate_state"] == Validate.INIT for each in self._results
        ):
            return self._now + 1  # the check could not decide: the real validator asks again after six hours
        over = self._workunit["canonical_resultid"] or self._workunit["error_mask"]
        return int(min((*waiting, NEVER if over else self._now + _SAFETY_S)))

    # -- the tables

    def _set(self, result: Row, **values: float) -> None:
        result.update(values)
        change(self._connection, "result", result["id"], **values)

    def _set_workunit(self, **values: int) -> None:
        self._workunit.update(values)
        change(self._connection, "workunit", self._workunit["id"], **values)


def is_hopeful(result: Row) -> bool:
    """Whether a result may still be, or is, the upload that its workunit wants."""
    if result["server_state"] != Server.OVER:
        return True
    return bool(result["outcome"] == Outcome.SUCCESS and result["validate_state"] != Validate.INVALID)


def make_result(project: StandinProject, connection: Connection, workunit: Row, suffix: str) -> int:
    """A new unsent result of a workunit; its id."""
    name = f"{workunit['name']}_{suffix}"
    return insert(
        connection, "result", name=name, create_time=int(time.time()), workunitid=workunit["id"],
        appid=workunit["appid"], batch=workunit["batch"], priority=workunit["priority"], server_state=Server.UNSENT,
        random=secrets.randbelow(2**31),
        xml_doc_in=_result_xml(project, workunit, f"{name}_r{secrets.randbelow(2**31)}_"),
    )  # fmt: skip


def _result_xml(project: StandinProject, workunit: Row, base: str) -> str:
    """The result template with the names of its files and a certificate for each upload."""
    template: Path = project.path / workunit["result_template_file"]
    text = template.read_text()
    while "<OUTFILE_" in text:
        before, _, rest = text.partition("<OUTFILE_")
        number, _, after = rest.partition("/>")
        text = before + base + number + after
    text = text.replace("<UPLOAD_URL/>", project.config.settings["upload_url"])
    text = text.replace("<output_template>", "").replace("</output_template>", "").strip()
    if project.config.flag("dont_generate_upload_certificates"):
        return text
    certified = ""
    for part in text.split("</file_info>")[:-1]:
        info = ElementTree.fromstring(part[part.index("<file_info>\n") :] + "</file_info>")
        name, most_bytes = info.findtext("name", ""), float(info.findtext("max_nbytes", "nan"))
        signature = project.upload_key.sign(f"<name>{name}</name><max_nbytes>{most_bytes:.0f}</max_nbytes>".encode())
        certified += f"{part}<xml_signature>\n{signature}</xml_signature>\n</file_info>"
    return certified + text.split("</file_info>")[-1]


def _outputs(config: ProjectConfig, result: Row) -> Iterator[Path]:
    for reference in _fragments(result["xml_doc_in"]).iter("file_ref"):
        yield config.upload_path(reference.findtext("file_name", ""))


def _fragments(document: bytes) -> ElementTree.Element:
    return ElementTree.fromstring(b"<all>" + document + b"</all>")
