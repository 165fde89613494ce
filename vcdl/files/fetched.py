"""Download files and folders from URLs into a cache, `vcdl/sources` in $XDG_CACHE_HOME (default ~/.cache).

A download that breaks off is resumed at the byte that it had reached. A complete copy of an address with `#sha256=…` is
used without asking the server; for other addresses the server is asked whether the file has changed.
"""

import hashlib
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from vcdl.errors import DataError, FileUnavailable, folder_errors
from vcdl.errors.backoff import Backoff
from vcdl.files.atomic import atomic_write, file_sha256
from vcdl.files.lock import locked
from vcdl.files.remote import AwayError, Remote, RemoteFile, display_url, remote_at

_SCHEMES = ("s3", "gs", "https", "http")
_CHECKSUM = re.compile("sha256=([0-9a-f]{64})")
_TRIES = 5
"""Attempts in a row without a new byte after which a download fails, so that a dead server does not block a job."""
_PARALLEL_DOWNLOADS = 8
"""Files of a folder that are downloaded at once, so that the latency of one hides behind the others."""
_TELL_EVERY_S = 5.0
"""Seconds between two lines of progress: enough for a person, and few lines in a log."""
_PART = ".part"
_NO_COPY = frozenset({".", "..", "files", "lock", "whole"})
"""Names that no copy may have: those of folders (`.` and `..`), and of the cache's own files next to the copy."""

Tell = Callable[[str], None]
_Result = TypeVar("_Result")


class Address(NamedTuple):
    """A URL, with the checksum of its content if given."""

    url: str
    sha256: str | None
    """SHA-256 of the file, or of a folder's `sha256sum` lines, sorted by name; None if not given."""

    def __str__(self) -> str:
        return f"{self.url}#sha256={self.sha256}" if self.sha256 else self.url

    @property
    def folder(self) -> Path:
        """The cache's folder for this address, which contains the copy and the cache's own files."""
        return cache_folder() / "sources" / (self.sha256 or "at-" + hashlib.sha256(self.url.encode()).hexdigest()[:40])

    @property
    def copy(self) -> Path:
        """The path of the local copy: a file or a folder with the name of its original if that is a safe name."""
        parts = urlsplit(self.url)
        name = PurePosixPath(unquote(parts.path)).name or parts.netloc
        return self.folder / ("copy" if name in _NO_COPY or not name.isprintable() else name)


def cache_folder() -> Path:
    """Return the folder for files that can be recreated: `vcdl` in $XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vcdl"


def address_of(text: str) -> Address | None:
    """Parse a URL given in place of a path.

    Returns:
        The address, or None if the text is a path.

    Raises:
        ValueError: The scheme or the checksum is not supported; the message says what is.
    """
    scheme, separator, _ = text.partition("://")
    if not separator or not scheme.isalnum():
        return None
    if scheme not in _SCHEMES:
        raise ValueError(f"{scheme}:// is not read; give a path, or {'://, '.join(_SCHEMES[:3])}://")
    url, _, checksum = text.partition("#")
    found = _CHECKSUM.fullmatch(checksum)
    if checksum and not found:
        raise ValueError("expected #sha256= and 64 hex digits (0-9, a-f), as sha256sum prints them")
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError(f"{scheme}:// with a user or a password: remove them, the machine's credentials are used")
    if parts.query and scheme in ("s3", "gs"):
        raise ValueError(f"{scheme}:// takes no ? and what follows: an endpoint of your own is AWS_ENDPOINT_URL")
    if scheme == "http" and not found:
        raise ValueError("http:// can be changed by anybody on its way: take https://, or add #sha256=…")
    if scheme in ("http", "https") and parts.path.endswith("/"):
        raise ValueError(f"{display_url(url)} is a folder, and https:// serves files: name one")
    return Address(url, found[1] if found else None)


def fetch(address: Address, tell: Tell = lambda line: print(line, file=sys.stderr)) -> Path:
    """Return the path of the local copy of an address, downloading what is missing or has changed.

    Takes a lock for the address, so that processes wait for each other. After a kill, unfinished files are resumed, and
    only finished ones that were not noted yet are downloaded again.

    Args:
        address: The address.
        tell: Called with lines of progress, which are printed to stderr by default.

    Raises:
        DataError: The address is refused or the checksum differs.
        FileUnavailable: The server is away.
        RunFolderError: The cache cannot be written.
    """
    folder = address.folder
    whole = folder / "whole"
    with folder_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock"):
            # A copy that is named by its content never becomes outdated, so the server is not asked.
            if address.sha256 and whole.exists() and address.copy.exists():
                return address.copy
            fetched = _Fetch(address, tell)
            if whole.exists() and fetched.is_done:
                return address.copy
            # Remove the mark of a complete copy first, so that a kill during the download does not leave it.
            whole.unlink(missing_ok=True)
            fetched.run()
            if address.sha256 and (found := sha256_of(address.copy)) != address.sha256:
                # Delete everything: otherwise the next call would take the files for fetched and fail in the same way.
                shutil.rmtree(folder)
                raise DataError(
                    f"{display_url(address.url)} is not what #sha256 says, it has sha256={found}: see which one is "
                    "wrong"
                )
            # Write the mark last, and synced: after a power cut it must not exist without the content.
            with atomic_write(whole, durable=True) as temporary:
                temporary.touch()
    return address.copy


def pin_address(address: Address) -> Address:
    """Fetch an address, and return it with the checksum of its content.

    The copy is moved to the place of the new address, where `fetch` finds it without asking the server.

    Raises:
        DataError, FileUnavailable, RunFolderError: As `fetch`.
    """
    copy = fetch(address)
    with folder_errors(address.folder):
        found = Address(address.url, sha256_of(copy))
        if address.folder != found.folder:
            shutil.rmtree(found.folder, ignore_errors=True)
            address.folder.rename(found.folder)
    return found


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of a folder's `sha256sum` lines, sorted by name. Raises OSError."""
    if path.is_dir():
        names = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
        lines = "".join(f"{sha256_of(path / name)}  {name}\n" for name in names)
        return hashlib.sha256(lines.encode()).hexdigest()
    return file_sha256(path)


class _Fetch:
    """One call of `fetch`: finds which files the copy lacks and which it should not have, and makes it complete.

    Creating it asks the server for its files.
    """

    def __init__(self, address: Address, tell: Tell) -> None:
        self._address, self._tell = address, tell
        self._journal = address.folder / "files"
        """The bookkeeping file, with a line for each complete file: its identity, and its name."""
        self._remote: Remote = self._patiently(lambda: remote_at(address.url))
        self._files = self._patiently(self._remote.files)
        known = dict(line.partition("\t")[::2] for line in self._lines())
        self._missing = [f for f in self._files if known.get(f.name) != f.identity or not self._path(f).exists()]
        wanted = {self._path(file) for file in self._files}
        here = address.copy.rglob("*") if address.copy.is_dir() else ()
        self._gone = [path for path in here if path.is_file() and path not in wanted and path.suffix != _PART]
        self._done_bytes, self._told_s = 0, time.monotonic()
        self._is_over = threading.Event()

    @property
    def is_done(self) -> bool:
        """Whether the copy is complete and contains nothing else."""
        return not self._missing and not self._gone

    def run(self) -> None:
        """Remove files that are gone at the server, and download the missing ones, several at a time."""
        for file in self._missing:
            # Names come from a bucket that others write to. They must not lead out of the cache's folder.
            if ".." in file.name.split("/") or not file.name.isprintable():
                raise DataError(
                    f"{display_url(self._address.url)} has a file {file.name[:200]!r}: give it a plain name"
                )
        self._total_bytes = sum(file.size_bytes or 0 for file in self._missing)
        free_bytes = shutil.disk_usage(self._address.folder).free
        if self._total_bytes > free_bytes:
            raise DataError(
                f"{display_url(self._address.url)} takes {self._total_bytes / 1e9:.1f} GB, and {free_bytes / 1e9:.1f} "
                f"GB are free in {self._address.folder.parent}: make room, or set XDG_CACHE_HOME to a larger disk"
            )
        # Readers see all files of the copy, and must not train on one that was removed at the server.
        for path in self._gone:
            path.unlink()
        with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
            try:
                # Only this thread writes lines. After a kill, a file without its line is fetched again.
                for file in pool.map(self._download, self._missing):
                    with self._journal.open("a", encoding="utf-8") as journal:
                        journal.write(f"{file.name}\t{file.identity}\n")
            except BaseException:
                self._is_over.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _lines(self) -> list[str]:
        try:
            return self._journal.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def _path(self, file: RemoteFile) -> Path:
        """Return the path of a file in the copy."""
        return self._address.copy / file.name if file.name else self._address.copy

    def _download(self, file: RemoteFile) -> RemoteFile:
        """Fetch a file from the byte where the last try ended, and return it with the identity that was fetched."""
        path = self._path(file)
        part = path.with_name(f"{path.name}{_PART}")
        note = self._address.folder / f"{hashlib.sha256(file.name.encode()).hexdigest()[:16]}.identity"
        path.parent.mkdir(parents=True, exist_ok=True)

        def partial_bytes() -> int:
            return part.stat().st_size if part.exists() and note.exists() else 0

        def resume_download() -> RemoteFile:
            begin = partial_bytes()
            opened = self._remote.open(file, begin)
            goes_on = begin > 0 and opened.begin == begin and note.read_text() == opened.file.identity
            # The server continued in the middle, but the file has changed: the two parts would not belong together.
            if not goes_on and opened.begin:
                note.unlink()
                raise AwayError("it changes while it is read")
            note.write_text(opened.file.identity)
            with part.open("ab" if goes_on else "wb") as output:
                for piece in opened.pieces:
                    output.write(piece)
                    self._add(len(piece))
            if opened.file.size_bytes not in (None, part.stat().st_size):
                raise AwayError(f"it broke off after {part.stat().st_size} of {opened.file.size_bytes} bytes")
            return opened.file

        found = self._patiently(resume_download, partial_bytes)
        part.replace(path)
        note.unlink()
        return found

    def _patiently(self, call: Callable[[], _Result], reached: Callable[[], int] = lambda: 0) -> _Result:
        """Retry a call with backoff until it raises no AwayError, and return its result.

        Args:
            call: Asks the server.
            reached: Returns how many bytes the call has downloaded so far over all tries. After _TRIES failures in a
                row without a new byte, no further try is made.

        Raises:
            FileUnavailable: The server did not answer, or broke off each time.
        """
        backoff, furthest, failures = Backoff(), 0, 0
        while True:
            try:
                return call()
            except AwayError as error:
                # Any new byte is progress: a large file over a bad link may break off a hundred times.
                failures = 0 if reached() > furthest else failures + 1
                furthest = max(furthest, reached())
                if failures == _TRIES:
                    raise FileUnavailable(
                        f"{display_url(self._address.url)} cannot be fetched ({error}): check the connection, and "
                        "start again; what was fetched is kept"
                    ) from error
                time.sleep(backoff.next_wait_s())

    def _add(self, count: int) -> None:
        """Count downloaded bytes and report progress; raise CancelledError if another file's download has failed."""
        if self._is_over.is_set():
            raise CancelledError
        self._done_bytes += count
        if time.monotonic() - self._told_s >= _TELL_EVERY_S:
            self._told_s = time.monotonic()
            of = f" of {self._total_bytes / 1e6:.0f}" if self._total_bytes else ""
            self._tell(f"fetching {display_url(self._address.url)}: {self._done_bytes / 1e6:.0f}{of} MB")
