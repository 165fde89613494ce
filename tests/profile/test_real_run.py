"""The profile of a real run on the local grid."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import vcdl
from tests.places import EXAMPLES
from vcdl.journal.events import UpdateApplied
from vcdl.profile.stages import AWAY, FOLD, SERVER, TRAIN, RunProfile
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of, journal_of
from vcdl.wire.workunit import STAGES

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    path = tmp_path_factory.mktemp("runs") / "digits"
    settings = ["--set", "stop.epochs=3", "--set", "stop.target_accuracy=null"]
    done = vcdl("run", EXAMPLES / "digits.yaml", "--out", path, *settings)
    assert done.returncode == 0, done.stderr
    return RunFolder(path)


def profile_of(folder: RunFolder) -> RunProfile:
    with journal_of(folder) as journal:
        assert journal is not None
        return RunProfile.of(journal.stream())


def test_the_stages_add_up_to_the_turnaround(folder: RunFolder) -> None:
    with journal_of(folder) as journal:
        assert journal is not None
        rows = list(journal.stream())
    created = {row.event.key: row.time_s for row in rows if row.event.key and row.event.key.startswith("created:")}
    turnaround_s = sum(
        row.time_s - created[f"created:{row.event.workunit}"] for row in rows if isinstance(row.event, UpdateApplied)
    )
    sums = profile_of(folder).total()
    assert sums.mean_s() * sums.subtasks == pytest.approx(turnaround_s, rel=1e-6)
    assert sums.told == sums.subtasks == 12
    # What no process has timed is the way of small files over a local disk.
    assert sums.mean_s(AWAY) < 0.5 * sums.mean_s()
    assert min(sums.mean_s(stage) for stage in (TRAIN, "first", "prepare", SERVER, FOLD)) > 0.0


def test_clients_tell_known_stages_in_less_than_200_bytes(folder: RunFolder) -> None:
    updates = list(events_of(folder, UpdateApplied))
    assert all(set(update.times_s) <= set(STAGES) for update in updates)
    assert max(len(json.dumps(update.times_s)) for update in updates) < 200
    assert sum("first" in update.times_s for update in updates) <= 2  # the first of each worker


def test_the_command_says_one_sentence_and_a_table(folder: RunFolder, tmp_path: Path) -> None:
    shown = vcdl("profile", folder.path, "-o", tmp_path / "profile.png")
    assert shown.returncode == 0, shown.stderr
    sentence, _, head, *_ = shown.stdout.splitlines()
    assert "that a host spends on a subtask" in sentence
    assert head.split()[:2] == ["stage", "all"]
    assert (tmp_path / "profile.png").stat().st_size > 10_000
    figures = json.loads(vcdl("profile", folder.path, "--json").stdout)
    assert sum(figures["all"]["stages_s"].values()) == pytest.approx(figures["all"]["turnaround_s"], abs=1e-2)
