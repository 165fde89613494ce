"""Run commands of the command line for callers, as child processes in the folder of runs.

So output, JSON and exit codes are those of the command line. Callers can request only the commands in COMMANDS, with
the options listed there: others could read or write files of the server.
"""

import re
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from vcdl.errors import JobError, RunFolderError, Unavailable, VcdlError, folder_errors
from vcdl.files.children import Limits, confined_environment, run_child
from vcdl.web.sessions import Role, service_folder

_LONGEST_S = 150.0
"""Seconds after which a command is killed, since others wait for it to end."""
_LONGEST_EXPORT_S = 3600.0
"""Seconds after which an export is killed: it reads, checks and packs gigabytes, at the speed of the disk."""
_AT_ONCE, _IN_LINE, _WAIT_S = 2, 8, 30.0
"""Most commands that run at once; most that run or wait, since each holds a thread; most seconds that one waits."""
_MOST_CHARACTERS = 4 << 20
_KEPT_S = 3600.0
"""Seconds for which a command's file can be fetched, so that forgotten ones do not fill the disk."""
_OUTPUT = re.compile(r"[A-Za-z0-9_-]{1,60}\.(keras|png|svg|pdf)")
_TEXT = re.compile(r"[^\0-\x1f\x7f]{1,300}")
_OF_THE_SERVER = ("grid.workers", "grid.servers", "boinc.share")
"""Settings that only an operator may change, because they divide the server's resources among the jobs."""
_PLANNED = ("stop.epochs", "data.shards", "training.local_epochs", "training.batch_size")
"""Keys that `plan --set` may change; other keys could name files of the server."""

_WRITES_ALWAYS = ("plot", "export")

Options = Mapping[str, bool | str | Sequence[str]]


class ServiceBusy(Unavailable):
    """The service is at its concurrency limit; retry later."""


@dataclass(frozen=True)
class CommandRule:
    """What a caller may request of one command: by which role, on how many jobs, with which options."""

    role: Role = Role.READER
    options: frozenset[str] = frozenset()
    jobs: int | None = 1
    """How many of the first arguments name jobs, or None if all of them do."""
    writes: bool = False
    """Whether the command can write a file, with --output."""
    takes_new: bool = False
    """Whether the command accepts a job file that the caller sends, instead of a job of the service."""
    longest_s: float = _LONGEST_S
    """Seconds after which the command is killed."""


@dataclass(frozen=True)
class CommandRequest:
    """A caller's request for a command."""

    name: str
    arguments: Sequence[str]
    options: Options = field(default_factory=dict)
    output: str = ""
    """Name of the file that the command writes, or an empty string if it writes none."""
    columns: int = 80
    """Width of the caller's terminal, in characters."""
    new: AbstractContextManager[Path] | None = None
    """Provides the folder of a job file that the caller sent, for the time of the command; None if none was sent. The
    arguments then name existing runs, whose hosts' speed is assumed."""


@dataclass(frozen=True)
class CommandAnswer:
    """The output and exit code of a command."""

    output: str
    errors: str
    exit_code: int
    file: str | None = None
    """Name `FOLDER/NAME` under which the file that the command wrote can be fetched, once; None if it wrote none."""


_JSON = frozenset({"--json"})
COMMANDS: Mapping[str, CommandRule] = {
    "status": CommandRule(options=_JSON),
    "hosts": CommandRule(options=_JSON),
    "profile": CommandRule(options=_JSON, writes=True, takes_new=True),
    "plan": CommandRule(
        options=_JSON | {"--deadline", "--budget-usd", "--accuracy", "--set", "--fleet"}, writes=True, takes_new=True
    ),
    "compare": CommandRule(options=_JSON, jobs=None),
    "plot": CommandRule(options=frozenset({"--title"}), jobs=None, writes=True),
    "export": CommandRule(options=frozenset({"--best"}), writes=True, longest_s=_LONGEST_EXPORT_S),
    "set": CommandRule(Role.SUBMITTER),
    "note": CommandRule(Role.SUBMITTER, frozenset({"--text", "--tag", "--untag"})),
    "stop": CommandRule(Role.SUBMITTER, frozenset({"--timeout", "--forget"})),
    "resume": CommandRule(Role.SUBMITTER, frozenset({"--set"})),
    "hosts ban": CommandRule(Role.OPERATOR, jobs=0),
    "hosts unban": CommandRule(Role.OPERATOR, jobs=0),
}


def check_command(request: CommandRequest, role: Role) -> tuple[CommandRule, list[str]]:
    """Check that a command may be requested with these arguments and options.

    The caller's right to the jobs, and the role that the command requires, are not checked here.

    Args:
        request: The request.
        role: The caller's role, which decides about the settings that only operators may change.

    Returns:
        The command's rule, and the names of the jobs among the arguments.

    Raises:
        JobError: The command, an option, an argument or a setting is not allowed.
    """
    command = COMMANDS.get(request.name)
    if command is None:
        raise JobError(f"a service does not run {request.name[:30]!r}, only {', '.join(COMMANDS)}")
    if odd := [option for option in request.options if option not in command.options]:
        takes = ", ".join(sorted(command.options)) or "no option"
        raise JobError(f"{request.name} at a service does not accept {odd[0][:30]}: it accepts {takes}")
    if request.new is not None and not command.takes_new:
        raise JobError(f"{request.name} at a service does not accept a job file: give the name of a job there")
    jobs = [*request.arguments][: command.jobs]
    if request.new is None and len(jobs) < (1 if command.jobs is None else command.jobs):
        raise JobError(f"{request.name} at a service needs the name of a job: `vcdl jobs --server` lists them")
    rest = request.arguments[len(jobs) :]
    if rest and not (request.name == "set" or command.jobs == 0):
        raise JobError(f"{request.name} at a service accepts only the name of a job: remove {rest[0][:60]!r}")
    if command.jobs:
        _check_settings(request.name, [*rest, *_texts(request.options.get("--set", ()))], role)
    _check_output(request, command)
    return command, jobs


def _check_output(request: CommandRequest, command: CommandRule) -> None:
    if request.name in _WRITES_ALWAYS and not request.output:
        raise JobError(f"{request.name} at a service needs --output FILE: the name of the file on your machine")
    if request.output and not (command.writes and _OUTPUT.fullmatch(request.output)):
        raise JobError(
            f"{request.name} cannot write {request.output[:60]!r}: use a name that ends in .keras, .png, .svg or .pdf"
        )


def _check_settings(command: str, settings: Iterable[str], role: Role) -> None:
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if command == "plan" and key not in _PLANNED:
            raise JobError(f"{key[:60]} cannot be changed for a plan at a service: only {', '.join(_PLANNED)}")
        if role < Role.OPERATOR and key.startswith(_OF_THE_SERVER):
            raise JobError(f"{key[:60]} is a setting of the server: only an operator may change it")


class CommandRunner:
    """Runs commands in a folder of runs: `_AT_ONCE` at a time, while up to `_IN_LINE` in total run or wait.

    The file that a command writes is kept for an hour under an unguessable name.
    """

    def __init__(self, runs: Path, fleets: Sequence[Path] = ()) -> None:
        """Prepare the runner.

        Args:
            runs: The folder of runs.
            fleets: Fleet files that `plan --fleet` may name, by their names without ending.
        """
        self._runs = runs
        self._fleets = {file.stem: file for file in fleets}
        self._outputs = service_folder(runs) / "outputs"
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._line_up = threading.BoundedSemaphore(_IN_LINE)

    def run(self, request: CommandRequest, command: CommandRule) -> CommandAnswer:
        """Run a command that `check_command` has admitted, wait for its end, and return its output and exit code.

        A command that fails is no error here: its exit code and messages are in the answer.

        Args:
            request: The request.
            command: The rule that `check_command` returned.

        Raises:
            ServiceBusy: Too many commands run or wait.
            RunFolderError: The folder for the command's file cannot be created.
            VcdlError: The command took too long and was killed. Errors of `request.new` are raised, too.
        """
        environment = {**confined_environment(), "COLUMNS": str(request.columns)}
        # The service sets this variable to silence TensorFlow. A command that finds it set would assume that the user
        # wants to see all messages.
        environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
        # Wait for the turn before a new job's files are written, so that waiting requests use no disk space.
        with self._output(request) as output, self._turn(), request.new or nullcontext() as new:
            try:
                done = run_child(
                    *("vcdl", *self._command_arguments(request, output, new)),
                    timeout_s=command.longest_s,
                    limits=None if new is None else Limits.for_foreign_files(command.longest_s),
                    cwd=self._runs,
                    env=environment,
                )
            except subprocess.TimeoutExpired:
                raise VcdlError(f"{request.name} took more than {command.longest_s:g} s at the service") from None
            is_there = output is not None and output.is_file()
            return CommandAnswer(
                self._without_server_paths(done.stdout, output, request, new),
                self._without_server_paths(done.stderr, output, request, new),
                done.returncode,
                f"{output.parent.name}/{output.name}" if output is not None and is_there else None,
            )

    def written_file(self, folder: str, name: str) -> Path:
        """Return the path of a file that a command wrote; the caller deletes its folder once the file was sent.

        Args:
            folder: First part of `CommandAnswer.file`.
            name: Second part of it.

        Raises:
            RunFolderError: There is no such file.
        """
        path = self._outputs / folder / name
        if not (re.fullmatch(r"[0-9a-f]{32}", folder) and _OUTPUT.fullmatch(name) and path.is_file()):
            raise RunFolderError("this file was already fetched, or its hour is over: run the command again")
        return path

    def _command_arguments(self, request: CommandRequest, output: Path | None, new: Path | None) -> list[str]:
        words = request.name.split()
        for option, value in request.options.items():
            if value is True:
                words.append(option)
            # Pass it as one word with `=`, so that a value that starts with a dash cannot become an option of its own.
            words += [f"{option}={self._fleet_file(text) if option == '--fleet' else text}" for text in _texts(value)]
        if output is not None:
            words.append(f"--output={output}")
        if request.name.startswith("hosts "):
            words.append(f"--project-dir={self._runs.parents[1]}")
        arguments = [*_texts(request.arguments)]
        if new is not None:
            arguments.insert(0, str(new / "job.yaml"))
        elif request.name == "plan":
            arguments.insert(0, f"{arguments[0]}/job.yaml")
        # After `--` nothing is an option, whatever name a caller gives a job.
        return [*words, "--", *arguments]

    def _fleet_file(self, name: str) -> Path:
        """Return the path of the fleet file with this name, which has no ending.

        Raises:
            JobError: The service has no fleet of this name.
        """
        if name not in self._fleets:
            known = ", ".join(self._fleets) or "none: `vcdl serve --fleet` shows one"
            raise JobError(f"there is no fleet {name[:60]!r} at this service, only {known}")
        return self._fleets[name]

    @contextmanager
    def _turn(self) -> Iterator[None]:
        busy = ServiceBusy("the service is running other commands: try again in a minute")
        with ExitStack() as held:
            # First take a place in the line, without waiting: a waiting request holds a thread, so only few may wait.
            for place, wait_s in ((self._line_up, 0.0), (self._turns, _WAIT_S)):
                if not place.acquire(timeout=wait_s):
                    raise busy
                held.callback(place.release)
            yield

    @contextmanager
    def _output(self, request: CommandRequest) -> Iterator[Path | None]:
        """Yield the path for the file that the command may write, or None if it writes none; remove expired files.

        The file is in a new folder, which is removed afterwards if it is empty.
        """
        if not request.output:
            yield None
            return
        with folder_errors(self._outputs):
            self._outputs.mkdir(mode=0o700, exist_ok=True)
            for old in self._outputs.iterdir():
                with suppress(FileNotFoundError):
                    if time.time() - old.stat().st_mtime > _KEPT_S:
                        shutil.rmtree(old, ignore_errors=True)
            # Use an unguessable name: whoever knows it may fetch the file, and only the caller of the command gets it.
            folder = self._outputs / secrets.token_hex(16)
            folder.mkdir(mode=0o700)
        try:
            yield folder / request.output
        finally:
            with suppress(OSError):
                folder.rmdir()  # fails, as it should, if the command has written its file

    def _without_server_paths(self, said: bytes, output: Path | None, request: CommandRequest, new: Path | None) -> str:
        """Decode a command's output and remove the server's paths from it.

        Args:
            said: The output; what exceeds `_MOST_CHARACTERS` bytes is cut off.
            output: Path of the file that the command may write; the name from the request replaces it.
            request: The request.
            new: Folder of the job file that the caller sent, or None.
        """
        text = said[:_MOST_CHARACTERS].decode("utf-8", "replace")
        if output is not None:
            for path in (output, output.relative_to(self._runs)):
                text = text.replace(str(path), request.output)
        for path in [*([] if new is None else [new]), *self._fleets.values()]:
            text = text.replace(f"{path}/", "").replace(str(path), path.stem)
        return text.replace(f"{self._runs}/", "").replace(str(self._runs), "the service")


def _texts(value: bool | str | Sequence[str]) -> list[str]:
    """Return the texts of an option's value, or of the arguments; none for a flag.

    Raises:
        JobError: A text is empty or too long, or has line breaks or other control characters.
    """
    texts = [] if isinstance(value, bool) else [value] if isinstance(value, str) else [*value]
    for text in texts:
        if not _TEXT.fullmatch(text):
            raise JobError(f"{text[:60]!r}: expected 1 to 300 characters, without line breaks and control characters")
    return texts
