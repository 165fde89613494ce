"""The script that makes a client of a machine runs here with a real BOINC client."""

import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.boinc.standin import Database, StandinProject, StandinServer
from tests.fleet.machine.test_setup import Bare, UnattachedClient, restarted_on_demand
from tests.store_servers import start_mariadb
from vcdl.cli import exit_code_of
from vcdl.errors import ExitCode
from vcdl.fleet.machine.attach import attach_script

URL = "https://boinc.example.org/mine/"


@pytest.mark.boinc
def test_the_script_attaches_a_real_client_whose_key_is_in_a_file(tmp_path: Path) -> None:
    with start_mariadb(tmp_path) as mariadb, ExitStack() as stack:
        project = StandinProject.make(tmp_path / "project", Database.of(mariadb))
        bare = Bare(tmp_path / "machine")
        server = stack.enter_context(StandinServer(project))
        client = stack.enter_context(UnattachedClient(tmp_path / "client"))
        stack.enter_context(restarted_on_demand(bare, client))
        bare.program("boinccmd", f'exec "{shutil.which("boinccmd")}" --unix_domain "$@"')
        (client.folder / "account_elsewhere.org.xml").write_text("<account/>")
        key_file = tmp_path / "weak key"
        key_file.write_text(f"{project.account_key}\n")
        script = attach_script(project.url, str(key_file), False)
        assert project.account_key not in script
        done = subprocess.run(["sh"], input=script, env=bare.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        client.wait_until(lambda: server.requests, "it asks the project for work")
        assert project.account_key in server.requests[0]
        assert not any("install" in line for line in bare.asked), "the client is there"


def test_the_key_stays_on_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["client", "attach-script", URL, "--key-file", "/etc/weak key"]) == ExitCode.OK
    text = capsys.readouterr().out
    assert "key=$(cat '/etc/weak key')" in text
    assert "tensorflow" not in text, "nothing but BOINC's client"


@pytest.mark.parametrize("url", ["boinc.example.org", "http://a/$(reboot)"])
def test_what_a_shell_would_run_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["client", "attach-script", url, "--key-file", "weak"]) == ExitCode.FLEET
    assert "not the URL of a project" in capsys.readouterr().err
