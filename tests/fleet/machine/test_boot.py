"""A real boot of the user data: systemd, cloud-init, apt, pip and Debian's BOINC client in a container, up to training.

As root, where debootstrap and systemd-nspawn are (`apt-get install debootstrap systemd-container`) and package servers
answer. VCDL_BOOT_MIRROR is Debian's mirror. Ubuntu 24.04: VCDL_BOOT_SUITE=noble and its mirror.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.boinc.standin import Database, StandinProject, StandinServer
from tests.boinc.test_real_client import add_app_version, create_work, is_ready, stage_workunit
from tests.client.workunit_folder import with_training, write_workunit
from tests.fleet.fleet_files import settings_of
from tests.store_servers import start_mariadb
from vcdl.boinc.project.app_version import ClientFiles
from vcdl.fleet.machine import user_data

pytestmark = [pytest.mark.soak, pytest.mark.boinc, pytest.mark.keras, pytest.mark.server, pytest.mark.process]
pytestmark += [pytest.mark.timeout(5400)]
SUITE = os.environ.get("VCDL_BOOT_SUITE", "bookworm")
MIRROR = os.environ.get("VCDL_BOOT_MIRROR", "http://deb.debian.org/debian")
PACKAGES = "systemd,systemd-sysv,dbus,udev,iproute2,ca-certificates,python3,openssh-server"
PATIENCE_S = 1800.0
_ALONE = ("unshare", "--mount", "--propagation", "private")
"""Mounts of its own, which end with the command: what removes the folder after a kill must not walk into /proc."""
_NO_NETWORK = "network: {config: disabled}\ndatasource_list: [NoCloud]\n"


class Container:
    """A machine whose disk is a folder. It shares this machine's network, so that it reaches a stand-in project."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self) -> None:
        """Install Debian with cloud-init, as an image has it."""
        subprocess.run(
            [*_ALONE, "debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, self.root, MIRROR],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (self.root / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
        for command in ("apt-get -q update", "apt-get -q install -y --no-install-recommends cloud-init"):
            subprocess.run(
                [*_ALONE, "env", "DEBIAN_FRONTEND=noninteractive", "chroot", self.root, *command.split()],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        (self.root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)  # debootstrap's: nothing may start
        (self.root / "etc/cloud/cloud.cfg.d/99-here.cfg").write_text(_NO_NETWORK)
        for given in (Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf"):  # this machine's package index
            if given.exists():
                (self.root / "etc/pip.conf").write_bytes(given.read_bytes())
        certificates = self.root / "usr/local/share/ca-certificates"
        for given in Path("/usr/local/share/ca-certificates").glob("*.crt"):
            (certificates / given.name).write_bytes(given.read_bytes())
        subprocess.run(["chroot", self.root, "update-ca-certificates"], check=True, stdout=subprocess.DEVNULL)

    def seed(self, text: str) -> None:
        """Give it user data, as the metadata service of a cloud does."""
        seed = self.root / "var/lib/cloud/seed/nocloud"
        seed.mkdir(parents=True, exist_ok=True)
        (seed / "meta-data").write_text("instance-id: i-1\n")
        (seed / "user-data").write_text(text)

    def bake(self) -> None:
        """Make an image of it: no account, no task, no trace of its first boot."""
        for left in ("var/lib/cloud/instance", "var/lib/cloud/instances", "var/lib/vcdl", "etc/vcdl"):
            path = self.root / left
            path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)
        for left in ("account_*", "client_state*", "sched_*", "master_*", "projects/*", "slots/*"):
            for path in (self.root / "var/lib/boinc-client").glob(left):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    @contextmanager
    def booted(self, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Boot it; its console goes to `log`."""
        command = ["systemd-nspawn", "--register=no", "--keep-unit", "--boot", "--console=pipe", "-D", str(self.root)]
        with log.open("wb") as output:
            machine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            try:
                yield machine
            finally:
                machine.send_signal(signal.SIGTERM)
                try:
                    machine.wait(150)
                except subprocess.TimeoutExpired:
                    machine.kill()
                    machine.wait()


def seconds_until(condition: Callable[[], object], machine: subprocess.Popen[bytes], what: str) -> float:
    """The time that passes until then; fails when the machine ends before."""
    began_s = time.monotonic()
    while not condition():
        assert machine.poll() is None, f"the machine ended before {what}"
        assert time.monotonic() - began_s < PATIENCE_S, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(0.5)
    return time.monotonic() - began_s


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("debootstrap") or not shutil.which("systemd-nspawn"),
    reason="needs root, debootstrap and systemd-nspawn",
)
def test_a_machine_boots_installs_and_trains_and_an_image_of_it_installs_nothing(tmp_path: Path) -> None:
    workunits = [replace(with_training(local_epochs=2), job="mnist", epoch=2, base_version=1, shard=n) for n in (1, 2)]
    container = Container(tmp_path / "root")
    container.make()
    with ExitStack() as stack:
        mariadb = stack.enter_context(start_mariadb(tmp_path))
        project = StandinProject.make(tmp_path / "project", Database.of(mariadb))
        add_app_version(project, ClientFiles.build().contents)
        stack.enter_context(StandinServer(project))
        settings = settings_of(tmp_path, f"project.url={project.url}")
        for workunit, image in zip(workunits, ("plain", "baked"), strict=True):
            create_work(project, stage_workunit(project, write_workunit(tmp_path / workunit.name, workunit), workunit))
            container.seed(user_data(settings, project.account_key))
            before = installed(container)
            steps_s = boot(container, tmp_path / f"console-{image}", partial(is_ready, project, workunit))
            print(f"{SUITE}, {image} image:", *(f"{step} after {seconds:.0f} s" for step, seconds in steps_s.items()))
            assert (installed(container) == before) == (image == "baked")
            container.bake()


def installed(container: Container) -> tuple[int, int]:
    """What apt and pip have left: the size of dpkg's log, and when the runtime was made."""
    runtime = container.root / "opt/vcdl"
    made_ns = runtime.stat().st_mtime_ns if runtime.exists() else 0
    return (container.root / "var/log/dpkg.log").stat().st_size, made_ns


def boot(container: Container, log: Path, is_reported: Callable[[], bool]) -> dict[str, float]:
    """Boot the machine until its subtask is reported; the seconds from the boot to each step."""
    slots = container.root / "var/lib/boinc-client/slots"
    with container.booted(log) as machine:
        begun_s = seconds_until(lambda: any(slots.glob("*/boinc_lockfile")) or is_reported(), machine, "it begins")
        written_s = begun_s + seconds_until(
            lambda: any(slots.glob("*/update.h5*")) or is_reported(), machine, "its update is written"
        )
        reported_s = written_s + seconds_until(is_reported, machine, "it is reported")
        assert not (container.root / "run/sshd.pid").exists(), "nothing listens"
    return {"subtask begun": begun_s, "update written": written_s, "reported": reported_s}
