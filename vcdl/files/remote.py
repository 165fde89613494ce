"""Read files of other machines from any byte on: `s3://` and `gs://` by pyarrow, `https://` by Python itself.

Credentials are those that this machine has for its cloud. None is taken from an address, or sent to another machine.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPException
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from vcdl.errors import DataError, one_line

SILENCE_S = 30.0
"""Seconds without a byte after which a connection counts as dead; slow servers send something sooner."""
_PIECE_BYTES = 2**22
_REFUSED = re.compile("ACCESS_DENIED|FORBIDDEN|UNAUTHORIZED|40[13]|INVALID_ACCESS_KEY|SIGNATURE|TOKEN|credential", re.I)
"""How the clouds' libraries word that access is refused."""
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the instance a role that may read",
    "gs": "run `gcloud auth application-default login`, or let the instance's service account read",
}
_ANSWERS = {
    401: "it wants a login, and none is sent: take a signed address",
    403: "it may not be read; a signed address may have expired: take a new one",
}


class AwayError(Exception):
    """Raised when the other machine cannot be reached, or breaks off: a retry may succeed."""


class RemoteFile(NamedTuple):
    """A file at an address."""

    name: str
    """Its path below the address, or an empty string if the address itself is the file."""
    size_bytes: int | None
    """Its size, or None if the server does not say."""
    identity: str
    """A text that changes when the file's content changes."""


class Opened(NamedTuple):
    """A file that is being read."""

    file: RemoteFile
    begin: int
    """The offset of its first byte: the requested one, or 0."""
    pieces: Iterator[bytes]
    """The content in pieces; it may end too early or raise AwayError."""


class Remote(Protocol):
    """Reads the file or the folder at an address.

    All methods raise DataError for permanent errors and AwayError for temporary ones.
    """

    def files(self) -> list[RemoteFile]:
        """Return the file at the address, or all files below it if it is a folder."""

    def open(self, file: RemoteFile, begin: int) -> Opened:
        """Open a file for reading from the byte `begin` on; the server may start at 0 instead (`Opened.begin`)."""


def remote_at(url: str) -> Remote:
    """Return what reads a URL: a web server's file or a bucket. Raises DataError, AwayError."""
    return Web(url) if urlsplit(url).scheme in ("http", "https") else Bucket(url)


def display_url(url: str) -> str:
    """Return a URL for messages, without its query, which may hold a signature."""
    return url.partition("?")[0].partition("#")[0]


class Web:
    """A file at a web server, which may serve from any byte on or only from the first."""

    def __init__(self, url: str) -> None:
        self._url = url

    def files(self) -> list[RemoteFile]:
        return [self.open(RemoteFile("", None, ""), 0).file]

    def open(self, file: RemoteFile, begin: int) -> Opened:
        from urllib import error as errors
        from urllib import request

        headers = {
            "User-Agent": "vcdl",
            "Accept-Encoding": "identity",
            **({"Range": f"bytes={begin}-"} if begin else {}),
        }
        try:
            got = request.urlopen(request.Request(self._url, headers=headers), timeout=SILENCE_S)
        except errors.HTTPError as error:
            answer = f"answers {error.code} {error.reason}"
            if error.code in (416, 429) or error.code >= 500:
                raise AwayError(f"it {answer}") from error
            raise DataError(
                f"{display_url(self._url)} {answer}: {_ANSWERS.get(error.code, 'check the address')}"
            ) from error
        except (OSError, HTTPException) as error:
            raise AwayError(one_line(getattr(error, "reason", error))) from error
        # A redirect to http would let anyone on the way change the data.
        if self._url.startswith("https:") and not got.geturl().startswith("https:"):
            raise DataError(
                f"{display_url(self._url)} leads to {display_url(got.geturl())}: name an address that stays https"
            )
        # A server may ignore `Range` and send the whole file with status 200. Then the download starts from 0 again.
        is_part = got.status == 206
        whole = re.search(r"/(\d+)$", got.headers.get("Content-Range", "")) if is_part else None
        length = whole[1] if whole else got.headers.get("Content-Length", "")
        size_bytes = int(length) if length.isdigit() else None
        identity = f"{got.headers.get('ETag') or got.headers.get('Last-Modified')} {size_bytes}"
        return Opened(RemoteFile("", size_bytes, identity), begin if is_part else 0, _pieces(got.read))


class Bucket:
    """A file or a folder in a bucket of S3 or of Google's cloud."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._url, self._cloud = url, parts.scheme
        self._path = f"{parts.netloc}{parts.path}".rstrip("/")
        with self._errors():
            self._system = _s3(parts.netloc) if parts.scheme == "s3" else _gs()

    def files(self) -> list[RemoteFile]:
        with self._errors():
            from pyarrow.fs import FileSelector, FileType

            found = [self._system.get_file_info(self._path)]
            if found[0].type == FileType.Directory:
                found = self._system.get_file_info(FileSelector(self._path, recursive=True))
        files = [info for info in found if info.type == FileType.File]
        if not files:
            raise DataError(f"{display_url(self._url)} is not there, or is empty: check bucket and name")
        return [self._file(info) for info in files]

    def open(self, file: RemoteFile, begin: int) -> Opened:
        path = f"{self._path}/{file.name}".rstrip("/")
        with self._errors():
            now = self._file(self._system.get_file_info(path))
            stream = self._system.open_input_file(path)
            # The file may have become shorter than the part that was fetched.
            stream.seek(min(begin, now.size_bytes or 0))
        return Opened(now, begin, _pieces(stream.read))

    def _file(self, info: Any) -> RemoteFile:
        """Return a file of the bucket from pyarrow's description."""
        return RemoteFile(info.path[len(self._path) :].lstrip("/"), info.size, f"{info.size} {info.mtime_ns}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise pyarrow's errors as DataError if access is refused, otherwise as AwayError.

        All are OSError, so refused access is recognised by the message.
        """
        try:
            yield
        except ImportError as error:
            raise DataError(
                f"{self._cloud}:// is read by pyarrow, which is not here ({error}): pip install 'vcdl[data]'"
            ) from error
        except OSError as error:
            if _REFUSED.search(str(error)):
                raise DataError(
                    f"{display_url(self._url)} may not be read ({one_line(error)[:200]}): {_CREDENTIALS[self._cloud]}"
                ) from error
            raise AwayError(one_line(error)) from error


def _pieces(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield pieces of a stream until it ends; raise AwayError if it breaks off."""
    try:
        while piece := read(_PIECE_BYTES):
            yield piece
    except (OSError, HTTPException) as error:
        raise AwayError(one_line(error)) from error


def _s3(bucket: str) -> Any:
    from pyarrow import fs

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return fs.S3FileSystem(
        endpoint_override=endpoint,
        # A server of one's own has no AWS region, and asking AWS for it would fail or reach the wrong place.
        region=region or (None if endpoint else fs.resolve_s3_region(bucket)),
        connect_timeout=SILENCE_S,
        request_timeout=SILENCE_S,
        # The caller retries with backoff and counts progress. Retries inside the library would only hide an outage for
        # minutes.
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )


def _gs() -> Any:
    from pyarrow import fs

    return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=SILENCE_S))
