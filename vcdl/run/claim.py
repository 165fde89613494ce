"""The claim of a run's folder on its weights in a store that lies elsewhere: a copy of the folder has none.

`store_claim.json` names the folder, by path and by the number of its directory on the disk, and the key of its weights.
A directory keeps its number when it is moved, mounted elsewhere or its machine restarts; a copy gets another one.
"""

import json
import os
import platform
import secrets
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from vcdl.errors import RunFolderError, VcdlError, folder_errors
from vcdl.files.atomic import atomic_write
from vcdl.files.lock import FileLock
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared


@dataclass(frozen=True)
class Claim:
    """The folder that may use the weights of a key."""

    key: Annotated[str, Field(min_length=1)]
    path: str
    directory: int
    """The number of the directory (inode)."""
    machine: str

    @classmethod
    def of(cls, folder: RunFolder, key: str, place: Path | None = None) -> "Claim":
        """The claim of a folder; `place`: where it will lie once it is whole. Raises OSError."""
        return cls(key, str(place or folder.path), folder.path.stat().st_ino, platform.node())

    def write(self, folder: RunFolder) -> None:
        """Raises OSError."""
        with atomic_write(folder.store_claim_file, private=True) as temporary:  # the key is the secret of all draws
            temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")


def new_key(name: str) -> str:
    """A key that no run has."""
    return f"{name}-{secrets.token_hex(16)}"


def claimed_key(folder: RunFolder, prepared: Prepared, *, may_restore: bool) -> str:
    """The key of a run's weights; another one than the folder's that this one was copied from.

    `may_restore`: the weights can be made again under a new key, from the folder's files. Raises RunFolderError for a
    copy whose original is there.
    """
    with folder_errors(folder.path), FileLock(folder.job_file, existing=True) as lock:
        lock.acquire()
        claim = _read(folder)
        if claim is None:
            claim = Claim.of(folder, prepared.store_key)
            claim.write(folder)
            return claim.key
        here = Claim.of(folder, claim.key)
        if here == claim:
            return claim.key
        if here.machine == claim.machine and _is_original(RunFolder(Path(claim.path)), folder, prepared):
            raise RunFolderError(
                f"{folder.path} is a copy of {claim.path}, whose weights lie in a store that both would change: "
                f"remove the copy, and make one with its own weights by `vcdl clone {claim.path} NEW`. "
                f"If the run shall go on here instead, remove {claim.path}"
            )
        is_moved = here.directory == claim.directory
        if is_moved and here.machine != claim.machine:
            return claim.key  # on a network's disk, seen by another machine
        if not is_moved and may_restore:
            here = Claim.of(folder, new_key(prepared.store_key.rpartition("-")[0]))
        here.write(folder)
        return here.key


def _is_original(original: RunFolder, folder: RunFolder, prepared: Prepared) -> bool:
    """Whether another folder of the same run lies where a claim says."""
    try:
        if os.path.samefile(original.path, folder.path):
            return False
        return Prepared.read(original).store_key == prepared.store_key
    except (OSError, ValueError, VcdlError):  # a claim may name what is no path
        return False


def _read(folder: RunFolder) -> Claim | None:
    path = folder.store_claim_file
    try:
        return _reader().validate_json(path.read_bytes(), strict=True)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunFolderError(
            f"{path} is damaged ({type(error).__name__}): remove it if no copy of this folder is a run, and try again"
        ) from error


@cache
def _reader() -> TypeAdapter[Claim]:
    return TypeAdapter(Claim)
