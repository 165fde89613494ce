"""Machines with systemd, in namespaces: overlays over one Debian tree, on a private bridge. Root, and no engine.

`debootstrap` makes the tree once; `systemd-nspawn --boot` starts a machine. ⚠ Forwarding and one table of nftables of
this machine are set while a network is there, and taken back.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_BRIDGE = "vcdlbr0"
_NET = "10.77.0"
_TABLE = "vcdl_test_server"
_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
_BOOT_S = 90.0
_BASE_PACKAGES = "systemd,systemd-sysv,dbus,iproute2,ca-certificates,procps,libpam-systemd"


@dataclass
class Machine:
    """One machine; its folder is an overlay, so that it costs only what it writes."""

    name: str
    number: int
    """The last part of its address."""
    stage: Path
    lower: Sequence[Path]
    binds: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return f"{_NET}.{self.number}"

    @property
    def root(self) -> Path:
        return self.stage / self.name / "root"

    def boot(self) -> None:
        """Mount its folder and start it; returns when it is up."""
        self._end_leftover()
        top = self.stage / self.name
        for part in ("root", "upper", "work"):
            (top / part).mkdir(parents=True, exist_ok=True)
        if not os.path.ismount(self.root):
            layers = ":".join(map(str, self.lower))
            options = f"lowerdir={layers},upperdir={top / 'upper'},workdir={top / 'work'}"
            sh("mount", "-t", "overlay", "overlay", "-o", options, self.root)
            self._name_it()
        with (top / "console.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", f"--machine={self.name}",
                    f"--directory={self.root}", f"--network-bridge={_BRIDGE}", "--resolv-conf=off", "--link-journal=no",
                    "--timezone=off", *(f"--bind-ro={each}" for each in self.binds),
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        give_up_s = time.monotonic() + _BOOT_S
        while self.ask("systemctl", "is-system-running") not in ("running", "degraded"):
            ended = self.process.poll() is not None
            assert not ended, f"{self.name} ended"
            assert time.monotonic() < give_up_s, f"{self.name} did not start: {top / 'console.log'}"
            time.sleep(0.5)

    def _end_leftover(self) -> None:
        """End the same machine of a run that was killed: its folder and its interface are in use."""
        while found := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._has(pid)]:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
        # ⚠ It goes some time after its processes.
        subprocess.run(["ip", "link", "delete", f"vb-{self.name}"], check=False, stderr=subprocess.DEVNULL)

    def _has(self, pid: int) -> bool:
        """Whether a process is in it, or has started it."""
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
        except OSError:
            return False
        upper = f"upperdir={self.stage / self.name / 'upper'},"
        return f"--directory={self.root}" in words or any(each[4] == "/" and upper in each[-1] for each in mounts)

    def _name_it(self) -> None:
        etc = self.root / "etc"
        (etc / "hostname").write_text(f"{self.name}\n")
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n")
        network = etc / "systemd/network/10-host0.network"
        network.parent.mkdir(parents=True, exist_ok=True)
        network.write_text(
            f"[Match]\nName=host0\n[Network]\nAddress={self.address}/24\nGateway={_NET}.1\nLinkLocalAddressing=no\n"
        )
        wants = etc / "systemd/system/multi-user.target.wants/systemd-networkd.service"
        wants.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            wants.symlink_to("/lib/systemd/system/systemd-networkd.service")
        shutil.copyfile("/etc/resolv.conf", etc / "resolv.conf")

    @property
    def leader(self) -> int:
        """The pid of its first process."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def command(self, *words: str | Path, user: str = "root") -> list[str]:
        """The words that run something in it."""
        home = "/root" if user == "root" else f"/home/{user}"
        # ⚠ With --login runuser asks systemd for a session, and after a reboot that takes two minutes here.
        who = [] if user == "root" else ["runuser", "--user", user, "--"]
        outside = ["nsenter", "--all", "--target", str(self.leader), "--", "/usr/bin/env", "-i", f"PATH={_PATH}"]
        return [*outside, f"HOME={home}", *who, *map(str, words)]

    def run(self, *words: str | Path, user: str = "root", stdin: str = "") -> str:
        """The output of a command in it, which must succeed."""
        done = subprocess.run(self.command(*words, user=user), input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{self.name}: {' '.join(map(str, words))}: {done.stdout}{done.stderr}"
        return done.stdout

    def ask(self, *words: str | Path, user: str = "root") -> str:
        """The output of a command that may fail."""
        try:
            command = self.command(*words, user=user)
        except (AssertionError, IndexError, FileNotFoundError):
            return ""
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def kill(self) -> None:
        """The power goes."""
        if self.process is not None:
            with contextlib.suppress(IndexError, FileNotFoundError, ProcessLookupError):
                os.kill(self.leader, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
            self.process = None

    def power_off(self) -> None:
        """Shut it down as a person does."""
        self.ask("systemctl", "poweroff")
        assert self.process is not None
        self.process.wait(180)
        self.process = None

    def reboot(self) -> None:
        """Shut it down, and start it again."""
        self.power_off()
        self.boot()

    def remove(self) -> None:
        """Nothing of it is left."""
        self.kill()
        if os.path.ismount(self.root):
            sh("umount", self.root)
        shutil.rmtree(self.stage / self.name, ignore_errors=True)


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def sh(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


def debian(folder: Path, suite: str = "bookworm") -> Path:
    """A tree of Debian, made when there is none; it trusts what this machine trusts."""
    if not (folder / "etc/debian_version").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        half = folder.with_suffix(".half")
        shutil.rmtree(half, ignore_errors=True)
        sh("debootstrap", "--variant=minbase", f"--include={_BASE_PACKAGES}", suite, half)
        for extra in Path("/usr/local/share/ca-certificates").glob("*.crt"):
            shutil.copy(extra, half / "usr/local/share/ca-certificates")
        sh("chroot", half, "update-ca-certificates")
        sources = "\n".join(
            f"Types: deb\nURIs: http://deb.debian.org/{path}\nSuites: {suites}\nComponents: main\n"
            for path, suites in (("debian", f"{suite} {suite}-updates"), ("debian-security", f"{suite}-security"))
        )
        (half / "etc/apt/sources.list").unlink(missing_ok=True)
        (half / "etc/apt/sources.list.d/debian.sources").write_text(sources)
        half.rename(folder)
    return folder


@contextmanager
def network() -> Iterator[None]:
    """A bridge for machines, whose packets leave under this machine's address."""
    before = _FORWARD.read_text()
    _take_down()  # of a run that was killed
    sh("ip", "link", "add", _BRIDGE, "type", "bridge")
    try:
        sh("ip", "address", "add", f"{_NET}.1/24", "dev", _BRIDGE)
        sh("ip", "link", "set", _BRIDGE, "up")
        rules = (
            f"table ip {_TABLE} {{ chain out {{ type nat hook postrouting priority 100; "
            f"ip saddr {_NET}.0/24 ip daddr != {_NET}.0/24 masquerade; }}; }}"
        )
        subprocess.run(["nft", "--file", "-"], input=rules, text=True, check=True)
        _FORWARD.write_text("1")
        yield
    finally:
        _FORWARD.write_text(before)
        _take_down()


def _take_down() -> None:
    for command in (["nft", "delete", "table", "ip", _TABLE], ["ip", "link", "delete", _BRIDGE]):
        subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
