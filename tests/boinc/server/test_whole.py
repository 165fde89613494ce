"""A server's life on machines of its own: `make test-server BOINC=TREE`, as root (machine.py says what it needs).

Installed and killed in each step, trained on by a volunteer's machine, rebooted, backed up, upgraded with tasks out,
lost, and restored elsewhere. Prints what happened when; the figures go to docs/measured/server.md.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.boinc.server.machine import Machine, debian, network, sh
from tests.places import ROOT

BOINC = os.environ.get("VCDL_BOINC_TREE", "")
STAGE = Path(os.environ.get("VCDL_STAGE", "/var/tmp/vcdl-stage"))
HOST = "train.example.org"
PROJECT = Path("/home/boincadm/projects/vcdl")
JOB = """\
name: digits
model: {builtin: {name: mlp, units: [64]}}
data: {dataset: digits, shards: 4, validation: 0.2}
training: {learning_rate: 0.003, batch_size: 16, local_epochs: 5}
stop: {epochs: 40}
"""
INSTALL = ["/opt/vcdl/bin/vcdl", "server", "install", "--boinc", BOINC, "--host", HOST, "--email", "a@example.org"]
INSTALL += ["--tls", "self-signed", "--redis"]
KILLED_AFTER_S, IN_PACKAGES_S = 0.3, 15.0
_APPLIED = """
import json, sqlite3, sys
rows = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True).execute(
    "SELECT json_extract(fields, '$.workunit'), json_extract(fields, '$.version') FROM events"
    " WHERE kind = 'update_applied'")
print(json.dumps(rows.fetchall()))
"""

pytestmark = [
    pytest.mark.boinc,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not BOINC or os.geteuid() != 0, reason="VCDL_BOINC_TREE names no built tree, or not root"),
]


class Transcript:
    """What happened, with the seconds since the begin and those that it took."""

    def __init__(self) -> None:
        self._begun_s = self._last_s = time.monotonic()

    def say(self, what: str) -> None:
        now_s = time.monotonic()
        print(f"{now_s - self._begun_s:7.0f} s  (+{now_s - self._last_s:4.0f})  {what}", flush=True)
        self._last_s = now_s


def wheel(folder: Path, version: str = "") -> Path:
    """A wheel of this checkout; with a version, one whose client differs."""
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    subprocess.run(f"git -C {ROOT} archive HEAD | tar -x -C {source}", shell=True, check=True)
    if version:
        (source / "vcdl/version.py").write_text(f'"""Another one."""\n\n__version__ = "{version}"\n')
        project = source / "pyproject.toml"
        project.write_text(re.sub(r'^version = ".*"', f'version = "{version}"', project.read_text(), flags=re.M))
        with (source / "vcdl/client/worker.py").open("a") as client:
            client.write("# changed\n")
    sh(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source)
    return next(iter(folder.glob(f"vcdl-{version}*.whl")))


def with_vcdl(base: Path) -> Path:
    """A layer over Debian with VCDL in /opt/vcdl, made once; the checkout's own code is put in each time."""
    layer = Machine("layer", 9, STAGE, [base])
    if not (STAGE / "layer/upper/opt/vcdl/bin/vcdl").exists():
        layer.boot()
        layer.run("apt-get", "update", "-qq")
        packages = ("python3-venv", "python3-dev", "libmariadb-dev", "pkg-config", "gcc", "libc6-dev")
        layer.run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages)
        layer.run("python3", "-m", "venv", "/opt/vcdl")
        put_vcdl(layer, wheel(STAGE / "wheel"), "[cpu,server,web]")
        layer.run("systemctl", "poweroff")
        layer.kill()
        sh("umount", layer.root)
    return STAGE / "layer/upper"


def put_vcdl(machine: Machine, path: Path, extras: str = "") -> None:
    shutil.copy(path, machine.root / "root" / path.name)
    options = ["--quiet"] if extras else ["--quiet", "--no-deps", "--force-reinstall"]
    pip = f"PIP_CERT=/etc/ssl/certs/ca-certificates.crt /opt/vcdl/bin/pip install {' '.join(options)}"
    machine.run("sh", "-c", f"{pip} '/root/{path.name}{extras}'")


@pytest.fixture
def stage() -> Iterator[Callable[[str, int], Machine]]:
    """Makes machines with VCDL; all are gone at the end, and the layers stay for the next time."""
    made: list[Machine] = []
    with network():
        layers = [with_vcdl(base := debian(STAGE / "debian")), base]
        ours = wheel(STAGE / "wheel")

        def make(name: str, number: int) -> Machine:
            machine = Machine(name, number, STAGE, layers, (BOINC,))
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


def killed_install(server: Machine, number: int) -> bool:
    """Begin the command, and kill all of it soon after line `number`, of 0 soon after its begin; whether it ended."""
    command = ["systemd-run", "--quiet", "--pipe", "--wait", f"--unit=install{number}", *INSTALL]
    process = subprocess.Popen(server.command(*command), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = iter(process.stdout)
    for _ in range(number):
        next(lines, None)
    time.sleep(KILLED_AFTER_S if number else IN_PACKAGES_S)
    if process.poll() is None:
        server.ask("systemctl", "kill", "--signal=KILL", f"install{number}")
    process.communicate()
    return process.returncode == 0


def status(server: Machine) -> dict[str, object]:
    found = server.ask("vcdl", "status", "digits", "--project-dir", PROJECT, "--json", user="boincadm")
    return dict(json.loads(found)) if found else {}


def applied(server: Machine) -> list[tuple[str, int]]:
    """The subtasks that count in the journal, with their versions."""
    journal = f"{PROJECT}/vcdl/runs/digits/journal.db"
    said = server.ask("python3", "-c", _APPLIED, journal, user="boincadm")
    return [(name.rsplit("_a", 1)[0], version) for name, version in json.loads(said or "[]")]


def wait(condition: Callable[[], object], what: str, timeout_s: float = 900.0) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_s, f"waited in vain until {what}"
        time.sleep(2)


def attach(server: Machine, volunteer: Machine) -> None:
    """Make an account, and the machine its client."""
    digest = hashlib.md5(b"secret" + b"a@example.org", usedforsecurity=False).hexdigest()
    url = f"https://{HOST}/vcdl/create_account.php?email_addr=a@example.org&passwd_hash={digest}&user_name=ada"
    said = server.run("python3", "-c", f"import urllib.request as u; print(u.urlopen('{url}').read().decode())")
    key = re.findall(r"<authenticator>(\w+)<", said)[0]
    (volunteer.root / "etc/vcdl").mkdir(exist_ok=True)
    (volunteer.root / "etc/vcdl/key").write_text(key)
    lead(volunteer, server)
    shutil.copy(server.root / "etc/vcdl/vcdl.crt", volunteer.root / "usr/local/share/ca-certificates/vcdl.crt")
    volunteer.run("update-ca-certificates")
    drop = volunteer.root / "etc/systemd/system/boinc-client.service.d/python.conf"
    drop.parent.mkdir(parents=True)
    drop.write_text("[Service]\nEnvironment=VCDL_PYTHON=/opt/vcdl/bin/python\n")
    script = server.run("vcdl", "client", "attach-script", f"https://{HOST}/vcdl/", "--key-file", "/etc/vcdl/key")
    volunteer.run("sh", "-s", stdin=script)
    volunteer.run("systemctl", "daemon-reload")
    volunteer.run("systemctl", "restart", "boinc-client")


def lead(volunteer: Machine, server: Machine) -> None:
    """Let the project's name lead to a server, as DNS does."""
    hosts = volunteer.root / "etc/hosts"
    lines = [line for line in hosts.read_text().splitlines() if HOST not in line]
    hosts.write_text("\n".join([*lines, f"{server.address} {HOST}", ""]))


def test_a_server_lives(stage: Callable[[str, int], Machine]) -> None:
    told = Transcript()
    first, volunteer = stage("first", 10), stage("volunteer", 20)
    told.say("two machines with VCDL are up")

    watch = "while :; do cat /proc/[0-9]*/cmdline | tr '\\0' ' '; sleep 0.1; done > /root/commands.log 2>/dev/null"
    first.run("systemd-run", "--quiet", "--unit=watch", "sh", "-c", watch)  # as any user could
    kills = 0
    while not killed_install(first, kills):
        kills += 1
    told.say(f"installed, with {kills} kills, one in each step")
    first.run("systemctl", "stop", "watch")
    lines = first.run(*INSTALL).splitlines()
    assert not [line for line in lines if line.startswith("made so")]
    password = re.findall(r"<db_passwd>(.*?)<", (first.root / f".{PROJECT}/config.xml").read_text())[0]
    leaks = first.ask("grep", "-rlF", password, "/var/log", f"{PROJECT}/log_first", "/etc/vcdl", "/root")
    assert not leaks, leaks

    attach(first, volunteer)
    (first.root / "home/boincadm/job.yaml").write_text(JOB)
    first.run("vcdl", "submit", "/home/boincadm/job.yaml", "--project-dir", PROJECT, user="boincadm")
    told.say("the volunteer's machine is attached, and a job submitted")
    wait(lambda: applied(first), "an update is applied")
    told.say("the first subtask counts")

    before = len(applied(first))
    first.reboot()
    wait(lambda: len(applied(first)) > before, "training goes on after the reboot")
    first.run("vcdl", "project", "doctor", "--project-dir", PROJECT, user="boincadm")
    told.say("rebooted; training goes on, and the doctor is content")

    first.run("vcdl", "server", "backup", "--to", "/srv/backup")
    told.say("backed up")
    assert first.run("vcdl", "server", "restore", "--from", "/srv/backup", "--rehearse").endswith("would come up\n")
    told.say("rehearsed")

    newer = wheel(STAGE / "newer", "99.1")
    shutil.copy(newer, first.root / "root" / newer.name)
    out = "SELECT COUNT(*) FROM result WHERE server_state = 4"
    wait(lambda: int(first.run("mariadb", "-BN", "-e", out, "vcdl")) > 0, "tasks are out")
    counts = [int(first.run("mariadb", "-BN", "-e", out, "vcdl")), len(applied(first))]
    first.run("env", "PIP_CERT=/etc/ssl/certs/ca-certificates.crt", "vcdl", "server", "upgrade", f"/root/{newer.name}")
    told.say(f"upgraded, with {counts[0]} tasks out and {counts[1]} updates")
    of_new = "SELECT COUNT(DISTINCT app_version_id) FROM result WHERE outcome = 1"
    wait(lambda: int(first.run("mariadb", "-BN", "-e", of_new, "vcdl")) == 2, "the new client brings something")
    assert first.run("mariadb", "-BN", "-e", "SELECT COUNT(*) FROM result WHERE outcome = 3", "vcdl").strip() == "0"
    told.say(f"both clients' uploads count: {len(applied(first))} updates")
    first.run("vcdl", "server", "upgrade", "--back")
    told.say("and back")

    first.run("vcdl", "server", "backup", "--to", "/srv/backup")
    kept = applied(first)
    shutil.copytree(first.root / "srv/backup", STAGE / "backup", dirs_exist_ok=True)
    first.kill()
    told.say(f"backed up with {len(kept)} updates, and the server is gone")
    second = stage("second", 11)
    shutil.move(STAGE / "backup", second.root / "srv/backup")
    told.say("a third machine with VCDL is up")
    second.run("apt-get", "update", "-qq")
    second.run("/opt/vcdl/bin/vcdl", "server", "restore", "--from", "/srv/backup", "--boinc", BOINC)
    lead(volunteer, second)
    told.say("restored")
    wait(lambda: len(applied(second)) > len(kept), "training goes on elsewhere")
    told.say("training goes on")
    after = applied(second)
    assert {subtask for subtask, _ in kept} <= {subtask for subtask, _ in after}
    assert len({subtask for subtask, _ in after}) == len(after)
    assert sorted(version for _, version in after) == list(range(1, len(after) + 1))
    hosts = int(second.run("mariadb", "-BN", "-e", "SELECT COUNT(*) FROM host", "vcdl"))
    assert hosts == 1
    second.run("vcdl", "project", "doctor", "--project-dir", PROJECT, user="boincadm")
    told.say(f"{len(after)} updates, each once; the doctor is content")
