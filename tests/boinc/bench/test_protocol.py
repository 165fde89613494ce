"""The words of a simulated host, and what it makes of the scheduler's."""

import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks.boinc_load import protocol
from benchmarks.boinc_load.protocol import Report, Task
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


def task() -> Task:
    return protocol.read_reply(REPLY).tasks[0]


def test_a_reply_is_read_as_the_scheduler_writes_it() -> None:
    reply = protocol.read_reply(REPLY)
    assert (reply.host, reply.delay_s, reply.next_s, reply.messages) == (41, 7.0, 30.0, ("Sent one",))
    assert reply.acknowledged == ("job_e0001_s000_a0_v000000_0",)
    assert reply.aborted == ("job_e0001_s002_a0_v000000_0",)
    (sent,) = reply.tasks
    assert (sent.result, sent.workunit) == ("job_e0001_s001_a0_v000000_0", "job_e0001_s001_a0_v000000")
    assert [(name, file.url, file.is_sticky) for name, file in sent.inputs.items()] == [
        ("params.h5", "http://x/params", False),
        ("shard.npz", "http://x/shard", True),
    ]
    assert (sent.upload_url, sent.max_bytes) == ("http://x/upload", 1000)


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
        protocol.read_reply(content)


def test_an_upload_carries_the_certificate_as_it_was_signed() -> None:
    header = protocol.upload_header(task(), 900, "cc").decode()
    assert "<xml_signature>\n101b\n47e1\n.\n</xml_signature>\n<max_nbytes>1000</max_nbytes>\n" in header
    assert header.endswith("<nbytes>900</nbytes>\n<md5_cksum>cc</md5_cksum>\n<offset>0</offset>\n<data>\n")
    protocol.check_upload_reply(b"<data_server_reply>\n    <status>0</status>\n</data_server_reply>\n")
    with pytest.raises(GridError, match="invalid signature"):
        protocol.check_upload_reply(b"<status>-1</status><message>invalid signature</message>")
    with pytest.raises(GridError):
        protocol.check_upload_reply(b"")


def test_a_request_names_what_is_reported_held_and_kept() -> None:
    body = protocol.request("key<", 3, 4, "host", 1.0, [Report("done", 2.5)], ["held"], ["shard"])
    root = ElementTree.fromstring(body)
    assert (root.findtext("authenticator"), root.findtext("hostid"), root.findtext("rpc_seqno")) == ("key<", "3", "4")
    assert root.findtext("result/name") == "done"
    assert (root.findtext("result/state"), root.findtext("result/exit_status")) == ("5", "0")
    assert root.findtext("other_results/other_result/name") == "held"
    assert root.findtext("file_info/name") == "shard"
    assert root.findtext("cpu_req_instances") == "1"
