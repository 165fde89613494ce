"""A key that was renamed: the refusal of the old name says the new one, wherever the key was given."""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import pytest

from vcdl.errors import JobError
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.file_kind import CLIENTS, FLEET, JOB, FileKind
from vcdl.yaml_schema.section import Section, load_section, one_of_sections, plain_or_section


class Pacing(Section):
    former_keys = MappingProxyType({"ahead": "queue_ahead"})

    queue_ahead: int = 0
    kind: str = "rolling"


class Fixed(Section):
    rule: str = "fixed"


class Server(Section):
    former_keys = MappingProxyType({"rate": "server_learning_rate"})

    rule: str = "server"
    server_learning_rate: float = 1.0


class Steps(Section):
    former_keys = MappingProxyType({"floor": "end_factor"})

    end_factor: float = 0.0


class File(Section):
    former_keys = MappingProxyType({"schedule": "pacing", "rest_s": "cooldown_s"})

    pacing: Pacing = Pacing()
    cooldown_s: int = 900
    update: Annotated[Section, one_of_sections("rule", {"fixed": Fixed, "server": Server}, default="fixed")] = Fixed()
    steps: Annotated[float | Steps, plain_or_section(kinds.above_zero(), Steps)] = 1.0


def refusal(folder: Path, text: str, overrides: Sequence[str] = (), kind: FileKind = JOB) -> list[str]:
    """The lines of the message, with `job.yaml` for the file's path."""
    path = folder / "job.yaml"
    path.write_text(text)
    with pytest.raises(JobError) as caught:
        load_section(File, kind, path, overrides)
    return str(caught.value).replace(str(folder) + "/", "").splitlines()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("rest_s: 5\n", ["job.yaml:1: rest_s: is called cooldown_s now"]),
        ("pacing:\n  ahead: 2\n", ["job.yaml:2: pacing > ahead: is called queue_ahead now"]),
        ("schedule: rolling\n", ["job.yaml:1: schedule: is called pacing now"]),
        (
            "schedule:\n  kind: epoch\n  ahead: 2\n",
            ["job.yaml:1: schedule: is called pacing now", "job.yaml:3: schedule > ahead: is called queue_ahead now"],
        ),
        (
            "update: {rule: server, rate: 0.5}\n",
            ["job.yaml:1: update > rate: is called server_learning_rate now"],
        ),
        ("update: {rate: 0.5}\n", ["job.yaml:1: update > rate: is called server_learning_rate now"]),
        ("steps: {floor: 1}\n", ["job.yaml:1: steps > floor: is called end_factor now"]),
        ("steps: {flor: 1}\n", ["job.yaml:1: steps > flor: unknown key; known here: end_factor"]),
    ],
)
def test_in_a_file_with_its_line(tmp_path: Path, text: str, lines: list[str]) -> None:
    assert refusal(tmp_path, text) == lines


@pytest.mark.parametrize(
    ("setting", "lines"),
    [
        ("rest_s=5", ['--set "rest_s=5": rest_s: is called cooldown_s now']),
        ("pacing.ahead=2", ['--set "pacing.ahead=2": pacing > ahead: is called queue_ahead now']),
        (
            "schedule.ahead=2",
            [
                '--set "schedule.ahead=2": schedule: is called pacing now',
                '--set "schedule.ahead=2": schedule > ahead: is called queue_ahead now',
            ],
        ),
        ("update.rate=1", ['--set "update.rate=1": update > rate: is called server_learning_rate now']),
    ],
)
def test_in_a_setting_of_the_command_line(tmp_path: Path, setting: str, lines: list[str]) -> None:
    assert refusal(tmp_path, "cooldown_s: 5\n", [setting]) == lines


def test_a_section_that_a_setting_made_is_the_setting_s_own(tmp_path: Path) -> None:
    assert refusal(tmp_path, "cooldown_s: 5\n", ["packing.kind=epoch"]) == [
        '--set "packing.kind=epoch": packing: unknown key; did you mean pacing?'
    ]


def test_an_option_other_than_set_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, "cooldown_s: 5\n", ["rest_s=5"], CLIENTS) == [
        '--with "rest_s=5": rest_s: is called cooldown_s now'
    ]


@pytest.mark.parametrize(
    ("expected", "text", "message"),
    [
        (CLIENTS, "name: a\ncloud: aws\n", "this is a fleet file (docs/fleet.md); give a file of simulated clients"),
        (CLIENTS, "model: {builtin: mlp}\n", "this is a job file (docs/job-file.md); give a file of simulated clients"),
        (FLEET, "clients: 3\n", "this is a file of simulated clients (docs/simulate.md); give a fleet file"),
        (FLEET, "data: {}\n", "this is a job file (docs/job-file.md); give a fleet file (docs/fleet.md)"),
        (JOB, "name: a\ncapacity: {}\n", "this is a fleet file (docs/fleet.md); give a job file (docs/job-file.md)"),
    ],
)
def test_a_file_of_another_kind_is_told_apart(tmp_path: Path, expected: FileKind, text: str, message: str) -> None:
    (line,) = refusal(tmp_path, text, kind=expected)
    assert line.startswith(f"job.yaml: {message}")


def test_a_file_with_a_key_of_the_expected_kind_is_read(tmp_path: Path) -> None:
    assert refusal(tmp_path, "clients: 3\ncapacity: 1\n", kind=CLIENTS)[0].startswith("job.yaml:1: clients: unknown")
