"""Machines whose disk is a stack of folders, booted by systemd-nspawn. They share this machine's network.

As root, where debootstrap and systemd-nspawn are (`apt-get install debootstrap systemd-container`).
"""

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CACHE = Path("/var/cache/vcdl-boot")
"""Bare trees, one for each release. Remove it to have them made again."""
TIMEOUT_S = 1800.0
_RELEASES = {"bookworm": "http://deb.debian.org/debian"}
_PACKAGES = "systemd,systemd-sysv,dbus,udev,iproute2,ca-certificates,python3,openssh-server,lsb-release,libpam-systemd"
_PACKAGES += ",dbus-user-session"
_ALONE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Mounts and processes of its own, which end with the command, and the command with the test."""
_BOOT = """
mkdir -p /run/systemd/nspawn && mount -t tmpfs tmpfs /run/systemd/nspawn &&
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4" && shift 3
while true; do
    systemd-nspawn --quiet --register=no --keep-unit --boot --console=read-only -D "$@"
    ended=$?
    [ $ended -eq 133 ] || exit $ended # not a reboot
done
"""
_CONFIGURATION = "network: {config: disabled}\ndatasource_list: [NoCloud]\n"


def base(release: str) -> Path:
    """A tree of a release as a cloud's image has it, with cloud-init. Skips the test where none can be made."""
    if os.geteuid() != 0 or not shutil.which("debootstrap") or not shutil.which("systemd-nspawn"):
        pytest.skip("needs root, debootstrap and systemd-nspawn")
    mirror = _RELEASES[release]
    try:
        urllib.request.urlopen(f"{mirror}/dists/{release}/InRelease", timeout=30).close()
    except OSError as error:
        pytest.skip(f"needs packages of {release}: {mirror}: {error}")
    if not (tree := CACHE / release).exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            root = Path(folder, release)
            options = ["--variant=minbase", f"--include={_PACKAGES}"]
            _run("debootstrap", *options, release, root, mirror)
            _finish(root)
            root.rename(tree)
    return tree


def _finish(root: Path) -> None:
    """Add cloud-init, and what this machine needs to reach package servers."""
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    _run("chroot", root, "apt-get", "-q", "update")
    _run("chroot", root, "apt-get", "-q", "install", "-y", "--no-install-recommends", "cloud-init")
    (root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)  # debootstrap's: nothing may start
    (root / "etc/cloud/cloud.cfg.d/99-here.cfg").write_text(_CONFIGURATION)
    if Path("/etc/pip.conf").exists():
        shutil.copy("/etc/pip.conf", root / "etc/pip.conf")
    for given in Path("/usr/local/share/ca-certificates").glob("*.crt"):
        shutil.copy(given, root / "usr/local/share/ca-certificates")
    _run("chroot", root, "update-ca-certificates")


def _run(*command: str | Path) -> None:
    subprocess.run([*_ALONE, "env", "DEBIAN_FRONTEND=noninteractive", *command], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def work_folder() -> Iterator[Path]:
    """A folder for disks, on the disk of the trees; one test at a time has it, and nothing of it is left."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(CACHE / "work", ignore_errors=True)  # a killed test's
        (CACHE / "work").mkdir()
        try:
            yield CACHE / "work"
        finally:
            shutil.rmtree(CACHE / "work")


@dataclass
class Machine:
    """A machine that was booted."""

    disk: Path
    """What it has written."""
    process: subprocess.Popen[str]
    lines: list[tuple[float, str]] = field(default_factory=list)
    """The console: each line with the seconds since the boot."""
    _began_s: float = field(default_factory=time.monotonic)

    def follow(self) -> None:
        """Read the console to its end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic() - self._began_s, line.rstrip()))

    def heard(self, words: str) -> list[float]:
        """When the console said this."""
        return [at_s for at_s, line in self.lines if words in line]

    def wait(self, condition: Callable[[], object], what: str) -> float:
        """The seconds from the boot until then. Fails when the machine ends before."""
        while not condition():
            waited_s = time.monotonic() - self._began_s
            ended = self.process.poll() is not None or waited_s > TIMEOUT_S
            assert not ended, "\n".join([f"not within {waited_s:.0f} s: {what}", *(text for _, text in self.lines)])
            time.sleep(0.1)
        return time.monotonic() - self._began_s

    def wait_to_hear(self, words: str) -> float:
        """The seconds from the boot until the console says this."""
        self.wait(lambda: self.heard(words), words)
        return self.heard(words)[0]

    def call(self, *command: str) -> str:
        """The output of a command on the machine."""
        leader = self.process.pid
        for _ in ("unshare", "sh", "systemd-nspawn"):
            leader = int(Path(f"/proc/{leader}/task/{leader}/children").read_text())
        inside = ["nsenter", f"--target={leader}", "--all", "--root", "--wd=/", *command]
        return subprocess.run(inside, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def network_apart() -> Iterator[tuple[str, Executor]]:
    """A network with the address of the clouds' metadata service and nothing else: its path, and a thread in it."""
    addresses = "ip link set lo up && ip address add 169.254.169.254/32 dev lo && echo && exec sleep infinity"
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", addresses]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder, ThreadPoolExecutor(1) as thread:
        assert holder.stdout is not None
        holder.stdout.readline()
        network = f"/proc/{holder.pid}/ns/net"
        with open(network) as entered:
            assert thread.submit(ctypes.CDLL(None).setns, entered.fileno(), 0).result() == 0
        try:
            yield network, thread
        finally:
            holder.kill()


@contextmanager
def booted(
    folder: Path, *layers: Path, user_data: bytes = b"", network: str = "", options: tuple[str, ...] = ()
) -> Iterator[Machine]:
    """Boot a machine whose disk has these layers, the newest first, and one of its own in `folder`.

    At the end of the block its power is cut.
    """
    for name in ("disk", "work", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    seed = folder / "disk/var/lib/cloud/seed/nocloud"
    seed.mkdir(parents=True, exist_ok=True)
    (seed / "meta-data").write_text(f"instance-id: i-{folder.name}\n")
    (seed / "user-data").write_bytes(user_data)
    places = [":".join(map(str, layers)), *(str(folder / name) for name in ("disk", "work", "root"))]
    network_of = ["nsenter", f"--net={network}"] if network else []
    command = [*network_of, *_ALONE, "sh", "-c", _BOOT, "sh", *places, *options]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    machine = Machine(folder / "disk", process)
    console = threading.Thread(target=machine.follow)
    console.start()
    try:
        yield machine
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        console.join()
