"""Write and read a run's job file, which others may read, and its store's password, which only the owner may."""

import contextlib
from pathlib import Path
from urllib.parse import unquote

from vcdl.errors import JobError, StoreError, split_password, unreadable
from vcdl.files.atomic import PRIVATE_MODE, atomic_write
from vcdl.job import Job, load_frozen_job, save_job
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared

_OTHERS = 0o077
"""Permission bits of group and others, cleared so that a password stays private."""


def freeze(job: Job, folder: RunFolder) -> Job:
    """Write the job into a run's folder, with its store's password in a private file; return the job as written.

    Raises:
        JobError: It cannot be written, or this kind of run does not run the job's own code.
    """
    if job.model.code is not None and not (job.may_run_code and folder.kind.runs_code):
        raise JobError(
            f"model > code: `vcdl {folder.kind.begun_by}` does not run a job's own code: only your own machines do, "
            "with `vcdl run` or `vcdl pool` with `trust: own`"
        )
    # `job.yaml` is shown, copied and attached to bug reports. Therefore the password has its own file.
    job, password = without_password(job)
    path = folder.store_password_file
    try:
        # A process that was killed here may have left the password of another store.
        path.unlink(missing_ok=True)
        if password:
            with atomic_write(path, private=True) as temporary:
                temporary.write_text(f"{unquote(password)}\n", encoding="utf-8")
    except OSError as error:
        raise JobError(f"{path}: cannot be written ({error.strerror}); check the folder and the disk") from error
    save_job(job, folder.job_file)
    return job


def without_password(job: Job) -> tuple[Job, str]:
    """Return the job without the password in its store's URL, and the password as encoded in the URL, or ""."""
    url, password = split_password(job.store.url or "")
    if not password:
        return job, ""
    return job.model_copy(update={"store": job.store.model_copy(update={"url": url})}), password


def read_frozen(folder: RunFolder) -> Job:
    """Read the job file of a run, without changing anything.

    Raises:
        JobError: The job file is damaged.
        RunFolderError: Another version of vcdl made the run.
    """
    try:
        return load_frozen_job(folder.job_file)
    except JobError:
        # The job file of another version has some invalid key. The run's format is the better message.
        Prepared.check_format(folder)
        raise


def open_frozen(folder: RunFolder) -> Job:
    """Read the job file of a run. If it contains a password, remove other users' permission to read the file.

    Raises:
        JobError: The job file is damaged.
    """
    job = read_frozen(folder)
    if without_password(job)[1]:
        _close_to_others(folder.job_file)
    return job


def store_password(folder: RunFolder) -> str:
    """Return the password of the store that the job file names, from its private file, or "" without such a file.

    Removes the permissions of other users to that file.

    Raises:
        StoreError: The file is damaged, or belongs to another user.
        FileUnavailable: It cannot be read now.
    """
    path = folder.store_password_file
    try:
        _close_to_others(path)
        return path.read_text(encoding="utf-8").removesuffix("\n")
    except FileNotFoundError:
        return ""
    except PermissionError as error:
        raise StoreError(
            f"{path} holds the store's password, and only its owner may read it: run this as that user"
        ) from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} is damaged: write the store's password into it, in UTF-8") from error
    except OSError as error:
        raise unreadable(path, error) from error


def _close_to_others(path: Path) -> None:
    """Remove the permissions of group and others to a file, which a copied run may have.

    Raises:
        FileNotFoundError: The file is missing.
    """
    if path.stat().st_mode & _OTHERS:
        with contextlib.suppress(PermissionError):  # it belongs to another user
            path.chmod(PRIVATE_MODE)
