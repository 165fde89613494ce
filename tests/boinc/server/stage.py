"""The machines of test_whole.py: layers over Debian with this checkout's VCDL, and a disk of its own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.boinc.server.machine import Machine, debian, network, sh
from tests.places import ROOT
from vcdl.boinc.server import texts
from vcdl.boinc.server.settings import ServerSettings

BOINC = os.environ.get("VCDL_BOINC_TREE", "")
STAGE = Path(os.environ.get("VCDL_STAGE", "/var/tmp/vcdl-stage"))
RED = Path("/etc/vcdl/red")
_RED_CHECK = f"""

def red(installation: Installation) -> Iterator[Finding]:
    if os.path.exists("{RED}"):
        yield failed("this version does not come up", "go back")


CHECKS = (*CHECKS, red)
"""


def wheel(folder: Path, version: str = "") -> Path:
    """A wheel of this checkout; with a version, one whose client differs, and whose doctor sees red where RED is."""
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    subprocess.run(f"git -C {ROOT} archive HEAD | tar -x -C {source}", shell=True, check=True)
    if version:
        (source / "vcdl/files/version.py").write_text(f'"""Another one."""\n\n__version__ = "{version}"\n')
        project = source / "pyproject.toml"
        project.write_text(re.sub(r'^version = ".*"', f'version = "{version}"', project.read_text(), flags=re.M))
        with (source / "vcdl/client/worker.py").open("a") as client:
            client.write("# changed\n")
        with (source / "vcdl/boinc/doctor/machine.py").open("a") as doctor:
            doctor.write(_RED_CHECK)
    sh(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source)
    return next(iter(folder.glob(f"vcdl-{version}*.whl")))


def _layer(name: str, lower: list[Path], fill: Callable[[Machine], None]) -> list[Path]:
    """Layers with another one on top, which is filled once."""
    machine, made = Machine(name, 9, STAGE, lower), STAGE / name / "made"
    if not made.exists():
        machine.remove()
        machine.boot()
        fill(machine)
        machine.power_off()
        sh("umount", machine.root)
        made.touch()
    return [STAGE / name / "upper", *lower]


def _install_packages(machine: Machine, *packages: str) -> None:
    machine.run("apt-get", "update", "-qq")
    machine.run(
        "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages
    )


def _fill(machine: Machine, packages: list[str]) -> None:
    _install_packages(machine, *packages)
    # ⚠ A client's number is in it: of clients with the same one BOINC makes one host.
    machine.run("sh", "-c", "systemctl stop boinc-client; rm -f /var/lib/boinc-client/client_state*.xml")


def _make_vcdl(machine: Machine) -> None:
    packages = ("python3-venv", "python3-dev", "libmariadb-dev", "pkg-config", "gcc", "libc6-dev")
    _install_packages(machine, *packages)
    machine.run("python3", "-m", "venv", "/opt/vcdl")
    put_vcdl(machine, wheel(STAGE / "wheel"), "[cpu,digits,server,web,plot]")


def _server_packages() -> list[str]:
    """As `vcdl server install` takes them on this Debian."""
    settings = ServerSettings("vcdl", "train.example.org", "a@example.org", Path(BOINC), redis=True)
    return [each.split("|")[-1] for each in texts.packages(settings, with_web=True)]


def put_vcdl(machine: Machine, path: Path, extras: str = "") -> None:
    shutil.copy(path, machine.root / "srv" / path.name)
    options = ["--quiet"] if extras else ["--quiet", "--no-deps", "--force-reinstall"]
    pip = f"PIP_CERT=/etc/ssl/certs/ca-certificates.crt /opt/vcdl/bin/pip install {' '.join(options)}"
    machine.run("sh", "-c", f"{pip} '/srv/{path.name}{extras}'")


@contextmanager
def staged() -> Iterator[Callable[..., Machine]]:
    """Makes machines with VCDL; all are gone at the end, and the layers stay for the next time.

    `packaged`: "server" or "client" has the packages of one already, which test_a_server_lives installs itself.
    """
    made: list[Machine] = []
    with network():
        bare = _layer("layer", [debian(STAGE / "debian")], _make_vcdl)
        ours = wheel(STAGE / "wheel")
        packages = {"server": _server_packages(), "client": ["boinc-client"]}

        def make(name: str, number: int, folder: Path = STAGE, packaged: str = "") -> Machine:
            layers = bare
            if packaged:
                layers = _layer(packaged, bare, lambda machine: _fill(machine, packages[packaged]))
            machine = Machine(name, number, folder, layers, (BOINC,))
            machine.remove()
            machine.boot()
            made.append(machine)
            put_vcdl(machine, ours)
            return machine

        try:
            yield make
        finally:
            for machine in made:
                machine.remove()


@contextmanager
def small_disk() -> Iterator[Path]:
    """A disk of its own."""
    image, folder = STAGE / "small.img", STAGE / "small"
    folder.mkdir(parents=True, exist_ok=True)
    if os.path.ismount(folder):  # of a run that was killed
        Machine("small", 12, folder, []).remove()
        sh("umount", folder)
    sh("truncate", "--size=6G", image)
    sh("mkfs.ext4", "-q", "-F", image)
    sh("mount", "-o", "loop", image, folder)
    try:
        yield folder
    finally:
        sh("umount", folder)
        image.unlink()
