"""A simulated host's conversation with a server whose words a test decides; on a real one: ../test_real_load.py."""

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.boinc_load.driver import Driver
from benchmarks.boinc_load.protocol import Task, read_reply
from benchmarks.boinc_load.simulated_host import Connections, Records, SimulatedHost, Updates
from vcdl.errors import GridError

REPLY = b"""Content-type: text/xml

<scheduler_reply>
<scheduler_version>803</scheduler_version>
<request_delay>7.000000</request_delay>
<message priority="low">Sent one</message>
<next_rpc_delay>30.000000</next_rpc_delay>
<hostid>41</hostid>
<result_ack>
    <name>job_e0001_s000_a0_v000000_0</name>
</result_ack>
<result_abort>
    <name>job_e0001_s002_a0_v000000_0</name>
</result_abort>
<file_info>
    <name>params</name><url>http://x/params</url><md5_cksum>aa</md5_cksum><nbytes>5</nbytes>
</file_info>
<file_info>
<sticky/>
    <name>shard</name><url>http://x/shard</url><md5_cksum>bb</md5_cksum><nbytes>5</nbytes>
</file_info>
<workunit>
    <name>job_e0001_s001_a0_v000000</name>
<file_ref>
    <file_name>params</file_name>
    <open_name>params.h5</open_name>
</file_ref>
<file_ref>
    <file_name>shard</file_name>
    <open_name>shard.npz</open_name>
</file_ref>
</workunit>
<file_info>
        <name>job_e0001_s001_a0_v000000_0_r5_0</name>
        <max_nbytes>1000</max_nbytes>
        <url>http://x/upload</url>
    <xml_signature>
101b
47e1
.
</xml_signature>
</file_info>
<result>
    <name>job_e0001_s001_a0_v000000_0</name>
    <wu_name>job_e0001_s001_a0_v000000</wu_name>
    <file_ref>
            <file_name>job_e0001_s001_a0_v000000_0_r5_0</file_name>
            <open_name>update.h5</open_name>
    </file_ref>
</result>
<rss_feeds><url>http://x/notices.php?userid=1&auth=2</url></rss_feeds>
</scheduler_reply>
"""
CONTENT = b"weights"
EMPTY = b"<scheduler_reply><next_rpc_delay>30</next_rpc_delay></scheduler_reply>"
TOOK = b"<status>0</status>"
WITH_WORK = REPLY.replace(b"aa<", hashlib.md5(CONTENT).hexdigest().encode() + b"<").replace(
    b"bb<", hashlib.md5(CONTENT).hexdigest().encode() + b"<"
)
RESULT = "job_e0001_s001_a0_v000000_0"


class Server(Connections):
    """Answers with the scheduler's next word, and takes every upload."""

    def __init__(self, *words: bytes | Exception) -> None:
        super().__init__()
        self.words = list(words)
        self.asked: list[str] = []
        self.uploaded: list[bytes] = []
        self.got: list[str] = []

    def get(self, url: str) -> bytes:
        self.got.append(url)
        return CONTENT

    def post(self, url: str, body: bytes) -> bytes:
        if url == "http://x/upload":
            self.uploaded.append(body)
            return TOOK
        self.asked.append(body.decode())
        word = self.words.pop(0) if self.words else EMPTY
        if isinstance(word, Exception):
            raise word
        return word


class NoUpdates(Updates):
    def __init__(self) -> None:
        pass

    def begin(self, task: Task, params: bytes) -> None:
        assert params == CONTENT

    def make(self, task: Task, train_s: float) -> bytes:
        return b"x" * 10_000

    def end(self, task: Task) -> None:
        pass


@pytest.fixture
def host() -> Callable[..., tuple[SimulatedHost, Server]]:
    def made(*words: bytes | Exception) -> tuple[SimulatedHost, Server]:
        server = Server(*words)
        return SimulatedHost(
            "host", "key", "http://x/cgi", lambda: 0.0, server, NoUpdates(), Records(), threading.Event()
        ), server

    return made


Made = Callable[..., tuple[SimulatedHost, Any]]


def acknowledged(result: str) -> bytes:
    return EMPTY.replace(b"<next", f"<result_ack><name>{result}</name></result_ack><next".encode(), 1)


def test_a_task_is_fetched_trained_uploaded_and_reported(host: Made) -> None:
    one, server = host(WITH_WORK, acknowledged(RESULT))
    assert one.step() == 0, "trained at once"
    assert server.got == ["http://x/shard", "http://x/params"]
    assert one.step() == 30, "no more work: the server's next_rpc_delay"
    question, upload = server.uploaded
    assert b"<get_file_size>job_e0001_s001_a0_v000000_0_r5_0<" in question
    assert upload.endswith(b"<data>\n" + b"x" * 10_000)
    assert b"101b\n47e1\n.\n" in upload
    assert f"<name>{RESULT}</name>\n<final_cpu_time>" in server.asked[1]
    assert "<hostid>41</hostid>" in server.asked[1]
    assert "<name>shard</name>" in server.asked[1], "it keeps the sticky file, and says so"
    assert one.records.reported == ["job_e0001_s001_a0_v000000"]


def test_a_report_that_was_not_acknowledged_is_made_again(host: Made) -> None:
    one, server = host(WITH_WORK, OSError("connection refused"), EMPTY, acknowledged(RESULT))
    for _ in range(4):
        one.step()
    assert ["<final_cpu_time>" in asked for asked in server.asked] == [False, True, True, True]
    assert len(server.uploaded) == 2, "once, with its question"
    assert one.records.reported == ["job_e0001_s001_a0_v000000"]
    assert one.records.errors == ["OSError: connection refused"]


def test_another_content_than_was_told_is_an_error_and_fetched_again(host: Made) -> None:
    one, server = host(REPLY)
    one.step()
    assert "another MD5" in one.records.errors[0]
    assert one.task is None
    one.step()
    assert f"<other_result>\n<name>{RESULT}</name>" in server.asked[1], "it still holds the task"


def test_at_the_end_hosts_bring_home_what_they_have_and_take_nothing_more(host: Made) -> None:
    one, server = host(WITH_WORK, acknowledged(RESULT))
    driver = Driver([one], ramp_s=0)
    driver.run(10, lambda: None, until=lambda: one.task is not None)
    one.is_ending.set()
    driver.run(10, lambda: None, until=lambda: one.is_through)
    driver.close()
    assert one.is_through
    assert "<cpu_req_instances>0<" in server.asked[-1]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>503</html>",
        b"<scheduler_reply><project_is_down/></scheduler_reply>",
        REPLY[:-40],
        REPLY.replace(b"<wu_name>job_e0001_s001", b"<wu_name>job_e0001_s009"),
    ],
)
def test_what_is_no_reply_of_a_working_scheduler_is_an_error(content: bytes) -> None:
    with pytest.raises(GridError):
        read_reply(content)
