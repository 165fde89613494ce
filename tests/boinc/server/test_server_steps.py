"""The plan of a server: steps that are done once, and the files that they write. No machine is needed."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.store_servers import needs
from vcdl.boinc.server import machine_steps, project_steps, system, texts, upgrade
from vcdl.boinc.server.settings import ServerSettings
from vcdl.boinc.server.steps import ServerStep, always, carry_out
from vcdl.boinc.server.upgrade import link_packages
from vcdl.errors import ServerError

SETTINGS = ServerSettings("lab", "train.example.org", "ada@example.org", Path("/opt/boinc"), tls="self-signed")
PROJECT_PART = 'Alias /lab /p/html/user\n# a note\n<Directory "/p/keys">\n    Require all denied\n</Directory>\n'


class Killed(BaseException):
    pass


def steps(done: set[str], kill_in: str = "") -> list[ServerStep]:
    def make(name: str) -> None:
        if name == kill_in:
            raise Killed
        done.add(name)

    return [ServerStep(name, lambda name=name: name in done, lambda name=name: make(name)) for name in "abc"]  # type: ignore[misc]


@pytest.mark.parametrize("kill_in", "abc")
def test_a_killed_run_is_completed_by_the_next(kill_in: str) -> None:
    done: set[str] = set()
    with pytest.raises(Killed):
        list(carry_out(steps(done, kill_in)))
    lines = list(carry_out(steps(done)))
    assert done == set("abc")
    assert lines == [f"unchanged {name}" if name < kill_in else f"done      {name} (0 s)" for name in "abc"]


def test_a_dry_run_changes_nothing_and_a_step_that_is_not_so_afterwards_is_an_error() -> None:
    done: set[str] = set()
    assert [line[:5] for line in carry_out(steps(done), dry_run=True)] == ["to do"] * 3
    assert done == set()
    with pytest.raises(ServerError, match="its check still fails"):
        list(carry_out([ServerStep("a", lambda: False, lambda: None)]))


def test_settings_are_read_as_they_were_written() -> None:
    settings = replace(SETTINGS, python_before=Path("/opt/old/bin/python"))
    assert ServerSettings.from_json(settings.to_json(), "x") == settings
    with pytest.raises(ServerError, match="x cannot be read"):
        ServerSettings.from_json(b"{", "x")


@pytest.mark.parametrize(
    ("wish", "value"),
    [("name", "../etc"), ("host", "server"), ("email", "ada"), ("tls", "yes"), ("title", "<b>"), ("host", "a.b;c")],
)
def test_what_would_not_work_is_refused(wish: str, value: str) -> None:
    with pytest.raises(ServerError, match=f"--{wish}"):
        SETTINGS.with_changes({wish: value}).check()


def test_a_name_is_added_to_the_file_itself_which_a_container_has_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, other_name = tmp_path / "hosts", tmp_path / "mounted"
    hosts.write_text("127.0.0.1 localhost")
    other_name.hardlink_to(hosts)
    monkeypatch.setattr(machine_steps, "_HOSTS", hosts)
    monkeypatch.setattr(texts, "packages", lambda *_, **__: [])
    (step,) = (step for step in machine_steps.machine_steps(SETTINGS, with_web=False) if "for itself" in step.what)
    assert [line[:7] for _ in range(2) for line in carry_out([step])] == ["done   ", "unchang"]
    assert other_name.read_text() == f"127.0.0.1 localhost\n127.0.0.1 {SETTINGS.host}\n"


def test_a_tree_that_was_moved_since_it_was_built_is_named(tmp_path: Path) -> None:
    for name in ("tools/make_project", "sched/feeder"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "tools/boinc_path_config.py").write_text('TOP_BUILD_DIR = "/built/here"\n')
    step = next(project_steps.project_steps(replace(SETTINGS, boinc=tmp_path, user="nobody-here")))
    with pytest.raises(ServerError, match="was built as /built/here"):
        list(carry_out([step]))


def test_http_leads_to_https_once_there_is_a_certificate() -> None:
    before, after = (texts.site(SETTINGS, PROJECT_PART, with_tls=there, with_web=True) for there in (False, True))
    assert "*:443" not in before
    http, https = after.split("</VirtualHost>", 1)
    assert "https://train.example.org%{REQUEST_URI}" in http
    assert "Alias" not in http
    assert "Alias /lab /p/html/user" in https
    assert "ProxyPass" not in before + http, "tokens never travel in the clear"
    assert 'ProxyPass "http://127.0.0.1:8630/lab_vcdl/"' in https


def test_the_project_user_cannot_have_apache_run_programs_as_root() -> None:
    with pytest.raises(ServerError, match="CustomLog"):
        texts.site(SETTINGS, PROJECT_PART + 'CustomLog "|/tmp/evil" common\n', with_tls=False, with_web=True)


def test_a_backup_has_a_timer_and_is_not_made_at_once() -> None:
    settings = replace(SETTINGS, backup_to="/srv/backup")
    assert "lab-backup.timer" in texts.to_start(settings, with_web=True)
    assert "lab-backup.service" not in texts.to_start(settings, with_web=True)
    assert "lab-backup.timer" not in texts.to_start(SETTINGS, with_web=True)


@pytest.mark.process
def test_cloud_init_finds_no_fault_with_the_user_data() -> None:
    needs("cloud-init")
    command = ["cloud-init", "schema", "--config-file", str(ROOT / "deploy/cloud-init.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Valid" in done.stdout, done.stdout + done.stderr


def test_keys_of_age_and_of_gpg_are_not_mixed() -> None:
    assert texts.packages(replace(SETTINGS, backup_for="age1a,age1b"), with_web=True)[-1] == "age"
    with pytest.raises(ServerError, match="of age, or of gpg"):
        replace(SETTINGS, backup_for="age1a,ada@example.org").check()


def test_a_killed_upgrade_that_had_switched_keeps_the_version_before() -> None:
    new = Path("/opt/vcdl-2/bin/python")
    once = upgrade.with_new_version(SETTINGS, new, SETTINGS.boinc)
    assert once.python_before == SETTINGS.python
    assert upgrade.with_new_version(once, new, SETTINGS.boinc) == once


@pytest.mark.parametrize("switches", [True, False])
def test_an_upgrade_that_does_not_come_up_is_taken_back_once_it_has_switched(
    monkeypatch: pytest.MonkeyPatch, switches: bool
) -> None:
    now = [SETTINGS]

    def switch() -> None:
        now[0] = upgrade.with_new_version(SETTINGS, Path("/opt/vcdl-2/bin/python"), SETTINGS.boinc)

    def red() -> None:
        raise ServerError("the doctor is not content")

    def back(settings: ServerSettings) -> list[ServerStep]:
        return [
            always(
                "back", lambda: now.__setitem__(0, upgrade.with_new_version(settings, SETTINGS.python, SETTINGS.boinc))
            )
        ]

    steps = [always("switch", switch)] * switches + [always("doctor", red)]
    monkeypatch.setattr(upgrade, "load_installed", lambda _: now[0])
    monkeypatch.setattr(upgrade, "upgrade_steps", lambda *_: steps)
    monkeypatch.setattr(upgrade, "back_steps", back)
    with pytest.raises(ServerError, match="undone.*not content" if switches else "^the doctor is not content"):
        list(upgrade.upgrade(SETTINGS, "x.whl", None))
    assert now[0].python == SETTINGS.python


def test_an_upgrade_that_cannot_reuse_packages_installs_all_extras_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another disk, or with another Python: without the extras, jobs of `digits` and pictures would fail."""
    installed: list[str] = []

    def run(*words: object) -> None:
        (tmp_path / "new").mkdir(exist_ok=True)
        installed.extend(str(word) for word in words if str(word).startswith("vcdl.whl"))

    monkeypatch.setattr(upgrade, "_folder", lambda _: tmp_path / "new")
    monkeypatch.setattr(upgrade, "link_packages", lambda *_: False)
    monkeypatch.setattr(upgrade, "installed_extras", lambda: ["cpu", "digits", "plot"])
    monkeypatch.setattr(system, "run", run)
    (step, *_) = upgrade.upgrade_steps(SETTINGS, "vcdl.whl", None)
    list(carry_out([step]))
    assert installed == ["vcdl.whl[cpu,digits,plot,server]"]


@pytest.mark.process
def test_pages_of_an_older_boinc_call_the_functions_of_today(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "user").mkdir()
    page, start = tmp_path / "project/project.inc", tmp_path / "user/index.php"
    page.write_text('$master_url = parse_config(get_config(), "<master_url>");\n')
    start.write_text(
        '$config = get_config();\n$no = parse_bool($config, "no_web_account_creation");\n'
        '$id = parse_config($config, "<project_id>");\n'
    )
    subprocess.run(["sh", "-c", upgrade.FOLLOW], cwd=tmp_path, check=True)
    assert page.read_text() == '$master_url = project_config_val("master_url");\n'
    assert start.read_text() == (
        '$no = project_config_bool("no_web_account_creation");\n$id = project_config_val("project_id");\n'
    )


def test_a_version_shares_with_the_one_before_what_it_does_not_replace(tmp_path: Path) -> None:
    old, new = (tmp_path / name / "lib/python3.11/site-packages" for name in ("old", "new"))
    for folder, name in ((old, "numpy.py"), (old, "vcdl.py"), (new, "pip.py")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("before")
    assert link_packages(tmp_path / "old", tmp_path / "new")
    (new / "vcdl.py").unlink()  # as pip does
    (new / "vcdl.py").write_text("after")
    assert sorted(path.name for path in new.iterdir()) == ["numpy.py", "vcdl.py"]
    assert (new / "numpy.py").samefile(old / "numpy.py")
    assert (old / "vcdl.py").read_text() == "before"
    (tmp_path / "later/lib/python3.13/site-packages").mkdir(parents=True)
    assert not link_packages(tmp_path / "old", tmp_path / "later")
