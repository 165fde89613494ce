"""VCDL is put into a project, kept up to date there, and taken out without a trace."""

import os
import shlex
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.boinc.project.made_project import MadeProject
from tests.boinc.standin.signing import SigningKey
from tests.run_folders import readable_files_with
from vcdl.boinc.grid.environment import read_environment
from vcdl.boinc.project import app_version, files, processes
from vcdl.boinc.project.app_version import ClientFiles
from vcdl.boinc.project.install import install, preview
from vcdl.boinc.project.install_options import InstallOptions
from vcdl.boinc.project.plan import InstallPlan, plan_install
from vcdl.boinc.project.server_config import ServerConfig
from vcdl.boinc.project.uninstall import plan_removal
from vcdl.errors import GridError

pytestmark = pytest.mark.boinc

OPTIONS = InstallOptions(Path(sys.executable))
WRITES = 25
"""Number of files in a first install."""


def plan(made: MadeProject, options: InstallOptions = OPTIONS) -> InstallPlan:
    return plan_install(made.project, made.database, options)


def uninstall(
    made: MadeProject, *, force: bool = False, delete_runs: bool = False, delete_rows: bool = False
) -> list[str]:
    removal = plan_removal(made.project, made.database, force=force, delete_runs=delete_runs, delete_rows=delete_rows)
    return list(removal.carry_out(made.database))


def versions(made: MadeProject) -> list[tuple[int, str, int]]:
    found = made.standin.rows(
        "SELECT version_num, plan_class, deprecated FROM app_version ORDER BY version_num, plan_class"
    )
    return [(row["version_num"], row["plan_class"], row["deprecated"]) for row in found]


def new_client(monkeypatch: pytest.MonkeyPatch, client: ClientFiles) -> None:
    """As another version of VCDL has it."""
    monkeypatch.setattr(ClientFiles, "build", classmethod(lambda *_: client))


def test_the_service_is_a_daemon_until_it_is_taken_out(made: MadeProject) -> None:
    made.install()
    config = made.project.path / "config.xml"
    without = config.read_bytes()
    list(install(plan(made, replace(OPTIONS, service_port=8630)), made.database))
    (command,) = [one.command for one in ServerConfig.at(made.project.path).daemons if one.program == "vcdl_service"]
    assert command.startswith("vcdl_service --port 8630 --path /")
    assert plan(made).changes_nothing
    config.write_text(config.read_text().replace(command, f"{command} --public"))
    assert plan(made).changes_nothing, "the operator's own options stay"
    list(install(plan(made, replace(OPTIONS, service_port=0)), made.database))
    assert config.read_bytes() == without


def test_the_app_and_its_versions_are_published(made: MadeProject, client: ClientFiles) -> None:
    made.install()
    (app,) = made.standin.rows("SELECT * FROM app WHERE name = 'vcdl'")
    assert (app["locality_scheduling"], app["fraction_done_exact"], app["deprecated"]) == (0, 1, 0)
    assert versions(made) == [(100, "", 0), (100, "vcdl_cuda", 0)]
    assert (made.path / "download" / client.name).read_bytes() == client.launcher
    assert (made.path / "download" / f"{client.name}.pyz").read_bytes() == client.zipapp


def test_uninstall_leaves_no_trace(made: MadeProject) -> None:
    before = made.contents()
    made.install(store_url="redis://:secret@127.0.0.1:6379")
    assert made.contents() != before
    uninstall(made)
    assert made.contents() == before
    assert not (made.path / "vcdl").exists()
    assert not (made.path / "apps" / "vcdl").exists()
    assert [row["name"] for row in made.standin.rows("SELECT name FROM app")] == ["fold"]
    assert made.standin.rows("SELECT * FROM app_version") == []


def test_the_preview_shows_each_difference_and_no_password_and_changes_nothing(made: MadeProject) -> None:
    made.edit(
        "config.xml", "<db_passwd></db_passwd>", "<db_passwd></db_passwd><replica_db_passwd>hush</replica_db_passwd>"
    )
    made.edit("config.xml", "<min_sendwork_interval>", "<db_passwd_old>hush</db_passwd_old><min_sendwork_interval>")
    before = made.contents()
    lines = list(preview(plan(made, InstallOptions(Path(sys.executable), store_url="redis://:hush@127.0.0.1"))))
    assert "+            <cmd>vcdl_assimilator -d 3</cmd>" in lines
    assert "-            <cmd>transitioner -d 2 --sleep_interval 5</cmd>" in lines
    assert any(line.startswith("new file: bin/vcdl_validate") for line in lines)
    assert any("new row in app_version: 1.00 x86_64-pc-linux-gnu__vcdl_cuda" in line for line in lines)
    assert not any("hush" in line for line in lines)
    assert made.contents() == before


def test_a_new_client_gets_the_next_version_and_the_old_is_no_longer_offered(
    made: MadeProject, client: ClientFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.install()
    new_client(monkeypatch, ClientFiles(b"#!/bin/sh\n", b"PK"))
    made.install()
    assert versions(made) == [(100, "", 1), (100, "vcdl_cuda", 1), (101, "", 0), (101, "vcdl_cuda", 0)]
    new_client(monkeypatch, client)
    made.install()  # back to the older one
    assert versions(made) == [(100, "", 0), (100, "vcdl_cuda", 0), (101, "", 1), (101, "vcdl_cuda", 1)]


def test_threads_make_a_multi_threaded_version_in_place_of_the_plain_one(made: MadeProject) -> None:
    made.install()
    made.install(threads=8)
    assert versions(made) == [(100, "", 1), (100, "vcdl_cuda", 0), (100, "vcdl_mt", 0)]
    assert plan(made).changes_nothing, "threads stay as they are when none are asked for"
    made.install(threads=1)
    assert versions(made) == [(100, "", 0), (100, "vcdl_cuda", 0), (100, "vcdl_mt", 1)]


def test_the_environment_is_secret_and_keeps_what_others_wrote(made: MadeProject) -> None:
    made.install(store_url="redis://:it's@127.0.0.1")
    path = made.path / "vcdl" / "environment"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text() + "OMP_NUM_THREADS=2\n")
    made.install()
    variables = read_environment(made.path)
    assert variables["VCDL_STORE_URL"] == "redis://:it's@127.0.0.1"
    assert variables["VCDL_PYTHON"] == sys.executable
    assert variables["OMP_NUM_THREADS"] == "2"
    shell = subprocess.run(
        ["sh", "-c", f". {shlex.quote(str(path))}; echo $VCDL_STORE_URL"], capture_output=True, text=True, check=True
    )
    assert shell.stdout == "redis://:it's@127.0.0.1\n"


def test_an_environment_that_was_opened_to_others_is_closed_by_the_next_install(made: MadeProject) -> None:
    made.install(store_url="redis://:hush@127.0.0.1")
    path = made.path / "vcdl" / "environment"
    path.chmod(0o644)
    assert made.install() == ["renewed vcdl/environment"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert plan(made).changes_nothing


def test_no_file_with_a_password_is_readable_by_others_that_was_not(made: MadeProject) -> None:
    made.edit(
        "config.xml", "<db_passwd></db_passwd>", "<db_passwd></db_passwd><replica_db_passwd>hush</replica_db_passwd>"
    )
    (made.path / "config.xml").chmod(0o640)
    old = os.umask(0)
    try:
        made.install(store_url="redis://:hush@127.0.0.1")
    finally:
        os.umask(old)
    assert readable_files_with("hush", made.path) == ["config.xml"], "BOINC's group reads it"
    assert (made.path / "config.xml").stat().st_mode & 0o777 == 0o640


def test_clients_can_fetch_what_an_operator_with_a_strict_umask_publishes(made: MadeProject) -> None:
    old = os.umask(0o077)
    try:
        made.install()
    finally:
        os.umask(old)
    published = [path for path in (made.path / "download").rglob("*") if path.is_file()]
    assert published
    assert [path.name for path in published if not path.stat().st_mode & stat.S_IROTH] == []


def test_killed_at_any_write_the_next_run_completes(made: MadeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    before = made.contents()
    for stop_at in range(1, WRITES + 1, 7):
        with monkeypatch.context() as killed:
            _die_at(killed, "write", stop_at)
            with pytest.raises(KeyboardInterrupt):
                made.install()
        made.install()
        assert plan(made).changes_nothing
        uninstall(made)
        assert made.contents() == before, f"killed at write {stop_at}"


def test_killed_on_the_way_out_the_next_run_completes(made: MadeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    before = made.contents()
    made.install()
    with monkeypatch.context() as killed:
        for stop_at in (1, 2, 3, 5):
            _die_at(killed, "delete", stop_at)
            with pytest.raises(KeyboardInterrupt):
                uninstall(made)
            killed.undo()
    uninstall(made)
    assert made.contents() == before


def _die_at(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Be killed at the so many-th call of a function of vcdl.boinc.project.files."""
    real, count = getattr(files, name), 0

    def dying(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr(files, name, dying)


def test_without_the_signing_key_it_says_what_to_sign_and_goes_on_with_signatures(made: MadeProject) -> None:
    key = made.path / "keys" / "code_sign_private"
    away = made.path.parent / "code_sign_private"
    key.rename(away)
    with pytest.raises(GridError, match=r"sign these files where it is.*vcdl_client_") as refused:
        made.install()
    for name in str(refused.value).rpartition(": ")[2].split():
        (made.path / f"{name}.sig").write_text("signature\n")
    away.rename(key)  # the stand-in of update_versions knows no .sig files
    made.install()
    assert versions(made) == [(100, "", 0), (100, "vcdl_cuda", 0)]


def test_after_a_renewal_of_the_signing_key_the_same_client_is_published_again(made: MadeProject) -> None:
    made.install()
    keys, renewed = made.path / "keys", SigningKey.generate()
    renewed.save(keys / "code_sign_private")
    renewed.publish(keys / "code_sign_public")
    assert "is no longer offered" in " ".join(made.install())
    rows = made.standin.rows("SELECT version_num, deprecated FROM app_version ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [(100, 1), (100, 1), (101, 0), (101, 0)]
    assert made.install() == []


def test_tasks_that_could_not_be_uploaded_any_more_are_not_given_up_silently(made: MadeProject) -> None:
    app = made.standin.insert("app", create_time=1, name="fold", user_friendly_name="Fold")
    made.standin.insert(
        "result", create_time=1, name="r", appid=app, server_state=4, xml_doc_in=b"<file_info>\n</file_info>",
    )  # fmt: skip
    with pytest.raises(GridError, match="1 tasks of other apps were made while upload certificates were off"):
        made.install()
    assert made.install(force=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [("bin/create_work", "bin/ lacks create_work"), ("keys/upload_private", "upload_private is missing")],
)
def test_a_project_that_is_not_whole_is_refused(made: MadeProject, name: str, message: str) -> None:
    (made.path / name).unlink()
    before = made.contents()
    with pytest.raises(GridError, match=message):
        made.install()
    assert made.contents() == before


def test_open_workunits_are_cancelled_only_by_force(made: MadeProject) -> None:
    made.install()
    (app,) = made.standin.rows("SELECT id FROM app WHERE name = 'vcdl'")
    unit = made.standin.insert("workunit", create_time=1, name="j_e0001_s000_a0_v000000", appid=app["id"])
    made.standin.insert("result", create_time=1, name="r", workunitid=unit, appid=app["id"], server_state=2)
    with pytest.raises(GridError, match="1 workunits are open"):
        uninstall(made)
    said = uninstall(made, force=True)
    assert any("stays in the database, deprecated" in line for line in said)
    (row,) = made.standin.rows("SELECT error_mask, assimilate_state FROM workunit")
    assert row == {"error_mask": 16, "assimilate_state": 2}
    assert [each["server_state"] for each in made.standin.rows("SELECT server_state FROM result")] == [5]
    assert [each["deprecated"] for each in made.standin.rows("SELECT deprecated FROM app WHERE name = 'vcdl'")] == [1]
    assert versions(made) == [(100, "", 1), (100, "vcdl_cuda", 1)]
    made.install()
    assert [each["deprecated"] for each in made.standin.rows("SELECT deprecated FROM app WHERE name = 'vcdl'")] == [0]


def test_an_install_after_an_uninstall_lays_the_files_of_a_kept_version_out_again(
    made: MadeProject, client: ClientFiles
) -> None:
    """A version that a host had a task of keeps its row, and update_versions passes over it."""
    made.install()
    laid_out = _client_files(made, client)
    (version,) = made.standin.rows("SELECT id FROM app_version WHERE plan_class = ''")
    made.standin.insert("host_app_version", host_id=1, app_version_id=version["id"])
    uninstall(made)
    assert _client_files(made, client) == {}
    said = made.install()
    assert _client_files(made, client) == laid_out
    assert f"wrote download/{client.name}" in said
    assert versions(made) == [(100, "", 0), (100, "vcdl_cuda", 0)]
    assert plan(made).changes_nothing
    lost = made.path / "download" / f"{client.name}.pyz"
    lost.unlink()
    assert made.install() == [f"wrote download/{client.name}.pyz"]


def _client_files(made: MadeProject, client: ClientFiles) -> dict[str, tuple[int, bytes]]:
    return {name: content for name, content in made.contents().items() if client.name in name}


def test_rows_and_uploads_go_too_if_they_are_to_go(made: MadeProject) -> None:
    made.install()
    before = {table: made.standin.rows(f"SELECT * FROM {table}") for table in ("host", "user")}
    (app,) = made.standin.rows("SELECT id FROM app WHERE name = 'vcdl'")
    (version, *_) = made.standin.rows("SELECT id FROM app_version")
    name = "j_e0001_s000_a0_v000000"
    unit = made.standin.insert("workunit", create_time=1, name=name, appid=app["id"])
    for number, its in ((unit, app["id"]), (unit + 1, app["id"] + 1)):
        made.standin.insert("result", create_time=1, name=f"{name}_{its}", workunitid=number, appid=its, server_state=5)
    made.standin.insert("host_app_version", host_id=1, app_version_id=version["id"])
    for file in ("vcdl_a.npz", "of_another_app"):
        text = f"<delete_file_info>{file}</delete_file_info>\n"
        made.standin.insert("msg_to_host", create_time=1, hostid=1, variety="delete_file", handled=0, xml=text)
    folder = made.path / "upload" / "3f"
    folder.mkdir(parents=True)
    for file in (f"{name}_0_r123_0", "vcdl_doctor_7", "fold_17_0_r123_0"):
        (folder / file).touch()
    uninstall(made, force=True, delete_rows=True)
    assert [path.name for path in folder.iterdir()] == ["fold_17_0_r123_0"]
    for table in ("app_version", "host_app_version", "workunit"):
        assert made.standin.rows(f"SELECT * FROM {table}") == []
    assert [row["appid"] for row in made.standin.rows("SELECT appid FROM result")] == [app["id"] + 1]
    assert len(made.standin.rows("SELECT xml FROM msg_to_host")) == 1, "the other app's"
    assert [row["name"] for row in made.standin.rows("SELECT name FROM app")] == ["fold"]
    assert before == {table: made.standin.rows(f"SELECT * FROM {table}") for table in before}


def test_uninstall_says_what_stays_on_clients_that_nobody_will_tell(made: MadeProject) -> None:
    made.install()
    for host, name in ((1, "vcdl_a.npz"), (1, "vcdl_b.npz"), (2, "vcdl_a.npz"), (3, "of_another_app")):
        text = f"<delete_file_info>{name}</delete_file_info>\n"
        made.standin.insert("msg_to_host", create_time=1, hostid=host, variety="delete_file", handled=0, xml=text)
    preview = plan_removal(made.project, made.database, force=False, delete_runs=False).preview()
    assert any(line.startswith("leave files of ours on 2 clients that have not been asked yet") for line in preview)
    assert any("left files of VCDL on clients" in line for line in uninstall(made))


def test_trained_models_stay_unless_they_are_to_go(made: MadeProject) -> None:
    made.install()
    run = made.project.run_folder("mnist").path
    run.mkdir(parents=True)
    (run / "job.yaml").write_text("name: mnist\n")
    run.with_name(".service").mkdir()  # that of `vcdl serve`, which is no job
    assert any("kept vcdl/runs with 1 jobs" in line for line in uninstall(made))
    assert (run / "job.yaml").exists()
    made.install()
    uninstall(made, delete_runs=True)
    assert not (made.path / "vcdl").exists()


def test_while_our_daemons_run_nothing_is_taken_out(made: MadeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    made.install()
    folder = made.path / f"pid_{made.project.host}"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()", "vcdl.boinc.daemons.assimilator"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        (folder / "vcdl_assimilator.pid").write_text(f"{daemon.pid}\n")
        (folder / "vcdl_evaluator.pid").write_text(f"{os.getpid()}\n")  # the number is another program's by now
        with pytest.raises(GridError, match="vcdl_assimilator still run: bin/stop first"):
            uninstall(made)
        preview = list(plan_removal(made.project, made.database, force=False, delete_runs=False).preview())
        assert preview[0].startswith("not possible now: vcdl_assimilator still run: bin/stop first")
        assert "restore config.xml" in preview
        made.project.stop_daemons.touch()
        monkeypatch.setattr(processes, "_ENDING_S", 0.1)
        with pytest.raises(GridError, match="vcdl_assimilator still run: bin/stop has asked them to end"):
            uninstall(made)
        daemon.kill()
    assert uninstall(made)
    assert not list(folder.iterdir())


def test_a_launcher_that_cannot_look_at_an_upload_never_calls_it_invalid(made: MadeProject) -> None:
    made.install()
    launcher = made.path / "bin" / "vcdl_validate"
    assert subprocess.run([launcher, "--no-such-option"], capture_output=True, check=False).returncode == 3
    made.edit("vcdl/environment", sys.executable, "/no/such/python")
    assert subprocess.run([launcher, "file"], capture_output=True, check=False).returncode == 3
    (made.path / "vcdl" / "environment").unlink()
    assert subprocess.run([launcher, "file"], capture_output=True, check=False).returncode == 3


def test_a_version_number_is_read_as_update_versions_reads_it(tmp_path: Path) -> None:
    client = ClientFiles(b"a", b"b")
    assert app_version.number_for(tmp_path, client, []) == 100
    for name in ("1.07", "3", "2.beta", ".new"):
        (tmp_path / "vcdl" / name).mkdir(parents=True)
    assert app_version.number_for(tmp_path, client, []) == 108
