"""`gs://` against a stand-in for Google's storage: fetched whole, resumed at the byte, or refused."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from vcdl.errors import DataError
from vcdl.files.fetched import address_of, fetch
from vcdl.files.remote import Bucket

pytestmark = [pytest.mark.server, pytest.mark.process]
TABLE = b"a,y\n" + b"".join(b"%d,%d\n" % (n * 7 % 13, n % 2) for n in range(20_000))


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a bucket's files, and a service account that signs for itself."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    names = {"type": "service_account", "project_id": "p", "private_key_id": "1", "client_id": "1"}
    account = {**names, "client_email": "a@p.test", "private_key": key.decode(), "token_uri": "http://127.0.0.1:9"}
    (tmp_path / "account.json").write_text(json.dumps(account))
    (tmp_path / "buckets" / "mine" / "set").mkdir(parents=True)
    command = [sys.executable, "-m", "tests.files.google_storage", str(tmp_path / "buckets")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://127.0.0.1:{int(server.stdout.readline())}")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield tmp_path / "buckets" / "mine"
        server.terminate()


def copy_of(url: str) -> Path:
    address = address_of(url)
    assert address is not None
    return fetch(address)


def test_files_and_folders_are_fetched_whole_and_resumed(bucket: Path) -> None:
    (bucket / "t.csv").write_bytes(TABLE)
    (bucket / "set" / "1.csv").write_bytes(TABLE[:100])
    (bucket / "set" / "2.csv").write_bytes(TABLE[100:])
    sha256 = hashlib.sha256(TABLE).hexdigest()
    assert copy_of("gs://mine/t.csv").read_bytes() == TABLE
    assert copy_of(f"gs://mine/t.csv#sha256={sha256}").read_bytes() == TABLE
    copy = copy_of("gs://mine/set")
    assert b"".join(path.read_bytes() for path in sorted(copy.rglob("*.csv"))) == TABLE
    remote = Bucket("gs://mine/t.csv")
    (file,) = remote.files()
    opened = remote.open(file, 1000)
    assert (opened.begin, b"".join(opened.pieces)) == (1000, TABLE[1000:])


def test_what_is_not_there_and_another_file_are_refused(bucket: Path) -> None:
    with pytest.raises(DataError, match=r"gs://mine/away\.csv is not there, or is empty: check bucket and name"):
        copy_of("gs://mine/away.csv")
    (bucket / "t.csv").write_bytes(TABLE)
    with pytest.raises(DataError, match=r"gs://mine/t\.csv is not what #sha256 says"):
        copy_of(f"gs://mine/t.csv#sha256={'0' * 64}")
