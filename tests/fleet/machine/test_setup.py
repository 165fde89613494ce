"""The set-up script with a real BOINC client and project; systemctl, apt-get and venv only write down their calls."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.boinc.boinc_client import ARGUMENTS, BoincClient
from tests.boinc.standin import Database, StandinProject, StandinServer
from tests.fleet.fleet_files import settings_of
from tests.fleet.machine.test_cloud_init import written
from tests.places import ROOT
from tests.run_folders import readable_files_with
from tests.store_servers import needs, start_mariadb
from vcdl.fleet.machine.cloud_init import user_data

pytestmark = pytest.mark.boinc

SETUP = ROOT / "vcdl" / "fleet" / "machine" / "setup.sh"
_SHOWN = "*ExecStart) echo '{{ path=/usr/bin/boinc ; argv[]=/usr/bin/boinc ; }}' ;; show*) echo '{}' ;;"
"""Answers of systemctl."""
LOGGED = '#!/bin/sh\necho "$(basename "$0") $*" >>"{log}"\n'


@dataclass
class Bare:
    """A machine after cloud-init wrote its files: etc/, bin/ first in the PATH, and opt/ for the runtime."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("etc", "bin", "data"):
            (self.folder / name).mkdir(parents=True)
        self.program("systemctl", f'case "$1 $2" in {_SHOWN.format(self.folder / "data")} esac; exit 0')

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        places = {"VCDL_ETC": "etc", "VCDL_RUNTIME": "opt", "VCDL_UNITS": "units"}
        return {**os.environ, "PATH": path, **{name: str(self.folder / place) for name, place in places.items()}}

    def program(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(LOGGED.format(log=self.folder / "asked") + script)
        path.chmod(0o755)

    def write(self, text: str) -> None:
        for path, (_, content) in written(text).items():
            if path.startswith("/etc/vcdl/"):
                (self.folder / "etc" / Path(path).name).write_text(content)

    def set_up(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", str(SETUP)], env=self.environment, capture_output=True, text=True)

    @property
    def asked(self) -> list[str]:
        """The calls of the programs so far."""
        log = self.folder / "asked"
        return log.read_text().splitlines() if log.exists() else []

    def image_with_a_runtime(self) -> None:
        (self.folder / "opt" / "bin").mkdir(parents=True)
        launcher = self.folder / "opt" / "bin" / "python"
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        launcher.chmod(0o755)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[StandinProject]:
    with start_mariadb(tmp_path) as mariadb:
        yield StandinProject.make(tmp_path / "project", Database.of(mariadb))


def test_the_client_gets_its_settings_and_is_attached_once_however_often_the_machine_boots(
    project: StandinProject, tmp_path: Path
) -> None:
    bare = Bare(tmp_path / "machine")
    bare.image_with_a_runtime()
    bare.write(user_data(settings_of(tmp_path, f"project.url={project.url}"), project.account_key))
    with ExitStack() as stack:
        server = stack.enter_context(StandinServer(project))
        stack.callback(os.umask, os.umask(0o077))  # the unit's
        client = stack.enter_context(UnattachedClient(tmp_path / "client"))
        stack.enter_context(restarted_on_demand(bare, client))
        bare.program("boinccmd", f'exec "{shutil.which("boinccmd")}" --unix_domain "$@"')
        done = bare.set_up()
        assert done.returncode == 0, done.stdout + done.stderr
        assert project.account_key not in done.stdout + done.stderr
        assert "report_results_immediately" in (client.folder / "cc_config.xml").read_text()
        assert "systemctl restart boinc-client.service" in bare.asked, "it reads its new settings"
        unit = (bare.folder / "units/boinc-client.service.d/vcdl-retries.conf").read_text()
        assert unit.splitlines()[-1] == "ExecStart=/usr/bin/boinc --pers_retry_delay_max 120"
        client.wait_until(lambda: server.requests, "it asks the project for work")
        assert project.account_key in server.requests[0]
        assert not any(project.account_key in line for line in bare.asked), "other users see the arguments of a command"
        assert readable_files_with(project.account_key, client.folder) == []

        again = bare.set_up()
        assert again.returncode == 0, again.stdout + again.stderr
        assert "attaching" not in again.stdout
        assert bare.asked.count("systemctl restart boinc-client.service") == 1, "tasks are not disturbed"
        accounts = [path.name for path in client.folder.glob("account_*")]
        assert accounts == [f"account_{urlsplit(project.url).netloc.replace(':', '_')}.xml"]


_SIMULATED = "<coproc><type>NVIDIA</type><count>1</count></coproc></options>"
"""A GPU in BOINC's cc_config.xml, which the client then takes as one that it has found."""


@pytest.mark.nightly
def test_a_gpu_machine_without_a_gpu_fails_its_set_up_and_one_with_a_gpu_takes_no_cpu_tasks(
    project: StandinProject, tmp_path: Path
) -> None:
    bare = Bare(tmp_path / "machine")
    bare.image_with_a_runtime()
    settings = settings_of(tmp_path, f"project.url={project.url}", "capacity.unit=gpu", "image=ami-1")
    bare.write(user_data(settings, project.account_key))
    with ExitStack() as stack:
        server = stack.enter_context(StandinServer(project))
        client = stack.enter_context(UnattachedClient(tmp_path / "client"))
        stack.enter_context(restarted_on_demand(bare, client))
        boinccmd = f'exec "{shutil.which("boinccmd")}" --unix_domain "$@"'
        bare.program("boinccmd", boinccmd)
        bare.program("nvidia-smi", "echo no devices were found; exit 6")
        done = bare.set_up()
        assert done.returncode != 0
        assert "vcdl-setup: the BOINC client sees no GPU; nvidia-smi: no devices were found" in done.stdout
        restarts = bare.asked.count("systemctl restart boinc-client.service")
        assert restarts == 2, "the driver may come later, and the client looks for GPUs when it starts"

        config = bare.folder / "etc" / "cc_config.xml"
        config.write_text(config.read_text().replace("</options>", _SIMULATED))
        done = bare.set_up()
        assert done.returncode == 0, done.stdout + done.stderr
        client.wait_until(lambda: server.requests, "it asks the project for work")
        said = subprocess.run(
            ["boinccmd", "--unix_domain", "--get_messages"], cwd=client.folder, capture_output=True, text=True
        ).stdout
        assert "Not using CPU: project preferences" in said
        client.wait_until(lambda: "<coproc_cuda>" in server.requests[-1], "it shows its GPU")
        first = len(server.requests)  # a client's first request asks for everything
        client.command("--project", project.url, "update")
        client.wait_until(lambda: len(server.requests) > first, "it asks again")
        assert "<cpu_req_secs>0.000000</cpu_req_secs>" in server.requests[-1]
        assert "<coproc_cuda>" in server.requests[-1]


def test_without_a_package_server_the_set_up_fails_and_the_next_try_starts_the_runtime_over(tmp_path: Path) -> None:
    needs("boinc")
    bare = Bare(tmp_path / "machine")
    bare.write(user_data(settings_of(tmp_path), "1_a"))
    venv_python = f"""
if [ "$2" = venv ]; then
    mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit 0
fi
case "$*" in *"-m pip"*) [ -e "{bare.folder}/registry" ] || exit 1; touch "$(dirname "$0")/trained"; exit 0 ;; esac
[ -e "$(dirname "$0")/trained" ] || [ "$2" = "import ensurepip" ]
"""
    bare.program("python3", venv_python)
    bare.program("boinccmd", "exit 1")
    bare.program("sleep", "")
    first = bare.set_up()
    assert first.returncode != 0
    assert not (bare.folder / "opt").exists(), "a runtime has its name only when it is complete"
    (bare.folder / "registry").touch()
    second = bare.set_up()
    assert (bare.folder / "opt" / "bin" / "python").exists()
    assert second.returncode != 0
    assert "the BOINC client does not answer" in second.stdout
    installs = [line for line in bare.asked if "-m pip install" in line]
    assert len(installs) == 2
    bare.set_up()
    assert len([line for line in bare.asked if "-m pip install" in line]) == 2, "it is not installed again"


def test_packages_that_the_image_lacks_are_installed(tmp_path: Path) -> None:
    bare = Bare(tmp_path / "machine")
    bare.image_with_a_runtime()
    bare.write(user_data(settings_of(tmp_path), "1_a"))
    bare.program("dpkg", "")
    bare.program("apt-get", 'case "$*" in *install*) exit 100 ;; esac')
    for name in ("sh", "env", "basename", "cat", "mkdir"):
        found = shutil.which(name)
        assert found
        (bare.folder / "bin" / name).symlink_to(found)
    done = subprocess.run(
        [str(bare.folder / "bin" / "sh"), str(SETUP)],
        env={
            "VCDL_ETC": str(bare.folder / "etc"),
            "VCDL_RUNTIME": str(bare.folder / "opt"),
            "PATH": str(bare.folder / "bin"),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 100, "the mirror is away: systemd tries again"
    assert any(line.startswith("apt-get") and line.endswith("boinc-client python3-venv") for line in bare.asked)


def test_a_client_that_runs_without_its_account_is_started_again(tmp_path: Path) -> None:
    """As after a kill between the account's file and the restart."""
    bare = Bare(tmp_path / "machine")
    bare.image_with_a_runtime()
    bare.write(user_data(settings_of(tmp_path), "1_a"))
    for name in ("cc_config.xml", "global_prefs_override.xml"):
        shutil.copy(bare.folder / "etc" / name, bare.folder / "data" / name)
    (bare.folder / "data" / "account_boinc.example.org_mine.xml").touch()
    bare.program("boinccmd", "exit 0")
    assert bare.set_up().returncode != 0
    assert "systemctl restart boinc-client.service" in bare.asked, "the next try finds the account"
    bare.program("boinccmd", "echo '   master URL: https://boinc.example.org/mine/'")
    assert bare.set_up().returncode == 0


@contextmanager
def restarted_on_demand(bare: Bare, client: "UnattachedClient") -> Iterator[None]:
    """A systemctl that restarts the client, which writes files as the unit says."""
    asked, ended = bare.folder / "restart", threading.Event()
    wait = f'touch "{asked}"; while [ -e "{asked}" ]; do sleep 0.1; done'
    script = f'case "$1 $2" in {_SHOWN.format(client.folder)} restart*) {wait} ;; esac; exit 0'
    bare.program("systemctl", script)

    def restart() -> None:
        while not ended.wait(0.05):
            if asked.exists():
                client.quit()
                client.start()
                asked.unlink()

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class UnattachedClient(BoincClient):
    """A client as the package starts it: without a project."""

    arguments = tuple(one for one in ARGUMENTS if one != "--no_gpus")
    """As its configuration says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "", "")
        self._attach = []
        (folder / "cc_config.xml").write_text("<cc_config></cc_config>")
        (folder / "global_prefs_override.xml").write_text("<global_preferences></global_preferences>")
