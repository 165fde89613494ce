"""The command `vcdl`: runs a subcommand, and turns its exceptions into a line and an exit code.

`--help` answers at once: heavy libraries are imported inside the functions that use them.
"""

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from vcdl.errors import ExitCode, without_passwords
from vcdl.files.version import __version__

COMMANDS = (
    *("new", "data", "run", "check", "describe", "status", "profile", "jobs", "hosts", "watch", "serve", "sweep"),
    *(
        "token",
        "stop",
        "resume",
        "set",
        "note",
        "export",
        "verify",
        "plot",
        "compare",
        "report",
        "login",
        "submit",
        "project",
    ),
    *("server", "client", "plan", "simulate", "fleet", "pool", "worker"),
)
"""The commands in the order of a first use; each is a module of vcdl.commands with a `command`."""

_EXAMPLES = """\b
Examples:
  vcdl check job.yaml              is everything in order? Trains nothing
  vcdl run job.yaml                train here; results go to runs/NAME
  vcdl status                      how far is the last run?
  vcdl stop, then vcdl resume      pause it, and continue later
  vcdl plot runs/a runs/b          two accuracy curves in one picture

Exit codes are listed in docs/commands.md."""


class _Commands(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"vcdl.commands.{name}").command
        return command


@click.group(cls=_Commands, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vcdl")
def vcdl() -> None:
    """Train a Keras model on several machines that you cannot rely on."""


def main(arguments: Sequence[str] | None = None, command: click.Command = vcdl) -> NoReturn:
    """Run a command and leave the process with its exit code."""
    _mute_native_libraries()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an unknown character must not end a run
    sys.exit(exit_code_of(sys.argv[1:] if arguments is None else arguments, command))


def _mute_native_libraries() -> None:
    """Keep TensorFlow's C++ greetings off the screen.

    They go to descriptor 2 whatever its settings; Python's own stderr still reaches it. TF_CPP_MIN_LOG_LEVEL, set by a
    user, shows them.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ or not isinstance(sys.stderr, io.TextIOWrapper):
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    try:
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding=sys.stderr.encoding)
    except OSError:  # stderr is closed
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def exit_code_of(arguments: Sequence[str], command: click.Command = vcdl) -> ExitCode | int:
    """Run a command; the one place where exceptions become a line on stderr and an exit code."""
    try:
        with command.make_context("vcdl", list(arguments)) as context:
            result = command.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:  # --help and --version
        return end.exit_code
    except click.ClickException as error:
        words = io.StringIO()
        error.show(words)
        click.echo(without_passwords(words.getvalue()), err=True, nl=False)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has closed it. Python flushes stdout once more at exit: send that nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except Exception as error:
        from vcdl.report.failure import describe_error

        return _say(*describe_error(error))
    return ExitCode(result)


def _say(message: str, code: ExitCode) -> ExitCode:
    for line in message.splitlines():
        click.echo(f"vcdl: error: {line}", err=True)
    return code
