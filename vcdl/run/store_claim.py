"""The address of a run's store, and the claim of the run's folder on its weights there.

The address comes from the job file or from the environment when the run is prepared, and must not change afterwards. A
process of the run may start with another environment. In another store it would find no weights, and would treat them
as lost.

`store_claim.json` contains the key of the run's weights, and the path and inode of the folder that may use it. A
directory keeps its inode when it is moved or mounted elsewhere, and when its machine restarts. A copy of the folder has
another inode, so the claim in it does not hold for the copy.
"""

import json
import os
import platform
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from vcdl.errors import RunFolderError, StoreError, VcdlError, folder_errors
from vcdl.files.atomic import atomic_write
from vcdl.files.lock import FileLock
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import store_password
from vcdl.run.prepared import Prepared
from vcdl.stores.settings import PASSWORD_VARIABLE, URL_VARIABLE, StoreSettings

if TYPE_CHECKING:
    from vcdl.job import Job
    from vcdl.run.folder import RunFolder


OWN_FOLDER = "store/"
"""The address that stands for the folder inside the run's folder, which moves with the run."""
_FILE = "file:"


def requested_settings(job: "Job", folder: "RunFolder") -> StoreSettings:
    """Return the settings of the store that the job file or the environment names, else of the run's folder.

    The password is the one in the URL. For the job file's URL it may also be in the run's private file, otherwise in
    the environment.

    Raises:
        StoreError, FileUnavailable: The settings cannot be used or read.
    """
    environment = dict(os.environ)
    # The run's own file is only meant for the URL of its job file. A URL from the environment may name another server,
    # which must not get this password.
    if job.store.url and (password := store_password(folder)):
        environment[PASSWORD_VARIABLE] = password
    # The job file takes precedence over the environment, so that a run keeps its store whatever the shell sets.
    url = job.store.url or os.environ.get(URL_VARIABLE) or f"{_FILE}{folder.store}"
    return StoreSettings.parse(url, job.store.consistency, environment)


def store_address(settings: StoreSettings, folder: "RunFolder") -> str:
    """Return a store's address as prepared.json has it: without login, OWN_FOLDER for the run's own folder."""
    is_own = settings.is_folder and settings.folder.absolute() == folder.store.absolute()
    return OWN_FOLDER if is_own else settings.address


def settings_at(settings: StoreSettings, kept: str, job: "Job", folder: "RunFolder") -> StoreSettings:
    """Return settings after checking that they name the store with which the run was prepared.

    Args:
        settings: The requested settings (`requested_settings`).
        kept: The address of the run's store, from prepared.json.
        job: The job.
        folder: The run's folder.

    Raises:
        StoreError: `settings` name another store.
    """
    if store_address(settings, folder) == kept:
        return settings
    scheme = f"{settings.service}:"
    # A relative `file:` path is relative to the folder in which the run was started. After resuming in another folder
    # it must still mean the same place.
    if settings.kind.port is None and kept.startswith(scheme) and not settings.folder.is_absolute():
        began = Path(kept.removeprefix(scheme))
        if began.parts[len(began.parts) - len(settings.folder.parts) :] == settings.folder.parts:
            return replace(settings, folder=began)  # its path relative to the current folder of that time
    raise StoreError(_words(settings, kept, job, folder))


def _words(settings: StoreSettings, kept: str, job: "Job", folder: "RunFolder") -> str:
    """Return the message that job file or environment now name another store, with the cure."""
    where, url = ("its own folder", f"{_FILE}{folder.store}") if kept == OWN_FOLDER else (kept, kept)
    now = store_address(settings, folder)
    now = "its own folder" if now == OWN_FOLDER else now
    begin = f"{folder.path} keeps its weights in {where}"
    login = "" if url.startswith(_FILE) else " with its login"
    written = f"write `url: {url}`{login} below `store` in {folder.job_file}"
    if job.store.url:
        return f"{begin}, and its job.yaml now names {now}: {written}"
    where_set = folder.kind.environment
    variable = f"{URL_VARIABLE} (in {where_set})" if where_set else URL_VARIABLE
    alone = f"{written}, for this run only"
    if not os.environ.get(URL_VARIABLE):
        return f"{begin}, and {variable} is not set now: set it to that address{login}, or {alone}"
    cure = "unset it" if kept == OWN_FOLDER else "set it back"
    return f"{begin}, and {variable} now names {now}: {cure}, or {alone}"


@dataclass(frozen=True)
class Claim:
    """The folder that may use the weights of a key, as `store_claim.json` stores it."""

    key: Annotated[str, msgspec.Meta(min_length=1)]
    path: str
    directory: int
    """The number of the directory (inode)."""
    machine: str

    @classmethod
    def of(cls, folder: RunFolder, key: str) -> "Claim":
        """Return the claim of a folder on a key, from its present path, inode and machine.

        Raises:
            OSError: The folder cannot be read.
        """
        return cls(key, str(folder.path), folder.path.stat().st_ino, platform.node())

    def write(self, folder: RunFolder) -> None:
        """Write the claim into the folder.

        Raises:
            OSError: It cannot be written.
        """
        with atomic_write(folder.store_claim_file, private=True) as temporary:  # the key is the secret behind all draws
            temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")


def new_key(name: str) -> str:
    """Return a key that no run has."""
    return f"{name}-{secrets.token_hex(16)}"


def claim_key(folder: RunFolder, prepared: Prepared, *, may_restore: bool) -> str:
    """Claim the key of a run's weights for its folder, and return it.

    The claim says which folder may use the key, so that a copied folder never changes the weights of its original. A
    folder that was moved keeps its key.

    Args:
        folder: The run's folder.
        prepared: The facts that preparation recorded; they contain the first key.
        may_restore: Give a copy a new key. Set this only if its weights can be restored from the folder's files,
            because there are no weights under the new key yet.

    Raises:
        RunFolderError: The folder is a copy, its original still exists, and `may_restore` is False: both would change
            the same weights.
    """
    with folder_errors(folder.path), FileLock(folder.job_file, existing=True) as lock:
        # Two processes of a copied run may start at the same time. Without the lock each would claim its own key.
        lock.acquire()
        claim = _read(folder)
        # This is the first process after the preparation, or the run of an older version.
        if claim is None:
            claim = Claim.of(folder, prepared.store_key)
            claim.write(folder)
            return claim.key
        here = Claim.of(folder, claim.key)
        if here == claim:
            return claim.key
        # The directory number survives a move, a mount elsewhere and a restart, while a copy gets another number. The
        # device number does not survive a restart (decision 027).
        is_moved = here.directory == claim.directory
        if is_moved and here.machine != claim.machine:
            return claim.key  # a network disk, used by another machine
        # Nothing else needs to be checked: with a new key nothing is shared, whether this is a copy, a restored backup
        # or a move to another disk.
        if not is_moved and may_restore:
            here = Claim.of(folder, new_key(prepared.store_key.rpartition("-")[0]))
        elif here.machine == claim.machine and _is_original(RunFolder(Path(claim.path)), folder, prepared):
            raise RunFolderError(
                f"{folder.path} is a copy of {claim.path}, and both would change the weights in the folder that "
                f"{folder.job_file.name} names: remove one of the two"
            )
        here.write(folder)
        return here.key


def _is_original(original: RunFolder, folder: RunFolder, prepared: Prepared) -> bool:
    """Return whether the folder that a claim names is another one than `folder` and contains the same run."""
    try:
        if os.path.samefile(original.path, folder.path):
            return False
        return Prepared.read(original).store_key == prepared.store_key
    except (OSError, ValueError, VcdlError):  # a claim may contain an invalid path
        return False


def _read(folder: RunFolder) -> Claim | None:
    """Read the claim in a folder, or return None without one. Raises RunFolderError if it is damaged."""
    path = folder.store_claim_file
    try:
        return msgspec.json.decode(path.read_bytes(), type=Claim)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunFolderError(
            f"{path} is damaged ({type(error).__name__}): if this folder has no copy, remove the file and try again"
        ) from error
