"""Remote sources: a local S3, and a web server that cuts, delays and lies. What is fetched is whole, or refused."""

import hashlib
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from vcdl.errors import DataError, FileUnavailable, RunFolderError
from vcdl.files import fetched, remote
from vcdl.files.fetched import Address, address_of, fetch, pin_address, sha256_of

pytestmark = pytest.mark.server

TABLE = b"a,y\n" + b"".join(b"%d,%d\n" % (n * 7 % 13, n % 2) for n in range(20_000))
SHA256 = hashlib.sha256(TABLE).hexdigest()


@pytest.fixture(autouse=True)
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "SILENCE_S", 0.3)
    monkeypatch.setattr("vcdl.errors.backoff.Backoff.next_wait_s", lambda self: 0.0)


@dataclass
class Server:
    """A web server, and what is wrong with it."""

    url: str = ""
    content: bytes = TABLE
    cuts_after: int | None = None
    """Bytes of an answer after which it hangs up."""
    sleeps_s: float = 0.0
    """Before each answer."""
    length: int | None = None
    """What it says of its length."""
    ranges: bool = True
    status: int = 200
    asked: list[str | None] = field(default_factory=list)
    """The ranges that were asked for."""

    @property
    def address(self) -> Address:
        found = address_of(f"{self.url}/t.csv#sha256={SHA256}")
        assert found is not None
        return found


@pytest.fixture
def server() -> Iterator[Server]:
    facts = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            facts.asked.append(wanted)
            time.sleep(facts.sleeps_s)
            begin = int(wanted[6:-1]) if wanted and facts.ranges else 0
            if facts.status >= 400:
                self.send_error(facts.status)
                return
            self.send_response(206 if begin else 200)
            length = len(facts.content) - begin if facts.length is None else facts.length
            self.send_header("Content-Length", str(length))
            self.send_header("ETag", hashlib.sha256(facts.content).hexdigest())
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(facts.content) - 1}/{len(facts.content)}")
            self.end_headers()
            self.wfile.write(facts.content[begin:][: facts.cuts_after])

        def log_message(self, *_: Any) -> None: ...

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    facts.url = f"http://127.0.0.1:{running.server_address[1]}"
    yield facts
    running.shutdown()
    running.server_close()


def test_what_is_cut_goes_on_where_it_was_and_is_fetched_once(server: Server) -> None:
    server.cuts_after = 50_000
    assert fetch(server.address).read_bytes() == TABLE
    assert server.asked == [None, None, "bytes=50000-"], "once for the headers"
    fetch(server.address)
    assert len(server.asked) == 3


def test_a_killed_fetch_goes_on_and_a_changed_file_begins_anew(server: Server) -> None:
    server.cuts_after = 30_000
    address = server.address._replace(sha256=None)
    server.content, whole = TABLE[:-2], TABLE

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetched._Fetch, "_add", killed)
        with pytest.raises(KeyboardInterrupt):
            fetch(address)
    assert fetch(address).read_bytes() == TABLE[:-2]
    server.content, server.cuts_after = whole, None
    assert fetch(address).read_bytes() == TABLE, "without a checksum it is asked whether it has changed"


def test_a_server_without_ranges_and_one_that_cuts_always(server: Server) -> None:
    server.ranges, server.cuts_after = False, 10_000
    with pytest.raises(FileUnavailable, match=f"t.csv .*it broke off after 10000 of {len(TABLE)} bytes.: check"):
        fetch(server.address)
    server.cuts_after = None
    assert fetch(server.address).read_bytes() == TABLE


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"status": 404}, DataError, "answers 404 Not Found: check the address"),
        ({"status": 403}, DataError, "answers 403 Forbidden: it may not be read; a signed address"),
        ({"status": 503}, FileUnavailable, "it answers 503 Service Unavailable.: check the connection"),
        ({"sleeps_s": 0.5}, FileUnavailable, "timed out.: check the connection"),
        ({"length": 10**6}, FileUnavailable, "it changes while it is read"),
        ({"length": 1000}, DataError, "is not what #sha256 says, it has sha256="),
        ({"length": 10**15}, DataError, "takes 1000000.0 GB, and .* GB are free in .*: make room, or set XDG_CACHE"),
        ({"content": b"a,y\n"}, DataError, "is not what #sha256 says"),
    ],
)
def test_a_wrong_server_is_one_line(wrong: dict[str, Any], kind: type[Exception], message: str, server: Server) -> None:
    for name, value in wrong.items():
        setattr(server, name, value)
    with pytest.raises(kind, match=message) as refused:
        fetch(server.address)
    assert "\n" not in str(refused.value)
    server.__dict__.update(Server(url=server.url).__dict__)
    assert fetch(server.address).read_bytes() == TABLE, "nothing that is wrong was left"


def test_a_folder_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in its place")
    with pytest.raises(RunFolderError, match="remove what is in its place"):
        fetch(server.address)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://host/t.csv", "ftp:// is not read; give a path, or s3://, gs://, https://"),
        ("https://host/t.csv#sha256=12", "sha256= and 64 hex digits"),
        ("https://me:secret@host/t.csv", "https:// with a user or a password: remove them"),
        ("s3://bucket/t.csv?endpoint_override=evil", "an endpoint of your own is AWS_ENDPOINT_URL"),
        ("http://host/t.csv", "can be changed by anybody on its way"),
        ("https://host/folder/", "is a folder, and https:// serves files"),
    ],
)
def test_addresses_that_are_not_taken(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        address_of(text)
    assert "secret" not in str(refused.value)
    assert address_of("folder/t.csv") is None


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    import boto3
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    url = f"http://127.0.0.1:{running.get_host_and_port()[1]}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("ENDPOINT_URL", url), ("ACCESS_KEY_ID", "me"), ("SECRET_ACCESS_KEY", "secret")):
            patch.setenv(f"AWS_{name}", value)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        yield client
    running.stop()


def at(text: str) -> Address:
    found = address_of(text)
    assert found is not None
    return found


def test_a_folder_of_s3_is_fetched_and_followed(s3: Any) -> None:
    for name in ("set/1.csv", "set/below/2.csv"):
        s3.put_object(Bucket="bucket", Key=name, Body=TABLE)
    copy = fetch(at("s3://bucket/set"))
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*.csv")) == ["1.csv", "below/2.csv"]
    s3.delete_object(Bucket="bucket", Key="set/1.csv")
    s3.put_object(Bucket="bucket", Key="set/below/2.csv", Body=TABLE[:-2])
    copy = fetch(at("s3://bucket/set"))
    assert [path.read_bytes() for path in copy.rglob("*.csv")] == [TABLE[:-2]]
    address = pin_address(at("s3://bucket/set"))
    assert address.sha256 == sha256_of(address.copy) == sha256_of(fetch(address))
    s3.delete_object(Bucket="bucket", Key="set/below/2.csv")
    assert fetch(address) == address.copy, "by its checksum it is had without asking"
    with pytest.raises(DataError, match="s3://bucket/set is not there, or is empty"):
        fetch(at("s3://bucket/set"))


def test_names_in_a_bucket_lead_nowhere(s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket="bucket", Key="bad/../../../evil.csv", Body=TABLE)
    with pytest.raises(DataError, match=r"has a file '.*/evil\.csv': give it a plain name"):
        fetch(at("s3://bucket/bad"))
    assert not list(tmp_path.rglob("evil.csv"))


def test_wrong_credentials_and_a_bucket_that_is_away(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0.0)
        patch.setattr("moto.core.responses.ActionAuthenticatorMixin.request_count", 1)
        with pytest.raises(DataError, match=r"s3://bucket/set may not be read .* set AWS_ACCESS_KEY_ID and"):
            fetch(at("s3://bucket/set"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(FileUnavailable, match=r"s3://bucket/set .*: check the connection"):
        fetch(at("s3://bucket/set"))


def test_a_job_names_a_bucket(s3: Any, tmp_path: Path) -> None:
    from vcdl.commands.new import new_from
    from vcdl.data import load_dataset
    from vcdl.job import load_job, save_job

    s3.put_object(Bucket="bucket", Key="t.csv", Body=TABLE)
    new_from("s3://bucket/t.csv", tmp_path / "mine")
    s3.delete_object(Bucket="bucket", Key="t.csv")
    job = load_job(tmp_path / "mine" / "job.yaml")
    assert f"path: s3://bucket/t.csv#sha256={SHA256}" in (tmp_path / "mine" / "job.yaml").read_text()
    assert len(load_dataset(job.data, 1).x_train) == 18_000
    save_job(job, tmp_path / "frozen.yaml")
    assert "s3://" not in (tmp_path / "frozen.yaml").read_text(), "a run names the copy"
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(DataError, match=r"s3://bucket/t\.csv is not there"):
        load_job(tmp_path / "mine" / "job.yaml")


@pytest.mark.parametrize("path", ["%2e%2e", "a/%2e%2e", "a%2F..", "whole", "files", "lock", "%00", "a%0Ab", "."])
def test_the_name_of_a_copy_leads_nowhere_else(path: str) -> None:
    address = address_of(f"https://example.org/{path}")
    assert address is not None
    assert address.copy.parent == address.folder
    assert address.copy.name not in ("..", "whole", "files", "lock")
    assert address.copy.name.isprintable()
