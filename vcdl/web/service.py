"""Connect the parts of the service, and check what a caller may do with a job before doing it.

Submissions, and actions that change a job or ban a host, are recorded in the audit log (`_submit`, `_record_action`),
those that fail or that the caller may not perform included.
"""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, Self

from fastapi.responses import FileResponse

from vcdl.errors import JobError, RunFolderError, VcdlError
from vcdl.files.children import confined_environment
from vcdl.run.control import ask_to_pause, release
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import read_frozen
from vcdl.run.reading import RunState, is_finished, read_report, state_of
from vcdl.web.accounts import Accounts
from vcdl.web.budgets import Budgets
from vcdl.web.catalogue import JobCatalogue, NoSuchJobError, project_of
from vcdl.web.chunks import ChunkStore
from vcdl.web.job_page import FILES, Pages
from vcdl.web.live import LivePages
from vcdl.web.metrics import Metrics
from vcdl.web.request_rate import FAILED_LOGINS, RequestRate
from vcdl.web.run_process import resume_in_a_process
from vcdl.web.sent_job import SentFile, digest_of
from vcdl.web.served_commands import CommandAnswer, CommandRequest, CommandRunner, ServiceBusy, check_command
from vcdl.web.sessions import OWNER, Caller, Role, Sessions, service_folder
from vcdl.web.submission_line import SubmissionLine
from vcdl.web.submissions import Submissions

_log = logging.getLogger("vcdl.web")
_RESUMES_AT_ONCE = 4
"""Most simultaneous resumes, since each occupies one of the forty threads that answer pages for half a minute."""


class Forbidden(VcdlError):
    """The caller may not do this: the role is too low, the job is someone else's, or a form's secret is wrong."""


@dataclass
class WebService:
    """The service over a folder of runs: its parts, and the actions on jobs that pages, API and commands share."""

    catalogue: JobCatalogue
    accounts: Accounts
    sessions: Sessions
    code: str
    """Code in the address that `vcdl serve` prints; a browser that sends it is logged in as the owner."""
    secure_cookies: bool = False
    """Whether browsers reach the service only by TLS, so that cookies are marked secure."""
    failed: RequestRate = field(default_factory=lambda: RequestRate(*FAILED_LOGINS))
    """Rates of failed logins, for each address, and for each pair of address and token."""
    fleets: Sequence[Path] = ()
    """Fleet files: their fleets are shown, and used to plan jobs and to forecast their cost."""
    base: str = ""
    """Path below which a web server mounts the service, such as /lab_vcdl, or an empty string for its root."""
    is_public: bool = False
    """Whether visitors without a token may see the list of jobs and the jobs' pages."""
    pages: Pages = field(init=False)
    live: LivePages = field(default_factory=LivePages)
    data_bytes: int = 50 << 30
    """Most bytes of uploaded data that do not belong to a job yet."""
    metrics: Metrics = field(init=False)
    chunks: ChunkStore = field(init=False)
    submissions: Submissions = field(init=False)
    line: SubmissionLine = field(default_factory=SubmissionLine)
    _resuming: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(_RESUMES_AT_ONCE))
    commands: CommandRunner = field(init=False)
    budgets: Budgets = field(init=False)

    def __post_init__(self) -> None:
        runs = self.catalogue.runs
        self.pages = Pages(bool(self.fleets), self.base, self.is_public)
        self.metrics = Metrics(self.catalogue)
        self.chunks = ChunkStore(service_folder(runs) / "chunks", self.data_bytes)
        self.commands = CommandRunner(runs, self.fleets)
        self.budgets = Budgets(self.accounts, self.commands, self.fleets)
        self.submissions = Submissions(runs, self.accounts, self.chunks, self.budgets)

    @classmethod
    def over(cls, runs: Path, **options: Any) -> Self:
        """Create the service over a folder of runs, with a new login code for its owner.

        The service's own folder, its database and its key are created if they do not exist.

        Args:
            runs: The folder of runs.
            options: Further fields of WebService.

        Raises:
            RunFolderError: The folder cannot be used.
        """
        return cls(JobCatalogue(runs), Accounts(runs), Sessions.of(runs), secrets.token_urlsafe(32), **options)

    def of_token(self, token: str, address: str) -> tuple[Caller | None, float]:
        """Return the caller that a token identifies, and limit the rate of wrong tokens.

        The limit only protects against load, because 256 random bits cannot be guessed. A wrong token that an address
        sends too often is refused without a query of the database. Valid tokens are accepted even from an address with
        many failures, because others may share it.

        Args:
            token: The token.
            address: Network address of the caller.

        Returns:
            The caller, or None if the token is not valid; and the seconds for which the address must wait before its
            next attempt, 0 if it need not.

        Raises:
            RunFolderError: The accounts cannot be read.
        """
        pair = f"{address} {hashlib.sha256(token.encode(errors='replace')).hexdigest()}"
        if (wait_s := self.failed.wait_s(pair)) > 0:
            return None, wait_s
        caller = self.accounts.of_token(token)
        if caller is None:
            wait_s = self.failed.wait_s(address)
            self.failed.note(pair)
            self.failed.note(address)
        return caller, wait_s

    def caller_of_subject(self, subject: str) -> Caller | None:
        """Return the caller to whom a session belongs, or None if their token is no longer valid.

        Args:
            subject: Id of the token with which they logged in, or OWNER.

        Raises:
            RunFolderError: The accounts cannot be read.
        """
        return Caller(OWNER, Role.OPERATOR) if subject == OWNER else self.accounts.caller(subject)

    def is_valid(self, caller: Caller) -> bool:
        """Return whether a caller's token is still valid; the owner has none and always is.

        Raises:
            RunFolderError: The accounts cannot be read.
        """
        return self.caller_of_subject(caller.id or OWNER) is not None

    async def submit(self, caller: Caller, key: str, job: str, files: list[SentFile], wait_s: float) -> str | int:
        """Put a submission into the line, and wait a while for its outcome.

        Call it again with the same key to wait further; the job is created only once.

        Args:
            caller: The submitter.
            key: The request's Idempotency-Key.
            job: The job file's keys, as JSON.
            files: The files that the job names.
            wait_s: Seconds to wait.

        Returns:
            The job's name, or its place in the line if the outcome is not known yet: 0 while it is being checked.

        Raises:
            JobError, DataError, ModelError, RunFolderError: The job is refused or cannot be stored. The key is then
                free again, for the corrected job.
            LineFull: The line is full, or another job of the caller is in it.
        """
        ticket = self.line.enter(caller.name, key, digest_of(job, files), lambda: self._submit(caller, key, job, files))
        # Wait in the event loop: a submission may take minutes, in which a waiting thread could answer no pages.
        coming = asyncio.wrap_future(ticket.outcome)
        await asyncio.wait([coming], timeout=wait_s)
        if not coming.done():
            return self.line.place(ticket)
        outcome = coming.result()
        # Forget the ticket, so that the corrected submission may use the same key.
        if isinstance(outcome, BaseException):
            self.line.forget(ticket)
            raise outcome
        return outcome

    def _submit(self, caller: Caller, key: str, job: str, files: list[SentFile]) -> str:
        try:
            name = self.submissions.submit(caller, key, job, files)
        except VcdlError as error:
            self.accounts.note(caller, "submit", "", str(error)[:200])
            raise
        self.accounts.note(caller, "submit", name)
        return name

    def folder(self, name: str) -> RunFolder:
        """Return the run folder of a job that has started.

        Raises:
            NoSuchJobError: There is no such job.
            RunFolderError: The job was accepted, but has no run folder yet.
        """
        if self.submissions.is_beginning(name):
            raise RunFolderError(f"{name} is about to start: try again in a few seconds")
        return self.catalogue.folder(name)

    def stop(self, caller: Caller, name: str) -> str:
        """Request that a job pauses, and return a sentence for the caller. Does not wait until it has paused.

        Raises:
            Forbidden: The caller may not stop the job.
            NoSuchJobError, RunFolderError: There is no such job, or nothing to stop.
        """
        with self._record_action(caller, "stop", name):
            if not ask_to_pause(folder := self.folder(name)):
                state = "finished" if is_finished(folder) else "not running"
                raise RunFolderError(f"{name} is {state}: there is nothing to stop")
        return f"{name} was asked to stop; it will pause within a few seconds"

    def resume(self, caller: Caller, name: str) -> str:
        """Resume a paused, killed or failed job, and return a sentence for the caller.

        The daemons resume a job of a BOINC project. For any other a process is started, and this waits for at most
        half a minute until it has marked the run as running.

        Raises:
            Forbidden: The caller may not resume the job.
            NoSuchJobError, RunFolderError, JournalError, GridError: There is no such job, or it cannot continue.
            ServiceBusy: The service is resuming too many other jobs.
        """
        with self._record_action(caller, "resume", name):
            return self._resume(name)

    def resume_killed(self) -> None:
        """Resume the submitted jobs whose process died, for example in a reboot. Call it once, when the service starts.

        Each job is tried once, so that a job that crashes the machine does so only once per start of the service. A job
        that cannot be resumed is logged.
        """
        for is_over, name in self.catalogue.list_jobs():
            try:
                if is_over or self.accounts.submitter(name) is None:
                    continue
                folder = self.folder(name)
                if state_of(folder, read_report(folder)) is RunState.KILLED:
                    _log.info("%s: %s", name, self.resume(Caller(OWNER, Role.OPERATOR), name))
            except VcdlError as error:
                _log.warning("%s does not continue automatically: %s", name, error)

    def _resume(self, name: str) -> str:
        folder = self.folder(name)
        if is_finished(folder) and not read_report(folder).is_given_up:
            raise RunFolderError(f"{name} is finished: there is nothing left to do")
        if folder.kind.has_daemons:
            release(folder)
        elif folder.kind.driver is None:
            raise RunFolderError(f"{name} cannot be resumed: {folder.kind.how_to_resume(name)}")
        elif folder.running_pid is not None:
            raise RunFolderError(f"{name} is already running")
        else:
            _refuse_own_code(folder)
            is_sent = self.accounts.submitter(name) is not None
            if not self._resuming.acquire(blocking=False):
                raise ServiceBusy("the service is resuming other jobs: try again in a few seconds")
            try:
                # Jobs that came through the service get the confined environment, without the operator's credentials.
                # The operator's own jobs may need those, for a store or for data.
                resume_in_a_process(folder, confined_environment() if is_sent else None)
            finally:
                self._resuming.release()
        return f"{name} continues"

    def run_command(self, caller: Caller, request: CommandRequest) -> CommandAnswer:
        """Run a command of the command line for a caller, after checking that they may run it on these jobs.

        Changing commands are recorded in the audit log.

        Returns:
            Its output and exit code; a command that fails is no error here.

        Raises:
            VcdlError: The caller may not run the command, or it cannot be run.
        """
        command, jobs = check_command(request, caller.role)
        if request.new is not None and caller.role < Role.SUBMITTER:
            raise Forbidden(f"{caller.name} may not submit a job: this requires the role submitter")
        if request.new is not None and not jobs and project_of(self.catalogue.runs) is not None:
            raise JobError(
                f"{request.name}: the speed of a project's clients is known only from jobs that they have trained: "
                f"`vcdl plan JOB.yaml NAME` names one, `vcdl jobs` lists them"
            )
        for name in jobs:
            folder = self.folder(name)
            if request.name == "export":  # it loads the model
                _refuse_own_code(folder)
        if command.role is Role.READER:
            return self.commands.run(request, command)
        about = " ".join(jobs or request.arguments)
        with self._record_action(caller, request.name, about, command.role):
            settings = request.options.get("--set", ())
            # A changed job could cost more than what was planned for it.
            if (settings or request.name == "set") and self.budgets.bounds(caller):
                raise JobError(f"{about} is planned within {caller.name}'s budget: only an operator may change it")
            if request.name != "resume":
                return self.commands.run(request, command)
            done = CommandAnswer("", "", 0)
            if settings and not isinstance(settings, str | bool):
                done = self.commands.run(CommandRequest("set", [*jobs, *settings]), command)
            return done if done.exit_code else CommandAnswer(f"{done.output}{self._resume(jobs[0])}\n", "", 0)

    @contextmanager
    def _record_action(self, caller: Caller, action: str, name: str, role: Role = Role.SUBMITTER) -> Iterator[None]:
        """Run the block if the caller may change the job, and record its outcome, or the refusal, in the audit log.

        Args:
            caller: The caller: an operator, or the submitter of the job.
            action: The action's name in the log and in messages.
            name: Name of the job.
            role: The role that the action requires.

        Raises:
            Forbidden: The caller's role is too low, or the job is someone else's.
        """
        try:
            # Raise within the `try`, so that refusals are in the audit log, too: they show who tries what.
            if caller.role < role:
                raise Forbidden(f"{caller.name} may not {action} here: this requires the role {role.name.lower()}")
            if caller.role < Role.OPERATOR and self.accounts.submitter(name) != caller.name:
                raise Forbidden(f"{caller.name} did not submit {name}: only an operator may {action} it")
            yield
        except VcdlError as error:
            self.accounts.note(caller, action, name[:64], str(error)[:200])
            raise
        self.accounts.note(caller, action, name[:64])

    def file(self, name: str, file: str) -> FileResponse:
        """Return the response that downloads one of the FILES of a run.

        Raises:
            NoSuchJobError: There is no such job or file.
        """
        path = self.catalogue.folder(name).path / file
        if file not in FILES or not path.is_file():
            raise NoSuchJobError(f"{name} has no file {file[:64]!r}: {', '.join(FILES)} exist once it has finished")
        return FileResponse(path, media_type=FILES[file][1], filename=f"{name}-{file}")


def _refuse_own_code(folder: RunFolder) -> None:
    """Check that a run's model has no code of its own: no process of the service may run such code.

    Raises:
        RunFolderError: The model has its own code.
    """
    if read_frozen(folder).model.code is not None:
        raise RunFolderError(
            f"the model of {folder.path.name} has its own code, which a service does not run: run this command on the "
            "service's machine, without --server"
        )
