"""`vcdl compare` lays settings and results of runs beside each other."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import structs

from tests.recorded_run import FIRST_SESSION, WHOLE_RUN, recorded
from tests.run_folders import DEMO, make_run
from vcdl.commands.compare import command, compare
from vcdl.errors import RunFolderError
from vcdl.job import save_job
from vcdl.journal.events import Recorded, VersionEvaluated
from vcdl.run.folder import RunFolder
from vcdl.run.kind import SIMULATED
from vcdl.simulate.client_fleet import ClientFleet, save_clients


def better() -> list[Recorded]:
    """The same run, measured by one metric more, and with a lower loss."""
    events = []
    for row in WHOLE_RUN:
        event = row.event
        if isinstance(event, VersionEvaluated):
            event = structs.replace(event, loss=event.loss / 3, metrics={**event.metrics, "auc": 0.9})
        events.append(structs.replace(row, event=event))
    return events


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs: a finished one, one of another batch size, and a simulated one that is half finished."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    make_run(tmp_path / "a")
    other = DEMO.model_copy(update={"training": DEMO.training.model_copy(update={"batch_size": 64})})
    save_job(other, make_run(tmp_path / "b", better()).job_file)
    make_run(tmp_path / "half", recorded(FIRST_SESSION), finished=False, host=SIMULATED)
    return tmp_path


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_settings_that_differ_and_all_results_are_told_with_a_star_at_the_best(
    capsys: pytest.CaptureFixture[str],
) -> None:
    compare([Path("a"), Path("b")])
    assert lines(capsys) == [
        "                                    a         b",
        "kind                            local     local",
        "training.batch_size                16        64",
        "state                        finished  finished",
        "ended by                       epochs    epochs",
        "epochs                            2/2       2/2",
        "judged by                    accuracy  accuracy",
        "at the best epoch                   2         2",
        "  accuracy                        0.8       0.8",
        "  loss                            0.3     * 0.1",
        "  train_loss                     0.75      0.75",
        "  auc                               –       0.9",
        "at the end, validation",
        "  accuracy                       0.79      0.79",
        "  loss                            0.3     * 0.1",
        "  auc                               –       0.9",
        "at the end, test",
        "  accuracy                       0.77      0.77",
        "  loss                            0.3     * 0.1",
        "  auc                               –       0.9",
        "running time                     55 s      55 s",
        "learning rate used, at most    0.0017    0.0017",
        "updates                             4         4",
        "failed, refused                  1, 1      1, 1",
        "staleness                         0.5       0.5",
        "downloads                    10.4 KiB  10.4 KiB",
        "uploads                       5.7 KiB   5.7 KiB",
    ]


@pytest.mark.parametrize("width", [40, 72, 200])
def test_no_line_is_wider_than_the_screen(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, runs: Path
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    long = runs / ("a-run-with-a-long-name-" * 4)
    make_run(long)
    compare([Path("a"), Path("b"), Path("half"), long])
    told = lines(capsys)
    assert max(map(len, told)) <= width
    heads = " ".join(line for line in told if line.startswith("   "))
    assert all(name in heads for name in (" a ", " b", " half", " a-run-with-"))


def test_programs_get_the_keys_of_summary_json(capsys: pytest.CaptureFixture[str], runs: Path) -> None:
    compare([Path("a"), Path("b")], as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["settings"] == {"training.batch_size": [16, 64]}
    first, _ = told["runs"]
    assert {"run": "a", "folder": str(runs / "a"), "state": "finished"}.items() <= first.items()
    assert json.loads((runs / "a" / "summary.json").read_text()).items() <= first.items()


def test_a_password_in_a_job_file_is_not_shown(capsys: pytest.CaptureFixture[str], runs: Path) -> None:
    store = DEMO.store.model_copy(update={"url": "redis://user:geheim@host/0"})
    save_job(DEMO.model_copy(update={"store": store}), runs / "b" / "job.yaml")
    for form in ({}, {"as_json": True}):
        compare([Path("a"), Path("b")], **form)
        told = capsys.readouterr().out
        assert "redis://user:***@host/0" in told
        assert "geheim" not in told


def test_one_run_alone_is_refused_and_a_folder_without_a_run_is_named() -> None:
    assert "name at least two runs" in CliRunner().invoke(command, ["a"]).output
    with pytest.raises(RunFolderError, match="nowhere"):
        compare([Path("a"), Path("nowhere")])


def test_settings_of_simulated_clients_are_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, lost in (("calm", 0.0), ("lossy", 0.3)):
        make_run(tmp_path / name, host=SIMULATED)
        save_clients(ClientFleet(lost=lost), RunFolder(tmp_path / name))
    compare([Path("calm"), Path("lossy")], as_json=True)
    assert json.loads(capsys.readouterr().out)["settings"] == {"clients.lost": [0.0, 0.3]}
    compare([Path("calm"), Path("a")], as_json=True)
    assert json.loads(capsys.readouterr().out)["settings"] == {}, "a run on this machine has no such settings"
    RunFolder(tmp_path / "lossy").clients_file.write_bytes(b"lost: [\xff")
    compare([Path("calm"), Path("lossy")])
    assert lines(capsys)[-1] == "the settings are the same"
