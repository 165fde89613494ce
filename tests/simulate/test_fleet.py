"""The fleet file: what it may say, and what is said when it says something else."""

from pathlib import Path

import pytest

from vcdl.errors import JobError
from vcdl.run.folder import RunFolder
from vcdl.simulate.fleet import FLEET_FILE, Fleet, Hostile, is_simulated, load_fleet, save_fleet

DOCUMENT = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text(encoding="utf-8")


def test_without_a_file_the_defaults_are_taken_and_settings_replace_them() -> None:
    assert load_fleet(None) == Fleet()
    fleet = load_fleet(None, ["clients=3", "lost=0.25", "hostile=[{client: 2, attack: noise}]"])
    assert (fleet.clients, fleet.lost, fleet.slots) == (3, 0.25, Fleet().slots)
    assert fleet.hostile == (Hostile(client=2, attack="noise", scale=10.0),)


def test_a_timeout_that_is_not_given_follows_the_length_of_a_subtask() -> None:
    assert load_fleet(None, ["subtask_s=7"]).patience_s == 70
    assert load_fleet(None, ["subtask_s=7", "timeout_s=20"]).patience_s == 20


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("client: 3\n", "fleet.yaml:1: client: unknown key; did you mean clients?"),
        ("clients: 3\nlost: 1\n", "fleet.yaml:2: lost: expected a number between 0 and 1 (1 excluded), got 1"),
        ("spread: 0.5\n", "fleet.yaml:1: spread: expected a number ≥ 1, got 0.5"),
        ("upload_s: -1\n", "fleet.yaml:1: upload_s: expected a number ≥ 0, got -1"),
        ("hostile: [{client: 9, attack: joke}]\n", "attack: expected one of: sign_flip, noise"),
        ("clients: 2\nhostile: [{client: 2, attack: noise}]\n", "there are 2 clients, numbered from 0; got 2"),
        ("hostile: [{client: 1, attack: noise}, {client: 1, attack: sign_flip}]\n", "a client is listed twice"),
    ],
)
def test_a_wrong_fleet_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(JobError) as refused:
        load_fleet(path)
    assert complaint in str(refused.value)


def test_a_wrong_setting_of_the_command_line_is_refused_as_it_was_given() -> None:
    with pytest.raises(JobError, match=r'^--set "slots=none": slots: expected a whole number ≥ 1, got "none"$'):
        load_fleet(None, ["slots=none"])


def test_a_frozen_fleet_is_read_back_as_it_was(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert not is_simulated(folder)
    fleet = Fleet(clients=4, checkpoint_s=None, spread=4.0, hostile=(Hostile(client=0, attack="sign_flip"),))
    save_fleet(fleet, folder)
    assert load_fleet(tmp_path / FLEET_FILE) == fleet
    assert is_simulated(folder)


def test_every_key_is_documented_with_its_default() -> None:
    for key, field in Fleet.model_fields.items():
        default = "[]" if field.default == () else "none" if field.default is None else f"{field.default:g}"
        assert f"| `{key}` | {default} |" in DOCUMENT
