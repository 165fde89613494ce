"""Start a workunit from the newest published weights, or from those that came with the task if that fails.

The newest weights must be signed by the project, belong to this job and model, be newer than the workunit's, and have a
similar size. They are stored in the slot, so that an interrupted task continues from them.
"""

import hashlib
import logging
import pkgutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http.client import NOT_FOUND, HTTPException
from pathlib import Path
from typing import BinaryIO

from vcdl.client.inputs import read_params
from vcdl.client.slot import CHECKPOINT_FILE
from vcdl.errors import WeightsFileError, WorkunitError
from vcdl.errors.backoff import within
from vcdl.files.atomic import atomic_write
from vcdl.wire.layout import Layout, Vector
from vcdl.wire.newest import MOST_BYTES, NEWEST_FILE, VERSION_FILE, Newest, PublicKey, is_web_address, read_signed
from vcdl.wire.workunit import PARAMS_FILE, Workunit

KEY_FILE = "project_key.json"
"""File of the project's key, next to this module in the zipapp of its app version."""
_SILENCE_S = 5.0
"""Longest wait for the next byte of an answer, in seconds."""
_ALTOGETHER_S = 20.0
"""Longest time for all downloads together, in seconds, because the processor is idle meanwhile."""
_JUDGED_AFTER_S = 2.0
"""Seconds after which a download that is too slow is given up: it would delay the task more than fresh weights help."""
_BLOCK_BYTES = 1 << 16
_LARGER_BYTES = 1 << 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """The weights that a training starts from, shape (n,), with their version and checksum."""

    version: int
    weights: Vector
    checksum: str


@dataclass(frozen=True)
class NewestWeights:
    """Downloads the newest weights of a job, and accepts only those that the project has signed."""

    key: PublicKey
    may_use_network: Callable[[], bool]
    """Whether the volunteer lets tasks use the network now."""

    @classmethod
    def of_app_version(cls, may_use_network: Callable[[], bool]) -> "NewestWeights | None":
        """Return a fetcher with the project's key in this app version, or None if the app version has no valid key."""
        try:
            content = pkgutil.get_data("vcdl.client", KEY_FILE)
        except OSError:
            return None
        try:
            return None if content is None else cls(PublicKey.from_json(content.decode()), may_use_network)
        except (WorkunitError, UnicodeDecodeError) as error:
            _log.warning("%s: tasks start from the weights that they were sent with", error)
            return None

    def fetch(self, folder: Path, workunit: Workunit, layout: Layout) -> None:
        """Download the newest weights into the folder, if they are newer than the workunit's.

        Nothing happens if training has started already or the network may not be used. If the download fails, the log
        has the reason, and training starts from the weights that came with the task.
        """
        # An interrupted training must continue from the weights that it started from, because its checkpoint belongs to
        # them.
        has_begun = (folder / VERSION_FILE).exists() or (folder / CHECKPOINT_FILE).exists()
        if has_begun or workunit.newest is None or not self.may_use_network():
            return
        begun_s, address = time.monotonic(), workunit.newest
        try:
            newest = read_signed(within(_ALTOGETHER_S, lambda: _fetch(address, MOST_BYTES)), self.key)
            if (newest.job, newest.layout) != (workunit.job, layout.fingerprint):
                raise WorkunitError("the statement of the newest weights belongs to another job")
            if newest.version <= workunit.base_version:  # this also refuses an old statement that an attacker replays
                return
            if newest.size_bytes > 2 * (folder / PARAMS_FILE).stat().st_size + _LARGER_BYTES:
                raise WorkunitError(f"the newest weights have {newest.size_bytes} bytes")
            self._download(folder, newest, begun_s + _ALTOGETHER_S)
        except (OSError, HTTPException, ValueError, WorkunitError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == NOT_FOUND:  # as for a job's first workunits
                _log.info("the project has no newer weights now: training starts from those that came with the task")
                return
            _log.warning(
                "the newest weights cannot be fetched (%s): training starts from those that came with the task", error
            )
            return
        _log.info(
            "starts from version %d, not %d (%.1f s)",
            newest.version, workunit.base_version, time.monotonic() - begun_s,
        )  # fmt: skip

    @staticmethod
    def _download(folder: Path, newest: Newest, until_s: float) -> None:
        with atomic_write(folder / NEWEST_FILE) as temporary, temporary.open("wb") as file:
            within(until_s - time.monotonic(), lambda: _fetch_to(file, newest))
        # Write the version last: its existence means that the weights' file is complete.
        with atomic_write(folder / VERSION_FILE) as temporary:
            temporary.write_text(str(newest.version))


def begin(folder: Path, workunit: Workunit, layout: Layout) -> Start:
    """Read the weights to start from: the newest ones if they were downloaded and are valid, else the workunit's.

    Raises:
        WeightsFileError: They are damaged.
    """
    try:
        version = int((folder / VERSION_FILE).read_text())
        return Start(version, *read_params(folder / NEWEST_FILE, workunit, layout, version))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, WeightsFileError) as error:
        _log.warning(
            "the newest weights cannot be used (%s): training starts from those that came with the task", error
        )
        (folder / VERSION_FILE).unlink(missing_ok=True)
    return Start(workunit.base_version, *read_params(folder / PARAMS_FILE, workunit, layout, workunit.base_version))


def _fetch(url: str, most_bytes: int) -> bytes:
    """Return the content of a URL, at most `most_bytes` bytes.

    Raises:
        OSError, HTTPException, ValueError, WorkunitError: It cannot be fetched.
    """
    with closing(_open(url)) as answer:
        content: bytes = answer.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise WorkunitError(f"the answer is longer than {most_bytes} bytes")
    return content


def _fetch_to(file: BinaryIO, newest: Newest) -> None:
    """Download the newest weights into a file, and check their size and checksum.

    Raises:
        OSError, HTTPException, WorkunitError: They cannot be fetched.
        ValueError: A part of the answer is invalid.
    """
    digest, received, begun_s = hashlib.sha256(), 0, time.monotonic()
    with closing(_open(newest.url)) as answer:
        while block := answer.read1(_BLOCK_BYTES):
            received += len(block)
            if received > newest.size_bytes:
                raise WorkunitError(f"the answer is longer than {newest.size_bytes} bytes")
            digest.update(block)
            file.write(block)
            took_s = time.monotonic() - begun_s
            if took_s > _JUDGED_AFTER_S and took_s * newest.size_bytes > _ALTOGETHER_S * received:
                raise WorkunitError(f"{newest.size_bytes} bytes would take longer than {_ALTOGETHER_S:g} s")
    if received != newest.size_bytes or digest.hexdigest() != newest.sha256:
        raise WorkunitError("the weights differ from those that the project has signed")


def _open(url: str):  # type: ignore[no-untyped-def]  # an HTTPResponse, which urllib does not promise
    if not is_web_address(url):
        raise WorkunitError(f"{url[:100]!r} is not a web address")
    # A cache on the way could answer with an older statement.
    request = urllib.request.Request(url, headers={"Cache-Control": "no-cache", "User-Agent": "vcdl"})
    return urllib.request.urlopen(request, timeout=_SILENCE_S)
