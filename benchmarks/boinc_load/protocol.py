"""What a BOINC client and the server say to each other: scheduler requests, their replies, and uploads."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from xml.sax.saxutils import escape

from vcdl.errors import GridError

PLATFORM = "x86_64-pc-linux-gnu"
_VERSION = (
    "<core_client_major_version>7</core_client_major_version>\n"
    "<core_client_minor_version>20</core_client_minor_version>\n"
    "<core_client_release>5</core_client_release>\n"
)
_BARE_AND = re.compile(r"&(?!#?\w+;)")
_ABORTS = ("result_abort", "result_abort_if_not_started")
_UPLOADED = 5
"""Client state of a result whose files are uploaded."""


@dataclass(frozen=True)
class RemoteFile:
    """An input that a host downloads."""

    name: str
    url: str
    md5: str
    is_sticky: bool


@dataclass(frozen=True)
class Task:
    """A result that the scheduler sent."""

    result: str
    workunit: str
    inputs: dict[str, RemoteFile]
    """By the name under which the client opens it."""
    upload_name: str
    upload_url: str
    signature: str
    """The certificate without which the upload handler takes nothing."""
    max_bytes: float


@dataclass(frozen=True)
class Reply:
    """The scheduler's reply."""

    host: int
    """The number of a new host; 0: none was given."""
    delay_s: float
    """Seconds that the server asks to wait, at least."""
    next_s: float
    """Seconds after which a host asks again, at most; 0: when it likes."""
    acknowledged: tuple[str, ...]
    aborted: tuple[str, ...]
    tasks: tuple[Task, ...]
    messages: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """A result that was trained and uploaded."""

    result: str
    elapsed_s: float


def request(
    authenticator: str,
    host: int,
    sequence: int,
    name: str,
    wants_s: float,
    reports: Iterable[Report],
    held: Iterable[str],
    sticky: Iterable[str],
) -> bytes:
    """A scheduler request of a client with one core; `held`: the results that it has and does not report."""
    parts = [
        f"<scheduler_request>\n<authenticator>{escape(authenticator)}</authenticator>\n<hostid>{host}</hostid>\n"
        f"<rpc_seqno>{sequence}</rpc_seqno>\n{_VERSION}"
        f"<allow_multiple_clients>1</allow_multiple_clients>\n"
        f"<work_req_seconds>{wants_s}</work_req_seconds>\n<cpu_req_secs>{wants_s}</cpu_req_secs>\n"
        f"<cpu_req_instances>{1 if wants_s else 0}</cpu_req_instances>\n<estimated_delay>0</estimated_delay>\n"
        f"<client_cap_plan_class>1</client_cap_plan_class>\n<platform_name>{PLATFORM}</platform_name>\n"
        "<time_stats>\n<on_frac>1</on_frac>\n<connected_frac>1</connected_frac>\n<active_frac>1</active_frac>\n"
        "</time_stats>\n"
        f"<host_info>\n<timezone>0</timezone>\n<domain_name>{name}</domain_name>\n<ip_addr>127.0.0.1</ip_addr>\n"
        f"<host_cpid>{name}</host_cpid>\n<p_ncpus>1</p_ncpus>\n<p_vendor>VCDL</p_vendor>\n"
        "<p_model>simulated</p_model>\n<p_features>sse2</p_features>\n<p_fpops>5e9</p_fpops>\n<p_iops>1e10</p_iops>\n"
        "<p_membw>1e9</p_membw>\n<p_calculated>1</p_calculated>\n<m_nbytes>16e9</m_nbytes>\n<m_cache>1e6</m_cache>\n"
        "<m_swap>1e9</m_swap>\n<d_total>1e12</d_total>\n<d_free>9e11</d_free>\n<os_name>Linux</os_name>\n"
        "<os_version>6</os_version>\n</host_info>\n"
        "<disk_usage>\n<d_boinc_used_total>0</d_boinc_used_total>\n<d_boinc_used_project>0</d_boinc_used_project>\n"
        "<d_project_share>9e11</d_project_share>\n</disk_usage>\n"
    ]
    parts += [
        f"<result>\n<name>{each.result}</name>\n<final_cpu_time>{each.elapsed_s:f}</final_cpu_time>\n"
        f"<final_elapsed_time>{each.elapsed_s:f}</final_elapsed_time>\n<exit_status>0</exit_status>\n"
        f"<state>{_UPLOADED}</state>\n<platform>{PLATFORM}</platform>\n<version_num>100</version_num>\n"
        "<stderr_out>\n<core_client_version>7.20.5</core_client_version>\n</stderr_out>\n</result>\n"
        for each in reports
    ]
    parts += [
        f"<file_info>\n<name>{file}</name>\n<nbytes>1</nbytes>\n<status>1</status>\n</file_info>\n" for file in sticky
    ]
    parts += ["<other_results>\n"]
    parts += [f"<other_result>\n<name>{result}</name>\n</other_result>\n" for result in held]
    parts += ["</other_results>\n</scheduler_request>\n"]
    return "".join(parts).encode()


def read_reply(content: bytes) -> Reply:
    """Raises GridError for what is no reply of a scheduler that works."""
    text = _BARE_AND.sub("&amp;", content.decode(errors="replace"))  # the scheduler writes addresses as they are
    begin = text.find("<scheduler_reply>")
    try:
        root = ElementTree.fromstring(text[begin:]) if begin >= 0 else None
    except ElementTree.ParseError as error:
        raise GridError(f"the scheduler's reply is not well-formed: {error}: {text[:300]!r}") from error
    if root is None or root.find("project_is_down") is not None:
        raise GridError(f"the scheduler does not work: {text[:300]!r}")
    files = {_text(info, "name"): info for info in root.iterfind("file_info")}
    workunits = {_text(workunit, "name"): workunit for workunit in root.iterfind("workunit")}
    return Reply(
        host=int(root.findtext("hostid") or 0),
        delay_s=float(root.findtext("request_delay") or 0),
        next_s=float(root.findtext("next_rpc_delay") or 0),
        acknowledged=tuple(_text(each, "name") for each in root.iterfind("result_ack")),
        aborted=tuple(_text(each, "name") for tag in _ABORTS for each in root.iterfind(tag)),
        tasks=tuple(_task(result, workunits, files) for result in root.iterfind("result")),
        messages=tuple((each.text or "").strip() for each in root.iterfind("message")),
    )


def _task(
    result: ElementTree.Element, workunits: dict[str, ElementTree.Element], files: dict[str, ElementTree.Element]
) -> Task:
    """Raises GridError."""
    workunit = _text(result, "wu_name")
    output = files.get(_text(result.find("file_ref"), "file_name"))
    if workunit not in workunits or output is None:
        raise GridError(f"the scheduler sent {_text(result, 'name')} without its workunit or its output file")
    references = workunits[workunit].iterfind("file_ref")
    inputs = {_text(each, "open_name"): files[_text(each, "file_name")] for each in references}
    return Task(
        result=_text(result, "name"),
        workunit=workunit,
        inputs={
            opened: RemoteFile(
                _text(info, "name"), _text(info, "url"), _text(info, "md5_cksum"), info.find("sticky") is not None
            )
            for opened, info in inputs.items()
        },
        upload_name=_text(output, "name"),
        upload_url=_text(output, "url"),
        signature=(output.findtext("xml_signature") or "").lstrip("\n"),
        max_bytes=float(_text(output, "max_nbytes")),
    )


def _text(element: ElementTree.Element | None, tag: str) -> str:
    return "" if element is None else element.findtext(tag, "").strip()


def size_question(task: Task) -> bytes:
    """The question how much of an upload the server has."""
    return (
        f"<data_server_request>\n{_VERSION}<get_file_size>{task.upload_name}</get_file_size>\n</data_server_request>\n"
    ).encode()


def upload_header(task: Task, size_bytes: int, md5: str) -> bytes:
    """Everything of an upload before its data."""
    return (
        f"<data_server_request>\n{_VERSION}<file_upload>\n<file_info>\n<name>{task.upload_name}</name>\n"
        f"<xml_signature>\n{task.signature}</xml_signature>\n<max_nbytes>{task.max_bytes:.0f}</max_nbytes>\n"
        f"</file_info>\n<nbytes>{size_bytes}</nbytes>\n<md5_cksum>{md5}</md5_cksum>\n<offset>0</offset>\n<data>\n"
    ).encode()


def check_upload_reply(content: bytes) -> None:
    """Raises GridError unless the upload handler took what was sent."""
    text = content.decode(errors="replace")
    status = re.search(r"<status>\s*(-?\d+)", text)
    if status is None or int(status[1]) != 0:
        raise GridError(f"the upload handler refused: {' '.join(text.split())[:300]}")
