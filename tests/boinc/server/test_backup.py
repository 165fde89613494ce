"""Backups: what a cut holds, which ones are kept, and the places where they lie."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import boto3
import pytest
from moto import mock_aws

from vcdl.boinc.server import backup, cut
from vcdl.boinc.server.backup import last_event
from vcdl.boinc.server.settings import ServerSettings
from vcdl.boinc.server.vault import MANIFEST, BackupManifest, FolderVault, S3Vault, Vault, backup_name, expired_backups
from vcdl.errors import ServerError
from vcdl.files.lock import locked
from vcdl.journal.events import RunStarted
from vcdl.journal.journal import Journal

NOW = datetime(2026, 11, 24, 3, 30, tzinfo=UTC)


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_cut_has_what_goes_while_it_is_made_and_belongs_together(tmp_path: Path) -> None:
    run, taken = tmp_path / "vcdl/runs/digits", tmp_path / cut.CUT
    gone = write(tmp_path / "upload/1f/update_0")
    write(run / "store/weights.bin", "version 1")
    write(run / "snapshots/params_v000001.h5")
    write(run / "slots/one/checkpoint")
    write(tmp_path / "vcdl/runs/.service/tokens.json")
    journal = Journal.at(run / "journal.db")
    journal.append(RunStarted(resumed=False))
    cut.main(str(tmp_path), "staged")
    gone.unlink()
    write(tmp_path / "download/2a/new.json")
    cut.main(str(tmp_path), "runs")
    write(run / "store/weights.bin", "version 2")  # written in place, by the next fold
    journal.append(RunStarted(resumed=True))
    found = {str(path.relative_to(taken)) for path in taken.rglob("*") if path.is_file()}
    ours = "vcdl/runs/digits"
    assert found == {
        *("upload/1f/update_0", "download/2a/new.json", f"{ours}/store/weights.bin", f"{ours}/journal.db"),
        *(f"{ours}/snapshots/params_v000001.h5", "vcdl/runs/.service/tokens.json"),
    }
    assert (taken / ours / "store/weights.bin").read_text() == "version 1"
    assert last_event(taken / ours / "journal.db") == 1


def test_the_next_cut_begins_anew_after_a_killed_one(tmp_path: Path) -> None:
    write(tmp_path / cut.CUT / "upload/1f/old")
    cut.main(str(tmp_path), "staged")
    assert not list((tmp_path / cut.CUT).rglob("old"))


def test_a_backup_waits_for_another_of_its_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "WORK", tmp_path)
    settings = ServerSettings("lab", boinc=tmp_path, host="lab.example.org", email="a@example.org", user="nobody-here")
    other = write(tmp_path / "backup" / settings.name / "database.sql.gz")
    said: list[str] = []

    def back_up() -> None:
        try:
            said.extend(backup.back_up(settings, str(tmp_path / "vault")))
        except ServerError as error:
            said.append(f"{error}")

    with locked(tmp_path / "backup" / f"{settings.name}.lock"):
        second = Thread(target=back_up)
        second.start()
        second.join(0.5)
        assert second.is_alive()
        assert other.exists()
    second.join()
    assert said, "it continued, as far as it can without a project"
    assert not other.exists()


def test_older_backups_become_fewer() -> None:
    names = [backup_name("lab", NOW - timedelta(days=day)) for day in range(500)]
    kept = set(names) - set(expired_backups([*names, "notes", "lab-20261399T000000Z"]))
    assert kept >= set(names[:7])
    assert 15 <= len(kept) <= 7 + 5 + 12
    assert min(kept) < backup_name("lab", NOW - timedelta(days=300))
    hours = [backup_name("lab", NOW - timedelta(hours=hour)) for hour in range(3)]
    assert expired_backups(hours) == []


@pytest.fixture(params=["folder", "s3"])
def vault(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vault]:
    if request.param == "folder":
        yield FolderVault(tmp_path / "vault")
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="train")
        yield S3Vault("train", "lab/")


def test_a_backup_comes_back_as_it_went_and_counts_when_it_is_whole(vault: Vault, tmp_path: Path) -> None:
    name = backup_name("lab", NOW)
    with pytest.raises(ServerError, match="no whole backup"):
        vault.newest()
    folder = tmp_path / "made"
    write(folder / "keys.tar.gz", "keys")
    vault.put(folder, backup_name("lab", NOW + timedelta(days=1)))  # killed before its manifest
    write(folder / MANIFEST, BackupManifest("lab", "now", "1").to_json())
    vault.put(folder, name)
    assert vault.newest("lab") == name
    (tmp_path / "got").mkdir()
    vault.get(name, tmp_path / "got")
    assert {path.name: path.read_text() for path in (tmp_path / "got").iterdir()} == {
        path.name: path.read_text() for path in folder.iterdir()
    }
    vault.remove(name)
    assert vault.names() == []


def test_the_newest_backup_of_a_place_with_several_projects_is_the_last_one_made(vault: Vault, tmp_path: Path) -> None:
    made = {"zeta": NOW, "alpha": NOW + timedelta(days=1)}
    for project, at in made.items():
        folder = tmp_path / project
        write(folder / MANIFEST, BackupManifest(project, "now", "1").to_json())
        vault.put(folder, backup_name(project, at))
    vault.put(tmp_path / "zeta", "zeta-20261399T000000Z")  # of somebody else who may write there
    assert vault.newest() == backup_name("alpha", made["alpha"])
    assert vault.newest("zeta") == backup_name("zeta", made["zeta"])


def test_a_manifest_of_a_later_format_is_named() -> None:
    with pytest.raises(ServerError, match="format 2"):
        BackupManifest.from_json(BackupManifest("lab", "now", "1", format=2).to_json(), "it")


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[]", "{}", '{"project": "../x", "made": "", "vcdl": ""}',
     '{"project": "a`; DROP DATABASE a", "made": "", "vcdl": ""}',
     '{"project": "a", "made": "", "vcdl": "", "files": {"../../etc/shadow": "0"}}',
     '{"project": "a", "made": "", "vcdl": "", "files": null}',
     '{"project": "a", "made": "", "vcdl": "", "runs": {"/etc": 1}}'],
)  # fmt: skip
def test_a_manifest_that_leads_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(ServerError, match="cannot be read"):
        BackupManifest.from_json(text, "a backup")
