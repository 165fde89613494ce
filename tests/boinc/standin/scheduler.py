"""The scheduler: a client's request in, the reply out, the tables changed as the real one changes them."""

import os
import re
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from tests.boinc.standin.plan_class import processors
from tests.boinc.standin.project import StandinProject
from tests.boinc.standin.schema import Connection, change, insert, rows
from tests.boinc.standin.states import (
    ASSIGN_HOST,
    ASSIGN_USER,
    BANNED,
    FILES_UPLOADED,
    Assimilate,
    Error,
    Outcome,
    Server,
    Validate,
)
from tests.boinc.standin.transitioner import is_hopeful, make_result

Row = dict[str, Any]
_LOOKED_AT = 100
"""Unsent results among which those with files on the host go first."""


@dataclass
class Reply:
    """The parts of a reply, in the order the client wants them."""

    head: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    aborted_unless_started: list[str] = field(default_factory=list)
    app: str = ""
    app_versions: dict[int, str] = field(default_factory=dict)
    workunits: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        named = [
            f"<{tag}>\n    <name>{name}</name>\n</{tag}>\n"
            for tag, names in (
                ("result_ack", self.acknowledged),
                ("result_abort", self.aborted),
                ("result_abort_if_not_started", self.aborted_unless_started),
            )
            for name in names
        ]
        work = [self.app, *self.app_versions.values(), *self.workunits, *self.results]
        return "".join(("<scheduler_reply>\n", *self.head, *named, *work, *self.tail, "</scheduler_reply>\n"))


class Conversation:
    """One request and its reply."""

    def __init__(self, project: StandinProject, connection: Connection, request: bytes) -> None:
        self._project = project
        self._config = project.config
        self._connection = connection
        # What an app printed is in it, as it is.
        readable = re.sub(rb"[\0-\x08\x0b\x0c\x0e-\x1f]", b"?", request)
        self._request = ElementTree.fromstring(readable.decode("utf-8", "replace"))
        self._reply = Reply()
        self._now = int(time.time())

    def answer(self) -> str:
        """The reply; the changes are committed by the caller."""
        head = self._reply.head
        head.append(f"<scheduler_version>801</scheduler_version>\n<master_url>{self._project.url}</master_url>\n")
        head.append(f"<project_name>{self._config.settings['long_name']}</project_name>\n")
        if (pause_s := self._config.number("min_sendwork_interval")) > 0:
            head.append(f"<request_delay>{pause_s + 1}</request_delay>\n")
        users = self._rows("SELECT * FROM user WHERE authenticator=%s", self._text("authenticator"))
        if not users:
            head.append('<message priority="notice">Invalid or missing account key.</message>\n')
            head.append("<request_delay>86400</request_delay>\n")
            return self._reply.text
        host = self._host(users[0])
        if host["max_results_day"] == BANNED:
            head.append('<message priority="low">Not accepting requests from this host</message>\n')
            head.append("<request_delay>86400</request_delay>\n")
            return self._reply.text
        if (next_s := self._config.number("next_rpc_delay")) > 0:
            head.append(f"<next_rpc_delay>{next_s}</next_rpc_delay>\n")
        self._receive_results(host)
        if self._config.flag("send_result_abort"):
            self._abort_results(host)
        if self._config.flag("resend_lost_results"):
            self._resend(host)
        self._send_work(host)
        if self._config.flag("msg_to_host"):
            for message in self._rows("SELECT * FROM msg_to_host WHERE hostid=%s AND handled=0", host["id"]):
                self._reply.tail.append(f"{message['xml']}\n")
                self._change("msg_to_host", message["id"], handled=1)
        if not self._text("code_sign_key"):
            key = self._project.code_sign_key.public_text
            self._reply.tail.append(f"<code_sign_key>\n{key}\n</code_sign_key>\n")
        return self._reply.text

    # -- who asks

    def _host(self, user: Row) -> Row:
        host_id = int(self._text("hostid") or 0)
        if not self._rows("SELECT id FROM host WHERE id=%s AND userid=%s", host_id, user["id"]):
            host_id = insert(self._connection, "host", create_time=self._now, userid=user["id"])
            self._reply.head.append(f"<hostid>{host_id}</hostid>\n")  # only to a new one
        self._change(
            "host",
            host_id,
            rpc_time=self._now,
            rpc_seqno=int(self._text("rpc_seqno") or 0),
            domain_name=self._text("host_info/domain_name"),
            host_cpid=self._text("host_info/host_cpid"),
            p_ncpus=int(self._text("host_info/p_ncpus") or 1),
            p_fpops=float(self._text("host_info/p_fpops") or 1e9),
            m_nbytes=float(self._text("host_info/m_nbytes") or 0),
            d_free=float(self._text("host_info/d_free") or 0),
            os_name=self._text("host_info/os_name"),
        )
        self._reply.head.append(f"<userid>{user['id']}</userid>\n<user_name>{escape(user['name'])}</user_name>\n")
        return self._rows("SELECT * FROM host WHERE id=%s", host_id)[0]

    # -- what it brings

    def _receive_results(self, host: Row) -> None:
        for reported in self._request.findall("result"):
            name = reported.findtext("name", "")
            self._reply.acknowledged.append(name)
            rows = self._rows("SELECT * FROM result WHERE name=%s FOR UPDATE", name)
            if not rows or rows[0]["hostid"] != host["id"] or rows[0]["received_time"]:
                continue
            late = rows[0]["server_state"] == Server.OVER and rows[0]["outcome"] == Outcome.NO_REPLY
            if rows[0]["server_state"] != Server.IN_PROGRESS and not late:
                continue
            state, status = int(reported.findtext("state", "0")), int(reported.findtext("exit_status", "0"))
            good = state == FILES_UPLOADED and status == 0
            told = reported.find("stderr_out")
            stderr = "" if told is None else "".join(told.itertext())
            self._change(
                "result", rows[0]["id"], server_state=Server.OVER,
                outcome=Outcome.SUCCESS if good else Outcome.CLIENT_ERROR,
                validate_state=Validate.INIT if good else Validate.INVALID, client_state=state, exit_status=status,
                received_time=self._now, cpu_time=float(reported.findtext("final_cpu_time", "0")),
                elapsed_time=float(reported.findtext("final_elapsed_time", "0")), stderr_out=stderr[:65000],
                xml_doc_out="".join(ElementTree.tostring(info, "unicode") for info in reported.findall("file_info")),
            )  # fmt: skip
            self._change("workunit", rows[0]["workunitid"], transition_time=self._now)

    def _abort_results(self, host: Row) -> None:
        for name in self._held:
            rows = self._rows(
                "SELECT w.error_mask, w.assimilate_state, r.server_state, r.outcome FROM result r JOIN workunit w"
                " ON w.id=r.workunitid WHERE r.name=%s AND r.hostid=%s",
                name,
                host["id"],
            )
            if not rows or rows[0]["error_mask"] & Error.CANCELLED:
                self._reply.aborted.append(name)
            elif rows[0]["assimilate_state"] == Assimilate.DONE or rows[0]["outcome"] == Outcome.NO_REPLY:
                self._reply.aborted_unless_started.append(name)

    # -- what it gets

    def _resend(self, host: Row) -> None:
        """What the client was sent and does not have: the reply was lost, or its disk."""
        reported = {each.findtext("name") for each in self._request.findall("result")}
        for result in self._rows(
            "SELECT * FROM result WHERE hostid=%s AND server_state=%s", host["id"], Server.IN_PROGRESS
        ):
            if result["name"] not in self._held | reported:
                self._send(host, result)

    def _send_work(self, host: Row) -> None:
        seconds = float(self._text("cpu_req_secs") or self._text("work_req_seconds") or 0)
        instances = float(self._text("cpu_req_instances") or 0)
        if self._config.flag("enable_assignment") and self._send_assigned(host, seconds, instances):
            return
        unsent = self._rows(
            "SELECT r.*, w.xml_doc, w.rsc_fpops_est FROM result r JOIN workunit w ON w.id=r.workunitid"
            " WHERE r.server_state=%s AND w.error_mask=0 AND w.transitioner_flags=0"
            " ORDER BY r.priority DESC, r.id LIMIT %s FOR UPDATE SKIP LOCKED",
            Server.UNSENT,
            _LOOKED_AT,
        )
        if self._config.flag("one_result_per_host_per_wu"):
            had = {row["workunitid"] for row in self._rows("SELECT workunitid FROM result WHERE hostid=%s", host["id"])}
            unsent = [result for result in unsent if result["workunitid"] not in had]
        there = {info.findtext("name", "") for info in self._request.findall("file_info")}
        unsent.sort(
            key=lambda row: (-row["priority"], not any(f">{name}<".encode() in row["xml_doc"] for name in there))
        )
        for result in unsent:
            if seconds <= 0 and instances <= 0:
                break
            self._send(host, result)
            seconds -= result["rsc_fpops_est"] / host["p_fpops"]
            instances -= 1

    def _send_assigned(self, host: Row, seconds: float, instances: float) -> bool:
        """Results of workunits that are assigned to this host, or to its account, and want one more; whether there were
        any.
        """
        workunits = self._rows(
            "SELECT DISTINCT w.* FROM assignment a JOIN workunit w ON w.id=a.workunitid"
            " WHERE (a.target_type, a.target_id) IN ((%s, %s), (%s, %s))"
            " AND w.error_mask=0 AND w.need_validate=0 AND w.canonical_resultid=0 AND w.transition_time>=%s",
            *(ASSIGN_USER, host["userid"], ASSIGN_HOST, host["id"]),
            self._now,
        )
        sent: list[int] = []
        for workunit in workunits:
            results = self._rows("SELECT * FROM result WHERE workunitid=%s", workunit["id"])
            hopeful = sum(map(is_hopeful, results))
            if host["id"] in {each["hostid"] for each in results} or hopeful >= workunit["target_nresults"]:
                continue
            if seconds <= 0 and instances <= 0:
                break
            made = make_result(self._project, self._connection, workunit, f"{os.getpid()}_{time.time_ns()}_{len(sent)}")
            self._send(host, self._rows("SELECT * FROM result WHERE id=%s", made)[0])
            sent.append(made)
            seconds -= workunit["rsc_fpops_est"] / host["p_fpops"]
            instances -= 1
        return bool(sent)

    def _send(self, host: Row, result: Row) -> None:
        workunit = self._rows("SELECT * FROM workunit WHERE id=%s", result["workunitid"])[0]
        app = self._rows("SELECT * FROM app WHERE id=%s", workunit["appid"])[0]
        version = self._app_version(host, workunit["appid"])
        if version is None:
            self._reply.head.append('<message priority="low">No app version for this computer.</message>\n')
            return
        deadline = self._now + workunit["delay_bound"]
        self._change(
            "result", result["id"], server_state=Server.IN_PROGRESS, hostid=host["id"], userid=host["userid"],
            sent_time=self._now, report_deadline=deadline, app_version_id=version["id"],
            app_version_num=version["version_num"], flops_estimate=host["p_fpops"],
        )  # fmt: skip
        self._change("workunit", workunit["id"], transition_time=min(workunit["transition_time"], deadline))
        self._reply.app = (
            f"<app>\n    <name>{app['name']}</name>\n"
            f"    <user_friendly_name>{escape(app['user_friendly_name'])}</user_friendly_name>\n"
            f"    <fraction_done_exact>{app['fraction_done_exact']}</fraction_done_exact>\n</app>\n"
        )
        cpus = version["processors"]
        usage = f"    <avg_ncpus>{cpus:f}</avg_ncpus>\n    <flops>{cpus * host['p_fpops']:f}</flops>\n"
        if version["plan_class"]:
            usage = f"    <plan_class>{version['plan_class']}</plan_class>\n{usage}"
        self._reply.app_versions[version["id"]] = (
            version["xml_doc"]
            .decode()
            .replace("</app_version>", f"    <platform>{version['name']}</platform>\n{usage}</app_version>")
        )
        needs = "".join(
            f"    <{name}>{workunit[name]:f}</{name}>\n"
            for name in ("rsc_fpops_est", "rsc_fpops_bound", "rsc_memory_bound", "rsc_disk_bound")
        )
        names = f"    <name>{workunit['name']}</name>\n    <app_name>{app['name']}</app_name>\n"
        self._reply.workunits.append(_after(workunit["xml_doc"].decode(), "<workunit>\n", needs + names) + "\n")
        about = (
            f"<report_deadline>{deadline}</report_deadline>\n<wu_name>{workunit['name']}</wu_name>\n"
            f"<name>{result['name']}</name>\n"
        )
        made_by = (
            f"    <platform>{version['name']}</platform>\n    <version_num>{version['version_num']}</version_num>\n"
            f"    <plan_class>{version['plan_class']}</plan_class>\n</result>"
        )
        document = _after(result["xml_doc_in"].decode(), "<result>\n", about)
        self._reply.results.append(document.replace("</result>", made_by) + "\n")

    def _app_version(self, host: Row, app: int) -> Row | None:
        """The newest version for the host's platforms; of several the one that uses most processors."""
        names = [self._text("platform_name"), *(each.text for each in self._request.findall("alt_platform/name"))]
        candidates = self._rows(
            "SELECT v.*, p.name FROM app_version v JOIN platform p ON p.id=v.platformid WHERE v.appid=%s"
            " AND v.deprecated=0 AND p.name IN %s",
            app,
            names,
        )
        for version in candidates:
            version["processors"] = processors(self._project.path, version["plan_class"], host["p_ncpus"])
        fitting = [version for version in candidates if version["processors"] is not None]
        return max(fitting, key=lambda version: (version["version_num"], version["processors"]), default=None)

    @property
    def _held(self) -> set[str]:
        """Results the client has and does not report."""
        return {each.findtext("name", "") for each in self._request.findall("other_results/other_result")}

    # -- the tables

    def _text(self, path: str) -> str:
        return (self._request.findtext(path) or "").strip()

    def _rows(self, sql: str, *values: object) -> list[Row]:
        return rows(self._connection, sql, *values)

    def _change(self, table: str, row: int, **values: object) -> None:
        change(self._connection, table, row, **values)


def _after(document: str, tag: str, text: str) -> str:
    """⚠ As the real scheduler: the tag and its line end must be there, or nothing is sent."""
    assert tag in document, f"insert_after: {tag!r} not found in {document}"
    return document.replace(tag, tag + text, 1)
