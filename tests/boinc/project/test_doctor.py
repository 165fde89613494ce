"""The doctor sees each fault and names its cure."""

import ctypes
import errno
import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.boinc.project.made_project import MadeProject
from tests.boinc.standin.server import StandinServer
from tests.boinc.standin.signing import SigningKey
from vcdl.boinc.daemons.checker import Checkers
from vcdl.boinc.doctor import (
    app,
    daemons,
    examine,
    folders,
    installed_files,
    machine,
    mysql,
    runtime,
    secrets,
    uploads,
    web,
)
from vcdl.boinc.doctor.asking import Answer, NoAnswer
from vcdl.boinc.doctor.finding import Finding, Level
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.grid.environment import read_environment
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.project.app_version import ClientFiles
from vcdl.boinc.project.server_config import ServerConfig
from vcdl.cli import exit_code_of
from vcdl.errors import ExitCode, GridError
from vcdl.files.shipped import shipped_folder

pytestmark = pytest.mark.boinc

_IPC_CREAT, _IPC_RMID = 0o1000, 0
_ANSWERS: tuple[tuple[str | NoAnswer, Callable[[Installation], Iterator[Finding]], str, str], ...] = (
    (NoAnswer("HTTP 500 Internal Server Error", 500), web.check_attach_page, "no client can attach", "usermod -a -G"),
    (NoAnswer("HTTP 404 Not Found", 404), web.check_master_page, "no client can attach", "sites-enabled"),
    (NoAnswer("HTTP 403 Forbidden", 403), web.check_master_page, "no client can attach", "chmod a+r"),
    (
        NoAnswer("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"),
        web.check_scheduler,
        "self-signed",
        "certbot",
    ),
    ("<html></html>", web.check_master_page, "names no scheduler", "sample_index.php"),
    ("<?php echo 1;", web.check_master_page, "being run by PHP", "libapache2-mod-php"),
    ("<project_config><name>x</name><web_stopped>1</web_stopped>", web.check_attach_page, "are stopped", "rm "),
    ("Database error", web.check_attach_page, "answers 'Database error'", "error log"),
    ("\x7fELF\x02\x01<scheduler_reply>%s", web.check_scheduler, "answers", "a2enmod cgi"),
    ("\x7fELF\x02\x01<data_server_reply>%s", uploads.check_upload_handler, "answers", "a2enmod cgi"),
)
"""What the web server answers, whom, what doctor says and what it advises."""


def found(made: MadeProject, check: Callable[[Installation], Iterator[Finding]]) -> list[Finding]:
    config, environment = ServerConfig.at(made.path), read_environment(made.path)
    return list(check(Installation(made.project, config, made.database, environment)))


def failure(made: MadeProject, check: Callable[[Installation], Iterator[Finding]]) -> Finding:
    """The one that failed; it must name a cure."""
    (failed,) = (finding for finding in found(made, check) if finding.level == Level.FAILED)
    assert failed.cure
    return failed


def is_well(made: MadeProject, check: Callable[[Installation], Iterator[Finding]]) -> bool:
    findings = found(made, check)
    return bool(findings) and all(finding.level == Level.OK for finding in findings)


def test_another_host_name_is_seen(made: MadeProject) -> None:
    assert is_well(made, machine.check_host_name)
    here = made.project.host
    made.edit("config.xml", f"<host>{here}</host>", "<host>elsewhere</host>")
    cure = failure(made, machine.check_host_name).cure
    assert f"write <host>{here}</host>, and log_{here} in <log_dir>; mv log_elsewhere log_{here}" in cure


def test_another_user_is_seen(made: MadeProject) -> None:
    assert is_well(made, machine.check_user)
    made.edit("config.xml", "<long_name>", "<project_user_name>nobody-else</project_user_name><long_name>")
    assert "config.xml wants nobody-else" in failure(made, machine.check_user).what


def test_a_full_disk_is_seen(made: MadeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "least_bytes", lambda _: 1 << 60)
    assert "delete old jobs" in failure(made, machine.check_disk_space).cure


def test_a_disk_of_the_runs_alone_is_looked_at(made: MadeProject) -> None:
    made.project.runs_folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        made.project.runs_folder.symlink_to(elsewhere)
        assert any("for vcdl/runs" in finding.what for finding in found(made, machine.check_disk_space))


def test_folders_closed_to_the_web_server_are_seen(made: MadeProject) -> None:
    made.edit("config.xml", "<long_name>", "<httpd_user>nobody</httpd_user><long_name>")
    both = (made.path / "upload", made.path / f"log_{made.project.host}")
    for folder in both:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    assert is_well(made, folders.check_folder_rights)
    both[0].chmod(0o755)
    seen = failure(made, folders.check_folder_rights)
    assert seen.what == "the web server (nobody) may not write in upload/"
    assert seen.cure.startswith("usermod -a -G ")
    assert " nobody; chgrp -R " in seen.cure
    assert f"chmod 2770 {both[0]}" in seen.cure


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_an_upload_folder_that_file_deleter_cannot_empty_is_seen(made: MadeProject) -> None:
    """Files of the project's user in a folder of the web server's group, as `chgrp www-data upload` leaves it."""
    owner, web = pwd.getpwnam("nobody"), pwd.getpwnam("daemon")
    made.edit("config.xml", "<long_name>", f"<httpd_user>{web.pw_name}</httpd_user><long_name>")
    os.chown(made.path / "config.xml", owner.pw_uid, owner.pw_gid)
    upload = made.path / "upload"
    for folder in (upload, made.path / f"log_{made.project.host}"):
        folder.mkdir(exist_ok=True)
        os.chown(folder, owner.pw_uid, web.pw_gid)
        folder.chmod(0o2770)
    findings = found(made, folders.check_folder_rights)
    assert [finding.level for finding in findings] == [Level.FAILED, Level.OK], "nothing is deleted in the log folder"
    assert "upload/ has the group daemon" in findings[0].what
    os.chown(upload, owner.pw_uid, owner.pw_gid)
    upload.chmod(0o2777)  # as if the web server's user were a member of the project's group
    assert found(made, folders.check_folder_rights)[0].level == Level.OK


def test_an_upload_key_that_the_scheduler_may_not_read_is_seen(made: MadeProject) -> None:
    """It signs second copies itself, as the web server's user."""
    made.edit("config.xml", "<long_name>", "<httpd_user>nobody</httpd_user><long_name>")
    key = made.path / "keys" / "upload_private"
    key.parent.chmod(0o755)
    key.chmod(0o644)
    assert is_well(made, folders.check_upload_key)
    key.chmod(0o600)
    seen = failure(made, folders.check_upload_key)
    assert seen.what.startswith("the web server (nobody) may not read keys/upload_private: ")
    assert seen.cure.endswith(f"chmod 640 {key}")
    key.chmod(0o644)
    key.parent.chmod(0o700)
    assert "may not read" in failure(made, folders.check_upload_key).what


def test_a_folder_that_the_web_server_cannot_enter_is_seen(made: MadeProject) -> None:
    made.edit("config.xml", "<long_name>", "<httpd_user>nobody</httpd_user><long_name>")
    seen = failure(made, folders.check_downloads_readable)  # pytest's own folder is private
    assert seen.cure.startswith("chmod a+x /")
    made.edit("config.xml", "<httpd_user>nobody<", f"<httpd_user>{pwd.getpwuid(os.geteuid()).pw_name}<")
    assert is_well(made, folders.check_downloads_readable)


@pytest.mark.parametrize("name", ["stop_daemons", "stop_sched"])
def test_stop_files_are_seen(made: MadeProject, name: str) -> None:
    assert is_well(made, folders.check_stop_files)
    (made.path / name).touch()
    assert failure(made, folders.check_stop_files).what.startswith(name)


def test_an_installation_that_was_changed_is_seen(made: MadeProject) -> None:
    assert "not installed" in failure(made, installed_files.check_installed_files).what
    made.install()
    (shipped_folder("boinc_project") / "bin" / "__pycache__").mkdir(exist_ok=True)  # of a test that imports a launcher
    assert is_well(made, installed_files.check_installed_files)
    made.edit("config.xml", "<cmd>vcdl_evaluator -d 3</cmd>", "<cmd>vcdl_evaluator -d 1</cmd>")
    (made.path / "bin" / "vcdl_validate").chmod(0o644)
    (made.path / "vcdl" / "weights_key.pem").unlink()
    seen = failure(made, installed_files.check_installed_files)
    assert seen.what == "not as install left them: config.xml, bin/vcdl_validate, vcdl/weights_key.pem"
    assert seen.cure.startswith("vcdl project install --project-dir")


def test_upload_certificates_that_are_off_or_have_no_key_are_seen(made: MadeProject) -> None:
    assert "anybody may upload anything" in failure(made, installed_files.check_upload_certificates).what
    made.install()
    assert is_well(made, installed_files.check_upload_certificates)
    (made.path / "keys" / "upload_private").unlink()
    assert "upload_private missing" in failure(made, installed_files.check_upload_certificates).what


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("<output_template><result><a/>\n</result></output_template>", "no line break after <result>"),
        ("<output_template>", "not well-formed"),
    ],
)
def test_a_template_that_boinc_misreads_is_seen(made: MadeProject, template: str, reason: str) -> None:
    assert is_well(made, installed_files.check_templates)
    (made.path / "templates" / "vcdl_out_1.xml").write_text(template)
    assert failure(made, installed_files.check_templates).what == f"vcdl_out_1.xml: {reason}"


def test_a_template_that_was_lost_and_is_named_by_open_workunits_is_seen(made: MadeProject) -> None:
    assert is_well(made, installed_files.check_templates)
    made.standin.insert("workunit", name="w", result_template_file="templates/vcdl_out_9.xml")
    failed = failure(made, installed_files.check_templates)
    assert "vcdl_out_9.xml: missing" in failed.what
    assert "from the backup" in failed.cure


def test_an_old_database_is_seen(made: MadeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mysql._OLDEST, "MariaDB", (99, 0))
    assert "SKIP LOCKED" in failure(made, mysql.check_database).what
    made.database.execute("ALTER TABLE msg_to_host RENAME COLUMN handled TO treated")
    try:
        assert failure(made, mysql.check_columns).what == "missing: msg_to_host.handled"
    finally:
        made.database.execute("ALTER TABLE msg_to_host RENAME COLUMN treated TO handled")


def test_a_clock_that_is_wrong_is_seen(made: MadeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9)
    assert "NTP" in failure(made, mysql.check_clock).cure


def test_a_database_that_does_not_answer_is_one_failure(made: MadeProject) -> None:
    made.install()
    made.edit("vcdl/environment", f"VCDL_PYTHON={sys.executable}", "VCDL_PYTHON=/no/python")
    made.edit("config.xml", "<db_name>vcdl</db_name>", "<db_name>nowhere</db_name>")
    findings = {finding.check: finding for finding in examine(made.path)}
    assert findings["database"].level == Level.FAILED
    for check in ("columns", "clock", "app", "app version"):
        assert findings[check].what == "not checked, as the database did not answer"


def test_an_app_that_is_missing_or_set_otherwise_is_seen(made: MadeProject) -> None:
    assert "no app vcdl" in failure(made, app.check_app).what
    assert "none is offered" in failure(made, app.check_app_version).what
    made.install()
    assert is_well(made, app.check_app)
    made.database.execute("UPDATE app SET locality_scheduling = 1")
    assert failure(made, app.check_app).what == "vcdl: locality_scheduling is 1"


def test_a_client_file_that_was_changed_or_lost_is_seen(made: MadeProject, client: ClientFiles) -> None:
    made.install()
    assert is_well(made, app.check_app_version)
    path = made.path / "download" / client.name
    path.write_bytes(client.launcher.replace(b"exec", b"EXEC"))
    first, second = (finding.what for finding in found(made, app.check_app_version))
    assert first.startswith("1.00 x86_64-pc-linux-gnu: ")
    assert "was changed, or was not signed" in first
    assert "(vcdl_cuda)" in second
    path.unlink()
    assert "is missing" in found(made, app.check_app_version)[0].what


def test_a_python_without_our_libraries_is_seen(made: MadeProject, tmp_path: Path) -> None:
    assert "names no VCDL_PYTHON" in failure(made, runtime.check_python).what
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'keras'\" >&2\nexit 1\n")
    python.chmod(0o755)
    (made.path / "vcdl").mkdir()
    (made.path / "vcdl" / "environment").write_text(f"VCDL_PYTHON={python}\n")
    seen = failure(made, runtime.check_python)
    assert seen.what == f"{python}: ModuleNotFoundError: No module named 'keras'"
    python.unlink()
    assert "cannot be run" in failure(made, runtime.check_python).what


def test_a_machine_that_is_too_busy_to_tell_is_not_told_to_install_anything(
    made: MadeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 60\n")
    python.chmod(0o755)
    (made.path / "vcdl").mkdir()
    (made.path / "vcdl" / "environment").write_text(f"VCDL_PYTHON={python}\n")
    monkeypatch.setattr(runtime, "_IMPORT_S", 0.1)
    (seen,) = found(made, runtime.check_python)
    assert "took more than" in seen.what
    assert "install" not in f"{seen.cure}"


def test_a_store_that_is_away_is_seen_and_its_password_is_not_shown(made: MadeProject) -> None:
    assert is_well(made, runtime.check_weight_store)
    (made.path / "vcdl").mkdir()
    (made.path / "vcdl" / "environment").write_text(f"VCDL_STORE_URL=redis://:hush@127.0.0.1:{_free_port()}\n")
    seen = failure(made, runtime.check_weight_store)
    assert "cannot be reached" in seen.what
    assert "hush" not in f"{seen}"


def test_a_store_that_is_open_to_the_network_is_warned_of(made: MadeProject) -> None:
    (made.path / "vcdl").mkdir()
    environment = made.path / "vcdl" / "environment"
    environment.write_text(f"VCDL_STORE_URL=redis://:hush@0.0.0.0:{_free_port()}\n")
    tls, away = found(made, runtime.check_weight_store)
    assert (tls.level, away.level) == (Level.WARNING, Level.FAILED)
    assert "without TLS" in tls.what
    assert "rediss://" in tls.cure
    assert "hush" not in f"{tls}"


def test_secrets_that_others_may_read_are_seen(made: MadeProject) -> None:
    made.install()
    names = ("config.xml", "keys/upload_private", "vcdl/environment", "vcdl/weights_key.pem")
    for each in names:
        (made.path / each).chmod(0o640)  # BOINC's group, with the web server in it, must read some
    key = made.path / "keys" / "code_sign_private"
    key.chmod(0o600)
    assert is_well(made, secrets.check_secret_files)
    for name in names:
        (made.path / name).chmod(0o644)
        (seen,) = found(made, secrets.check_secret_files)
        assert seen.level == Level.WARNING
        assert seen.what.startswith(f"every user of this machine may read {name}: ")
        assert seen.cure == f"chmod o-rwx {made.path / name}"
        (made.path / name).chmod(0o640)
    for mode, who in ((0o644, "every user"), (0o640, "the group, and so the web server,")):
        key.chmod(mode)
        seen = failure(made, secrets.check_secret_files)
        assert seen.what.startswith(f"{who} of this machine may read keys/code_sign_private: ")
        assert seen.cure == f"chmod 600 {key}"


def test_daemons_that_are_down_or_disabled_are_seen(made: MadeProject) -> None:
    made.install()
    assert "feeder, transitioner" in failure(made, daemons.check_daemons).what
    for daemon in ServerConfig.at(made.path).daemons[1:]:
        made.edit("config.xml", f"<cmd>{daemon.command}</cmd>", f"<disabled>1</disabled><cmd>{daemon.command}</cmd>")
    folder = made.path / f"pid_{made.project.host}"
    folder.mkdir()
    with subprocess.Popen(
        ["sh", "-c", "echo; read line", "feeder"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as feeder:
        assert feeder.stdout is not None
        feeder.stdout.readline()
        (folder / "feeder.pid").write_text(f"{feeder.pid}\n")
        findings = found(made, daemons.check_daemons)
        feeder.kill()
    assert findings[-1].what == "1 run: feeder"
    assert {finding.level for finding in findings[:-1]} == {Level.WARNING}


def test_a_checker_that_does_not_answer_is_seen(made: MadeProject) -> None:
    assert found(made, daemons.check_checker) == [], "not installed"
    made.install()
    (seen,) = found(made, daemons.check_checker)
    assert (seen.level, "vcdl_checker.log" in seen.cure) == (Level.WARNING, True)
    with closing(Checkers(BoincProject.at(made.path))) as checkers:
        checkers.run_once()
        assert is_well(made, daemons.check_checker)


def test_the_feeders_shared_memory_is_looked_for(made: MadeProject) -> None:
    key = 0x7A110000 | os.getpid() & 0xFFFF
    made.edit("config.xml", "0x1111beef", f"{key:#x}")
    assert failure(made, daemons.check_shared_memory).cure.startswith("bin/start")
    libc = ctypes.CDLL(None)
    segment = libc.shmget(key, 4096, _IPC_CREAT | 0o600)
    try:
        assert is_well(made, daemons.check_shared_memory)
    finally:
        libc.shmctl(segment, _IPC_RMID, None)


def test_a_web_server_that_serves_us_is_well_and_one_that_is_down_is_seen(made: MadeProject) -> None:
    made.install()
    (made.path / "upload").mkdir(exist_ok=True)
    checks = (
        web.check_master_page,
        web.check_attach_page,
        web.check_scheduler,
        web.check_downloads,
        uploads.check_upload_handler,
        uploads.check_upload,
    )
    with StandinServer(made.standin):
        for check in checks:
            assert is_well(made, check), found(made, check)
        assert [path.name for path in (made.path / "upload").iterdir()] == ["vcdl_mark"], "what doctor uploads is gone"
        made.edit("html/user/schedulers.txt", "/cgi", "/file_upload_handler")
        assert "let the web server run cgi-bin/cgi there" in failure(made, web.check_scheduler).cure
        assert "but html/user/schedulers.txt" in failure(made, web.check_master_page).what
        made.edit("config.xml", "download</download_url>", "elsewhere</download_url>")
        assert "HTTP 404" in failure(made, web.check_downloads).what
    for check in checks[:-1]:
        assert "refused" in failure(made, check).what


def test_an_address_that_clients_call_invalid_is_seen(made: MadeProject) -> None:
    made.edit("config.xml", "<master_url>http://127.0.0.1", "<master_url>http://server")
    assert "Invalid URL" in failure(made, web.check_master_page).what


def test_what_is_wrong_with_an_answer_is_told(made: MadeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    said: str | NoAnswer = ""

    def ask(_url: str, _body: bytes | None = None) -> Answer:
        if isinstance(said, NoAnswer):
            raise said
        return Answer(said, "")

    monkeypatch.setattr(web, "ask", ask)
    monkeypatch.setattr(uploads, "ask", ask)
    for answer, check, what, cure in _ANSWERS:
        said = answer
        seen = next(finding for finding in found(made, check) if finding.level == Level.FAILED)
        assert what in seen.what
        assert cure in seen.cure


def test_an_upload_that_this_user_cannot_delete_is_seen(made: MadeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    made.install()
    (made.path / "upload").mkdir(exist_ok=True)

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with StandinServer(made.standin), monkeypatch.context() as unwritable:
        unwritable.setattr(Path, "unlink", refuse)
        seen = failure(made, uploads.check_upload)
    assert "this user cannot delete it (Permission denied)" in seen.what
    assert "chmod 2770" in seen.cure


def test_tasks_that_another_upload_key_signed_are_seen(made: MadeProject) -> None:
    made.install()
    assert is_well(made, uploads.check_certificates)
    (app_row,) = made.standin.rows("SELECT id FROM app WHERE name = 'vcdl'")
    key = made.standin.upload_key
    for number in range(2):
        signature = key.sign(f"<name>u{number}</name><max_nbytes>100</max_nbytes>".encode())
        description = (
            f"<file_info>\n<name>u{number}</name>\n<max_nbytes>100</max_nbytes>\n"
            f"<xml_signature>\n{signature}</xml_signature>\n</file_info>\n"
        )
        made.standin.insert("result", name=f"r{number}", appid=app_row["id"], server_state=4, xml_doc_in=description)
    assert is_well(made, uploads.check_certificates)
    SigningKey.generate().publish(made.project.upload_public)
    assert failure(made, uploads.check_certificates).what.startswith("2 of 2 tasks that are out")


def test_an_upload_folder_that_is_another_one_is_seen(made: MadeProject) -> None:
    assert is_well(made, uploads.check_upload_folders), "nothing is installed"
    made.install()
    assert is_well(made, uploads.check_upload_folders)
    made.project.upload_mark.unlink()
    with pytest.raises(GridError, match="is another one mounted over it"):
        found(made, uploads.check_upload_folders)


def test_an_upload_folder_that_is_closed_to_this_user_is_seen(
    made: MadeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.install()
    (made.path / "upload" / "3f").mkdir(parents=True)
    assert is_well(made, uploads.check_upload_folders)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "1 of 1 folders in upload/, such as 3f/" in failure(made, uploads.check_upload_folders).what


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_an_upload_folder_that_the_web_server_cannot_write_in_is_seen(made: MadeProject) -> None:
    """BOINC's upload handler takes it for a second upload, answers that all went well, and the upload is lost."""
    made.install()
    ours, theirs = made.path / "upload" / "2cb", made.path / "upload" / "3f"
    for folder in (ours, theirs):
        folder.mkdir(parents=True, mode=0o755)
    assert is_well(made, uploads.check_upload_folders), "the web server may run as this user"
    os.chown(theirs, 1, -1)
    seen = failure(made, uploads.check_upload_folders)
    assert seen.what.startswith("1 of 2 folders in upload/, such as 2cb/")
    assert seen.cure == f"chmod g+rwx {ours}"
    ours.chmod(0o775)
    assert is_well(made, uploads.check_upload_folders)


def test_pages_that_are_closed_to_the_web_server_are_seen(made: MadeProject) -> None:
    made.edit("config.xml", "<long_name>", "<httpd_user>nobody</httpd_user><long_name>")
    for each in ("inc", "languages", "cache"):
        folder = made.path / "html" / each
        folder.mkdir()
        folder.chmod(0o777)
    assert is_well(made, folders.check_page_rights)
    for each in ("inc", "languages", "cache"):
        (made.path / "html" / each).chmod(0o770)
        seen = failure(made, folders.check_page_rights)
        assert seen.what.startswith(f"html/{each} closed to the web server (nobody)")
        assert "usermod -a -G" in seen.cure
        (made.path / "html" / each).chmod(0o777)


def test_the_command_ends_with_7_when_something_failed(made: MadeProject, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["project", "doctor", "--project-dir", str(made.path), "--json"]) == ExitCode.SERVICE
    findings = json.loads(capsys.readouterr().out)
    assert {"check": "stop files", "level": "ok", "what": "none", "cure": ""} in findings
    assert exit_code_of(["project", "doctor", "--project-dir", str(made.path / "bin")]) == ExitCode.SERVICE
    said = capsys.readouterr().out
    assert said.startswith("failed   project: ")
    assert "\n         → " in said


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
