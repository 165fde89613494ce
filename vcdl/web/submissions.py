"""Accept jobs through the service: completely or not at all, once per key, without access to the server's files.

A submission is a job file and the files that it names, in a folder of its own. It becomes a job when its row is written
to the service's database. If the service is killed before that, its next start removes the folder; if it is killed
afterwards, its next start starts the job.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from vcdl.errors import JobError, folder_errors
from vcdl.files.children import Limits, confined_environment, run_child
from vcdl.job import SMALL_FLEET, load_job, save_job
from vcdl.report.wording import size
from vcdl.run.finding import numbered_names
from vcdl.run.folder import RunFolder
from vcdl.web.accounts import Accounts
from vcdl.web.budgets import Budgets
from vcdl.web.catalogue import project_of
from vcdl.web.chunks import CHUNK_BYTES, ChunkStore
from vcdl.web.run_process import start_process
from vcdl.web.sent_job import JOB_NAME, SentFile, digest_of, parse_job_file, paths_in
from vcdl.web.sessions import Caller, Role, service_folder
from vcdl.web.submission_line import another_job

CHECK_S = 180.0
"""Seconds after which the check of a job is killed, so that a hostile job cannot block the line; most take six."""
_LOOKED_AT = "looked-at-"
_OPEN_JOBS = 10
"""Most simultaneously open jobs of a submitter, so that one submitter cannot take all clients."""
_OPEN_BYTES = 50 << 30
"""Most bytes of data of a submitter's open jobs, counted in whole chunks."""


class Submissions:
    """Accepts jobs that are sent to a service: checks, stores and starts them, and removes their files once they end.

    A submission reserves its name and its quota under the lock, is written and checked without the lock, and becomes a
    job with its row in `accounts`. A service that is killed before this row removes the files at its next start; one
    that is killed after it starts the job then (`begin_those_left`). The same caller and key always give the same job.
    """

    def __init__(self, runs: Path, accounts: Accounts, chunks: ChunkStore, budgets: Budgets) -> None:
        self._budgets = budgets
        self._runs = runs
        self._folder = service_folder(runs) / "jobs"
        self._notes = service_folder(runs) / "notes"
        """Folder of the service's own files about jobs: outputs, reasons of failed starts, process ids. It is outside
        of the submissions' folders, so that no submission can contain such a file."""
        self._accounts = accounts
        self._chunks = chunks
        self._lock = threading.Lock()
        self._reserved: dict[str, tuple[str, int]] = {}
        """Name of each job that is being written and checked → its submitter, and the bytes of its data."""
        self._project = project_of(runs)

    def submit(self, caller: Caller, key: str, text: str, files: list[SentFile]) -> str:
        """Check a job, store it, and start it in a process of its own. This takes seconds to minutes.

        Args:
            caller: The submitter.
            key: The request's Idempotency-Key. If it has already created this job, nothing else is done.
            text: The keys of the job file, as JSON.
            files: The files that the job names; all their chunks were uploaded.

        Returns:
            The job's name, which differs from the one in `text` if that was taken.

        Raises:
            JobError, DataError, ModelError, RunFolderError: The job is refused or cannot be stored; its files were
                removed, and the key can be used again.
        """
        digest = digest_of(text, files)
        size_bytes = sum(len(file.chunks) for file in files) * CHUNK_BYTES
        with self._lock:
            known = self._accounts.submission(caller.name, key)
            if known is not None:
                if known[0] != digest:
                    raise another_job()
                return known[1]
            self._remove_ended()
            self._check_quota(caller, size_bytes)
            values = self._with_account(caller, parse_job_file(text, files))
            name = self._free_name(str(values.get("name", "")))
            # Reserve name and quota under the lock, before the slow part, so that two simultaneous submissions cannot
            # both take the same name or the last of the quota.
            self._reserved[name] = caller.name, size_bytes
        folder = self._folder / name
        try:  # without the lock, which would block other submissions for minutes
            self._write(caller, folder, {**values, "name": name}, files)
            self._check(folder)
            usd = self._budgets.planned_usd(caller, folder)
            # Take the lock, so that `_check_quota` never counts the job twice, by its row and its reservation.
            with self._lock:
                self._accounts.record_submission(caller.name, key, digest, name, usd)  # from here on it is a job
                del self._reserved[name]
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            with self._lock:
                self._reserved.pop(name, None)
            raise
        # If the service is killed before this, `begin_those_left` starts the job.
        self._begin(name)
        return name

    @contextmanager
    def inspect_job(self, caller: Caller, text: str, files: list[SentFile]) -> Iterator[Path]:
        """Write a job that is only planned or profiled into a temporary folder, and yield that folder.

        It is removed at the end of the block, or by the service's next start. No quota is checked or used.

        Raises:
            JobError, DataError, RunFolderError: The job is invalid or cannot be written.
        """
        values = parse_job_file(text, files)
        with folder_errors(self._runs), tempfile.TemporaryDirectory(dir=self._folder.parent, prefix=_LOOKED_AT) as path:
            self._write(caller, folder := Path(path) / values["name"], values, files)
            yield folder

    def begin_those_left(self) -> None:
        """Start accepted jobs that had not started when the service ended, and remove incomplete submissions.

        Call it once, when the service starts, before it accepts submissions.
        """
        taken = set(self._accounts.submitted_jobs())
        for left in self._folder.parent.glob(f"{_LOOKED_AT}*"):
            shutil.rmtree(left, ignore_errors=True)
        with suppress(OSError):
            for folder in self._folder.iterdir():
                if folder.name not in taken:
                    shutil.rmtree(folder, ignore_errors=True)
        self._remove_ended()
        for name in taken:
            folder = self._folder / name
            if folder.is_dir() and not self._has_begun(name) and not self.failure(name) and not self._is_at_work(name):
                self._begin(name)

    def _remove_ended(self) -> None:
        """Remove the submitted files of jobs that have ended, which no run needs; keep the reasons of failed starts."""
        with suppress(OSError):
            for folder in self._folder.iterdir():
                name = folder.name
                if self._is_over(name) and self._accounts.submitter(name) and not self._is_at_work(name):
                    shutil.rmtree(folder, ignore_errors=True)
                    for note in (self._log_file(name), self._process_file(name)):
                        note.unlink(missing_ok=True)

    def failure(self, name: str) -> str:
        """Return why a submitted job could not start, or "" if it has started, may still start, or does not exist."""
        if not JOB_NAME.fullmatch(name):
            return ""
        with suppress(OSError):
            return self._failure_file(name).read_text(encoding="utf-8")
        return ""

    def is_beginning(self, name: str) -> bool:
        """Return whether a job was submitted, and neither has a prepared run nor has failed to start."""
        if not JOB_NAME.fullmatch(name):
            return False
        folder = self._folder / name
        return (folder / "job.yaml").is_file() and not self._has_begun(name) and not self.failure(name)

    def _failure_file(self, name: str) -> Path:
        return self._notes / f"{name}.failure.txt"

    def _log_file(self, name: str) -> Path:
        return self._notes / f"{name}.output.log"

    def _process_file(self, name: str) -> Path:
        return self._notes / f"{name}.process"

    def _is_at_work(self, name: str) -> bool:
        """Return whether the process that an earlier service started for a submission still runs."""
        with suppress(OSError, ValueError):
            number = int(self._process_file(name).read_text(encoding="ascii"))
            # Compare the command line, too: the id may belong to another process by now.
            return name.encode() in Path(f"/proc/{number}/cmdline").read_bytes()
        return False

    def _has_begun(self, name: str) -> bool:
        return RunFolder(self._runs / name).prepared_file.is_file()

    def _check_quota(self, caller: Caller, size_bytes: int) -> None:
        if caller.role >= Role.OPERATOR:
            return
        jobs = [name for name in self._accounts.submitted_jobs(caller.name) if not self._is_over(name)]
        coming = [reserved for by, reserved in self._reserved.values() if by == caller.name]
        if (count := len(jobs) + len(coming)) >= _OPEN_JOBS:
            raise JobError(f"{caller.name} has {count} open jobs, the limit is {_OPEN_JOBS}: wait for one to finish")
        held = sum(path.stat().st_size for name in jobs for path in (self._folder / name).glob("*"))
        if held + sum(coming) + size_bytes > _OPEN_BYTES:
            raise JobError(f"the open jobs of {caller.name} may use {size(_OPEN_BYTES)}: wait for one to finish")

    def _with_account(self, caller: Caller, values: dict[str, Any]) -> dict[str, Any]:
        """Return the keys of a job with `boinc > account: own` replaced by the number of the submitter's account.

        Raises:
            JobError: The submitter may not restrict jobs to this account's hosts.
        """
        boinc = values.get("boinc")
        account = boinc.get("account") if isinstance(boinc, dict) else None
        if account is None or not isinstance(boinc, dict):
            return values
        if self._project is None:
            raise JobError("boinc > account: this service has no BOINC project: remove the key")
        if account != "own" and caller.role < Role.OPERATOR:
            raise JobError("boinc > account: a submitter can restrict a job only to their own hosts: set it to `own`")
        if account == "own" and caller.bounds.boinc_account is None:
            raise JobError(
                f"boinc > account: this token of {caller.name} has no BOINC account: ask the operator for a token "
                "with --boinc-account"
            )
        return {**values, "boinc": {**boinc, "account": caller.bounds.boinc_account if account == "own" else account}}

    def _is_over(self, name: str) -> bool:
        return bool(self.failure(name)) or RunFolder(self._runs / name).summary_file.is_file()

    def _free_name(self, name: str) -> str:
        """Return the given name if no job has or ever had it, otherwise the first free one with a number appended.

        Call it under the lock, and reserve the name before the lock is released.
        """
        for longer in numbered_names(name):
            is_known = longer in self._reserved or self._accounts.submitter(longer) is not None
            if not is_known and not (self._runs / longer).exists():
                return longer
        raise JobError(f"no name is left for {name[:63]}: choose another name in the job file")

    def _write(self, caller: Caller, folder: Path, values: Mapping[str, Any], files: list[SentFile]) -> None:
        """Write a job file and its files into a folder, replacing the folder, and validate the job file's keys.

        Raises:
            RunFolderError: A file cannot be written.
            DataError: A chunk of a file is missing.
            JobError: The job file is invalid, or names a file outside of the folder.
        """
        shutil.rmtree(folder, ignore_errors=True)
        with folder_errors(self._folder):
            folder.mkdir(mode=0o700, parents=True)
            for file in files:
                with (folder / file.name).open("wb") as output:
                    for chunk in self._chunks.read(caller.name, file.chunks):
                        output.write(chunk)
            (folder / "job.yaml").write_text(yaml.safe_dump(dict(values), sort_keys=False), encoding="utf-8")
        try:
            job = load_job(folder / "job.yaml", slots=None if self._project is None else SMALL_FLEET)
        except JobError as error:
            raise JobError(_without(folder, str(error))) from None
        # Check every path of the job, and not only the keys that `parse_job_file` knows, so that a key that is added to
        # the job file later cannot refer to files of the server.
        for path in paths_in(job):
            if not path.resolve().is_relative_to(folder.resolve()):
                raise JobError("a job that is sent here may only name files that are sent with it")
        save_job(job, folder / "job.yaml")

    def _check(self, folder: Path) -> None:
        """Run `vcdl check` on a job in a process with limited time and memory, and wait for it.

        Raises:
            JobError: The check failed, took too long or needed too much memory.
        """
        limits = Limits.for_foreign_files(CHECK_S)
        with folder_errors(self._notes):
            self._notes.mkdir(mode=0o700, exist_ok=True)
        try:
            done = run_child(
                *("vcdl", "check", folder / "job.yaml"),
                timeout_s=CHECK_S,
                limits=limits,
                cwd=self._notes,
                env=confined_environment(has_store=False),
            )
        except subprocess.TimeoutExpired:
            raise JobError(f"the check of the job took more than {CHECK_S:g} s: make the job smaller") from None
        # A negative code means that a signal killed it, which is what the memory limit causes in C code.
        if done.returncode < 0:
            raise JobError(
                f"the check of the job needs more than {size(limits.memory_bytes)} of memory: make the job smaller"
            )
        if done.returncode:
            raise JobError(_words(done.stderr.decode("utf-8", "replace"), folder))

    def _begin(self, name: str) -> None:
        """Start a job in a process that outlives the service, and have a thread watch the process."""
        threading.Thread(target=self._run, args=(name,), name=f"vcdl-submission-{name}", daemon=True).start()

    def _run(self, name: str) -> None:
        folder = self._folder / name
        job_file = str(folder / "job.yaml")
        if (self._runs / name / "job.yaml").is_file():  # killed before it was prepared
            arguments = ["resume", str(self._runs / name)]
        elif self._project is None:
            arguments = ["run", job_file, "--out", str(self._runs / name)]
        else:
            arguments = ["submit", job_file, "--project-dir", str(self._project)]
        log = self._log_file(name)
        self._notes.mkdir(mode=0o700, exist_ok=True)
        process = start_process(arguments, log, confined_environment())
        self._process_file(name).write_text(str(process.pid), encoding="ascii")
        # Above 0 the command itself failed. Below 0 it was killed: then nothing is recorded, so that the next start of
        # the service starts the job again.
        if process.wait() > 0 and not self._has_begun(name):
            self._accounts.costs_nothing(name)
            self._failure_file(name).write_text(_words(log.read_text("utf-8", "replace"), folder), encoding="utf-8")
        with self._lock:
            self._remove_ended()


def _words(output: str, folder: Path) -> str:
    """Extract the error message from a command's output, and remove the path of the submission's folder."""
    said = [line.partition("error: ")[2] for line in output.splitlines() if line.startswith("vcdl: error: ")]
    return _without(folder, "; ".join(said))[:1000] or "the job cannot start here"


def _without(folder: Path, words: str) -> str:
    """Remove the path of a folder from a message, because callers should not learn where files are on the server."""
    for path in (str(folder), os.path.relpath(folder)):
        words = words.replace(f"{path}/", "").replace(path, "")
    return words
