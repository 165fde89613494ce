"""The parser: help at once, every exception one line and a documented exit code, every command in the document."""

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.places import DOCS, EXAMPLES
from vcdl import __version__, errors
from vcdl.cli import COMMANDS, exit_code_of, vcdl
from vcdl.errors import ExitCode, VcdlError
from vcdl.job import load_job

DOCUMENT = (DOCS / "commands.md").read_text(encoding="utf-8")
HEAVY = ("keras", "tensorflow", "numpy", "matplotlib", "pydantic", "yaml", "rich", "h5py")


@pytest.mark.process
def test_help_imports_nothing_heavy() -> None:
    """One process asks for one help after the other and looks each time at what has been imported."""
    program = (
        "import json, sys\nfrom vcdl.cli import COMMANDS, exit_code_of\n"
        "for arguments in [['--help'], *([name, '--help'] for name in COMMANDS)]:\n"
        "    code = exit_code_of(arguments)\n"
        "    modules = sorted({name.split('.')[0] for name in sys.modules})\n"
        "    print(json.dumps([*arguments, code, modules]), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert [arguments[0] for *arguments, _, _ in told] == ["--help", *COMMANDS]
    for *arguments, code, modules in told:
        assert code == 0, arguments
        assert set(modules).isdisjoint(HEAVY), f"{arguments} imports {set(modules) & set(HEAVY)}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_a_worked_example(name: str) -> None:
    result = CliRunner().invoke(vcdl, [name, "--help"])
    assert result.exit_code == 0
    assert re.search(rf"Examples:\n  +vcdl {name}\b", result.output)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_have_options_and_settings_that_exist(name: str) -> None:
    output = CliRunner().invoke(vcdl, [name, "--help"]).output
    for example in re.findall(rf"^ +(vcdl {name}\b.*)", output.partition("Examples:")[2], re.MULTILINE):
        words = shlex.split(re.split(r"  +| [|>] ", example)[0])
        command: click.Command = vcdl
        context = click.Context(command)
        for word in words[1:]:
            if isinstance(command, click.Group) and (found := command.get_command(context, word)):
                command = found
        if isinstance(command, click.Group) and len(words) > 2:  # `vcdl pool JOB.yaml`: the first word is left out
            command = command.commands["run" if name == "pool" else "show"]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, example
        given = [value for option, value in pairwise(words) if option in ("--over", "--set")]
        load_job(EXAMPLES / "digits.yaml", [re.split(r"\.\.|,", value)[0] for value in given])


@pytest.mark.process
def test_the_program_itself_answers() -> None:
    done = subprocess.run([sys.executable, "-m", "vcdl", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"vcdl, version {__version__}\n")


@pytest.mark.parametrize("arguments", [["nonsense"], ["run"], ["status", "--colour"], ["stop", "--timeout", "soon"]])
def test_wrong_arguments_are_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(arguments) == ExitCode.USAGE
    assert "Error:" in capsys.readouterr().err


# -- exceptions


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A command `raise` that raises what is in the list."""
    to_raise: list[BaseException] = []

    @click.command("raise")
    def command() -> None:
        raise to_raise[0]

    monkeypatch.setattr("vcdl.cli.COMMANDS", (*COMMANDS, "raise"))
    monkeypatch.setitem(sys.modules, "vcdl.commands.raise", type(sys)("vcdl.commands.raise"))
    sys.modules["vcdl.commands.raise"].command = command  # type: ignore[attr-defined]
    return to_raise


def every_error() -> list[type[VcdlError]]:
    return [found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, VcdlError)]


@pytest.mark.parametrize("kind", every_error())
def test_an_error_of_ours_is_its_message_and_its_exit_code(
    kind: type[VcdlError], raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(kind("what happened; what to do"))
    assert exit_code_of(["raise"]) == kind.exit_code
    assert capsys.readouterr().err == "vcdl: error: what happened; what to do\n"


def test_several_problems_of_a_job_are_a_line_each(
    raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(errors.JobError("a.yaml:1: one\na.yaml:2: two"))
    assert exit_code_of(["raise"]) == ExitCode.BAD_JOB
    assert capsys.readouterr().err == "vcdl: error: a.yaml:1: one\nvcdl: error: a.yaml:2: two\n"


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        *((number, "free some space") for number in errors.DISK_FULL),
        (errno.EROFS, "mount its disk"),
        (errno.EACCES, "correct the permissions"),
    ],
)
def test_a_full_or_read_only_disk_is_an_error_of_the_folder(
    number: int, cure: str, raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(OSError(number, os.strerror(number), "runs/a"))
    assert exit_code_of(["raise"]) == ExitCode.BAD_FOLDER
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"vcdl: error: runs/a: {os.strerror(number)}; {cure}")


def test_a_shard_that_was_deleted_is_named_and_no_space_is_asked_for(tmp_path: Path) -> None:
    shard = tmp_path / "shard_00001.npz"
    with pytest.raises(errors.RunFolderError) as caught, errors.folder_errors(tmp_path):
        shard.read_bytes()
    assert str(caught.value).startswith(f"{shard} is missing: restore it from a copy of the run")
    assert "space" not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        ImportError("libtensorflow_cc.so.2: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
        type("ResourceExhaustedError", (Exception,), {})("OOM when allocating tensor"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_memory_that_runs_out_is_told_as_that(
    error: BaseException, raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(error)
    assert exit_code_of(["raise"]) == ExitCode.MEMORY
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vcdl: error: memory has run out (")
    assert "bug" not in line


def test_ctrl_c_is_130(raising: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    raising.append(KeyboardInterrupt())
    assert exit_code_of(["raise"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "vcdl: error: interrupted\n"


def test_a_mistake_of_ours_is_one_line_that_names_a_report(
    raising: list[BaseException],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    raising.append(ZeroDivisionError("division\nby zero"))
    assert exit_code_of(["raise"]) == ExitCode.BUG
    (line,) = capsys.readouterr().err.splitlines()
    (report,) = tmp_path.iterdir()
    assert line == (
        f"vcdl: error: ZeroDivisionError: division by zero: this is a bug in vcdl; please report it with {report}"
    )
    text = report.read_text()
    assert "Traceback" in text
    assert re.search(r"^keras \d", text, flags=re.MULTILINE)


def test_a_mistake_is_told_even_where_no_report_can_be_written(
    raising: list[BaseException], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    raising.append(ZeroDivisionError("x"))
    assert exit_code_of(["raise"]) == ExitCode.BUG
    assert "no report could be written" in capsys.readouterr().err


@pytest.mark.process
def test_a_reader_that_has_enough_ends_the_command_quietly() -> None:
    program = f"{sys.executable} -c 'from vcdl.cli import main; main([\"--help\"])' | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
def test_what_native_libraries_print_stays_off_the_screen_and_our_errors_do_not(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom vcdl import cli\n"
        "cli.exit_code_of = lambda *_: (os.write(2, b'native'), print('ours', file=sys.stderr))[1] or 0\n"
        "cli.main([])"
    )
    quiet = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=quiet)
    assert done.stderr == "ours\n"
    talking = {**quiet, "TF_CPP_MIN_LOG_LEVEL": "0"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=talking)
    assert "native" in done.stderr


# -- the document


def test_the_document_has_every_command_and_no_option_that_is_none() -> None:
    for name in COMMANDS:
        (section,) = re.findall(rf"^## vcdl {name}\n(.*?)(?=^## |\Z)", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
        context = click.Context(vcdl)
        command = vcdl.get_command(context, name)
        assert command is not None
        commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        options = {option for c in commands for p in c.params if isinstance(p, click.Option) for option in p.opts}
        assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*(?=[ `])", section)) <= options, name


def test_the_document_has_every_exit_code() -> None:
    rows = re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", DOCUMENT, flags=re.MULTILINE)
    assert {name: int(number) for number, name in rows} == {code.name: code.value for code in ExitCode}


def test_the_list_of_commands_cuts_no_sentence() -> None:
    result = CliRunner().invoke(vcdl, ["--help"], terminal_width=78)
    commands = result.output.partition("Commands:")[2].partition("Examples:")[0]
    assert "..." not in commands
