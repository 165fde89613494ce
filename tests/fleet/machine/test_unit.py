"""The unit of `vcdl fleet unit` on a booted Debian: the keeper comes back after a reboot and after a kill."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.aws.moto_cloud import MotoCloud, moto_cloud
from tests.fleet.fleet_files import AWS
from tests.fleet.machine.nspawn import base, booted, work_folder
from tests.fleet.project_page import WEAK, project_page
from tests.fleet.test_end_to_end import live

pytestmark = [pytest.mark.soak, pytest.mark.server, pytest.mark.process, pytest.mark.timeout(1200)]
UNITS, UNIT = ".config/systemd/user", "vcdl-cifar"
_LOGIN = ("systemd-run", "--quiet", "--wait", "--pipe", "--property=PAMName=login", "--property=User=keeper")


@pytest.fixture
def cloud(one_region: None) -> Iterator[MotoCloud]:
    with moto_cloud() as cloud:
        yield cloud


def test_the_keeper_runs_again_after_a_reboot_and_after_a_kill(cloud: MotoCloud) -> None:
    python = {path for path in (sys.base_prefix, sys.prefix, *sys.path) if path and Path(path).is_dir()}
    with work_folder() as folder, project_page() as url:
        home = folder / "keeper/disk/home/keeper"
        for path in (home / ".aws", *(Path(f"{folder}/keeper/disk{path}") for path in python)):
            path.mkdir(parents=True, exist_ok=True)
        text = (
            AWS.replace("https://boinc.example.org/mine/", url)
            .replace("account_key_env: VCDL_TEST_KEY", "account_key_file: key")
            .replace("t3.", "m5.")
        )
        (home / "fleet.yaml").write_text(f"{text}reconcile_every_s: 5\n")
        (home / "key").write_text(WEAK)
        (home / "key").chmod(0o600)
        endpoint = cloud.client().meta.endpoint_url
        keys = "aws_access_key_id = testing\naws_secret_access_key = testing\n"
        (home / ".aws/config").write_text(f"[default]\nendpoint_url = {endpoint}\n{keys}")
        options = tuple(f"--bind-ro={path}" for path in python)
        with booted(folder / "keeper", base("bookworm"), options=options) as machine:
            machine.wait_to_hear("finished at")
            machine.call("useradd", "--shell=/bin/sh", "keeper")
            machine.call("chown", "-R", "keeper:", "/home/keeper")

            def run(command: str) -> str:
                return machine.call(*_LOGIN, "--working-directory=/home/keeper", "sh", "-c", command)

            vcdl_fleet = f"{sys.executable} -m vcdl fleet"
            run(f"mkdir -p {UNITS} && {vcdl_fleet} unit > {UNITS}/{UNIT}.service")
            machine.call("loginctl", "enable-linger", "keeper")
            run(f"systemctl --user enable {UNIT}")
            print(run(f"{vcdl_fleet} up && systemctl --user restart {UNIT}"))
            assert len(live(cloud)) == 5

            def replaces_a_lost_one(after: str) -> None:
                """Nobody but a keeper does it."""
                cloud.preempt(live(cloud)[0])
                began_s = time.monotonic()
                machine.wait(lambda: len(live(cloud)) == 5, f"a replacement after {after}")
                print(f"{after}: replaced after {time.monotonic() - began_s:.0f} s")

            replaces_a_lost_one("the start")
            boots = len(machine.heard("Cloud-init v."))
            machine.call("systemctl", "reboot")
            machine.wait(lambda: len(machine.heard("Cloud-init v.")) > boots, "the reboot")
            replaces_a_lost_one("a reboot")
            machine.call("pkill", "--signal=KILL", "--uid=keeper", "--full", "vcdl fleet run")
            replaces_a_lost_one("a kill")
