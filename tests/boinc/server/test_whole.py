"""A server's life on machines of its own: `make test-server BOINC=TREE`, as root (machine.py says what it needs).

Installed and killed in each step, trained on by a volunteer's machine, rebooted, given new keys, backed up, upgraded
with tasks out; another one lost, and restored elsewhere; a third one on a disk that fills. Prints what happened when;
the figures go to docs/measured/server.md.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.boinc.server.machine import Machine
from tests.boinc.server.stage import BOINC, RED, STAGE, small_disk, staged, wheel

HOST = "train.example.org"
PROJECT = Path("/home/boincadm/projects/vcdl")
JOB = """\
name: digits
model: {builtin: {name: mlp, units: [64]}}
data: {dataset: digits, shards: 8, validation: 0.2}
training: {learning_rate: 0.003, batch_size: 16, local_epochs: 5}
stop: {epochs: 400}
"""
INSTALL: list[str | Path] = [
    "/opt/vcdl/bin/vcdl", "server", "install", "--boinc", BOINC, "--host", HOST, "--email", "a@example.org",
]  # fmt: skip
INSTALL += ["--tls", "self-signed", "--redis"]
DOCTOR: list[str | Path] = ["vcdl", "project", "doctor", "--project-dir", PROJECT]
VOLUNTEERS = 4
KILLED_AFTER_S, IN_PACKAGES_S = 0.3, 15.0
_EVENTS = """
import json, sqlite3, sys
rows = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True).execute(
    "SELECT json_extract(fields, '$.workunit'), json_extract(fields, '$.version') FROM events"
    " WHERE kind = ?", sys.argv[2:])
print(json.dumps(rows.fetchall()))
"""

_SOON = "[Timer]\nOnActiveSec=2s\nRandomizedDelaySec=0\nAccuracySec=1s\n"

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


@pytest.fixture
def stage() -> Iterator[Callable[..., Machine]]:
    """Makes machines with VCDL."""
    with staged() as make:
        yield make


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
    return [(name.rsplit("_a", 1)[0], version) for name, version in events(server, "update_applied")]


def events(server: Machine, kind: str) -> list[tuple[str, int]]:
    """Workunit and version of each event of a kind in the journal."""
    journal = f"{PROJECT}/vcdl/runs/digits/journal.db"
    said = server.ask("python3", "-c", _EVENTS, journal, kind, user="boincadm")
    return [(workunit, version) for workunit, version in json.loads(said or "[]")]


def hosts_that_brought(server: Machine) -> dict[str, int]:
    """The hosts whose tasks succeeded, with how many."""
    rows = server.run(
        "mariadb", "-BN", "-e", "SELECT hostid, COUNT(*) FROM result WHERE outcome = 1 GROUP BY hostid", "vcdl"
    )
    return {host: int(count) for host, count in (line.split() for line in rows.splitlines())}


def tasks(server: Machine, which: str) -> list[str]:
    return server.run("mariadb", "-BN", "-e", f"SELECT id FROM result WHERE {which}", "vcdl").split()


def succeeded(server: Machine, from_version: int = 0) -> int:
    """Tasks that succeeded, of this app version and later ones."""
    return len(tasks(server, f"outcome = 1 AND app_version_id >= {from_version}"))


def newest_version_used(server: Machine) -> int:
    return max(map(int, server.run("mariadb", "-BN", "-e", "SELECT app_version_id FROM result", "vcdl").split()))


def signing_key(machine: Machine) -> str:
    """The project's key on its server, or as a client has it."""
    state = machine.root / "var/lib/boinc-client/client_state.xml"
    if state.exists():
        found = re.findall(r"<code_sign_key>(.*?)</code_sign_key>", state.read_text(), re.DOTALL)
        return "".join(found[0].split()) if found else ""
    return "".join((machine.root / f".{PROJECT}/keys/code_sign_public").read_text().split())


def wait(condition: Callable[[], object], what: str, timeout_s: float = 900.0) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_s, f"waited in vain until {what}"
        time.sleep(2)


def make_account(server: Machine) -> str:
    """The key of an account."""
    digest = hashlib.md5(b"secret" + b"a@example.org", usedforsecurity=False).hexdigest()
    url = f"https://{HOST}/vcdl/create_account.php?email_addr=a@example.org&passwd_hash={digest}&user_name=ada"
    said = server.run("python3", "-c", f"import urllib.request as u; print(u.urlopen('{url}').read().decode())")
    return str(re.findall(r"<authenticator>(\w+)<", said)[0])


def attach(server: Machine, volunteer: Machine, key: str, cores: int = 2) -> None:
    """Make a machine a client of the account, which works on so many cores."""
    (volunteer.root / "etc/vcdl").mkdir(exist_ok=True)
    (volunteer.root / "etc/vcdl/key").write_text(key)
    lead(volunteer, server)
    trust(server, volunteer, "vcdl.crt")
    drop = volunteer.root / "etc/systemd/system/boinc-client.service.d/python.conf"
    drop.parent.mkdir(parents=True)
    drop.write_text("[Service]\nEnvironment=VCDL_PYTHON=/opt/vcdl/bin/python\n")
    script = server.run("vcdl", "client", "attach-script", f"https://{HOST}/vcdl/", "--key-file", "/etc/vcdl/key")
    volunteer.run("sh", "-s", stdin=script)
    ncpus = f"s|<options>|<options><ncpus>{cores}</ncpus>|"
    volunteer.run("sed", "-i", "--follow-symlinks", ncpus, "/var/lib/boinc-client/cc_config.xml")
    volunteer.run("systemctl", "daemon-reload")
    volunteer.run("systemctl", "restart", "boinc-client")


def trust(server: Machine, volunteer: Machine, certificate: str) -> None:
    """Have a client's machine trust a certificate of a server, beside others."""
    trusted = volunteer.root / f"usr/local/share/ca-certificates/{certificate}.crt"
    shutil.copy(server.root / "etc/vcdl" / certificate, trusted)
    volunteer.run("update-ca-certificates")


def jobs_from_elsewhere(server: Machine, other: Machine) -> str:
    """What the service lists to another machine with a token."""
    token = server.run("vcdl", "token", "add", "ada", "--role", "reader", "--project-dir", PROJECT, user="boincadm")
    script = f"vcdl login https://{HOST}/vcdl_vcdl --name lab && vcdl jobs --server lab"
    path = "PATH=/opt/vcdl/bin:/usr/bin:/bin"
    certificates = "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"
    return other.run("env", path, certificates, "sh", "-c", script, stdin=token)


def lead(volunteer: Machine, server: Machine) -> None:
    """Let the project's name lead to a server, as DNS does."""
    hosts = volunteer.root / "etc/hosts"
    lines = [line for line in hosts.read_text().splitlines() if HOST not in line]
    hosts.write_text("\n".join([*lines, f"{server.address} {HOST}", ""]))


def test_a_server_lives(stage: Callable[..., Machine]) -> None:
    told = Transcript()
    first, volunteer = stage("first", 10), stage("volunteer", 20)
    told.say("two machines with VCDL are up")

    watch = "while :; do cat /proc/[0-9]*/cmdline | tr '\\0' ' '; sleep 0.1; done > /srv/commands.log 2>/dev/null"
    first.run("systemd-run", "--quiet", "--unit=watch", "sh", "-c", watch)  # as any user could
    kills = 0
    while not killed_install(first, kills):
        kills += 1
    told.say(f"installed, with {kills} kills, one in each step")
    first.run("systemctl", "stop", "watch")
    lines = first.run(*INSTALL).splitlines()
    assert not [line for line in lines if line.startswith("done ")]
    password = re.findall(r"<db_passwd>(.*?)<", (first.root / f".{PROJECT}/config.xml").read_text())[0]
    leaks = first.ask("grep", "-rlF", password, "/var/log", f"{PROJECT}/log_first", "/etc/vcdl", "/srv", "/root")
    assert not leaks, leaks

    key = make_account(first)
    attach(first, volunteer, key)
    submit(first)
    told.say("the volunteer's machine is attached, and a job submitted")
    wait(lambda: applied(first), "an update is applied")
    told.say("the first subtask counts")
    assert "digits" in jobs_from_elsewhere(first, volunteer)
    told.say("the service shows the job to another machine, by the site's TLS")

    before = len(applied(first))
    first.reboot()
    wait(lambda: len(applied(first)) > before, "training continues after the reboot")
    first.run(*DOCTOR, user="boincadm")
    told.say("rebooted; training continues, and the doctor is content")

    used = newest_version_used(first)
    volunteer.run("systemctl", "stop", "boinc-client")
    for _ in range(2):
        first.run("vcdl", "server", "rotate-keys")
    told.say("two new signing keys, while the client slept")
    volunteer.run("systemctl", "start", "boinc-client")
    wait(lambda: signing_key(volunteer) == signing_key(first), "the client takes the newest key")
    wait(lambda: succeeded(first, used + 1) > 0, "the client trains with what the newest key has signed")
    assert not tasks(first, "outcome IN (3, 6)")
    told.say("the client has the newest, and trained with what it has signed")

    first.run("vcdl", "server", "rotate-keys", "--tls")
    trust(first, volunteer, "vcdl.crt.next")
    first.run("vcdl", "server", "rotate-keys", "--tls")
    before = succeeded(first)
    wait(lambda: succeeded(first) > before + 4, "training continues behind another certificate")
    first.run(*DOCTOR, user="boincadm")
    told.say("another certificate, which the client knew before; training continues, and the doctor is content")

    first.run(*INSTALL, "--backup-to", "/srv/backup")
    for hour in range(3):  # of an earlier day, of which one is kept, and the newest three
        old = first.root / f"srv/backup/vcdl-20260203T0{hour}0000Z"
        old.mkdir(parents=True)
        (old / "manifest.json").write_text(
            f'{{"project": "vcdl", "made": "2026-02-03T0{hour}:00:00+00:00", "vcdl": "0"}}'
        )
    drop = first.root / "etc/systemd/system/vcdl-backup.timer.d/soon.conf"
    drop.parent.mkdir(parents=True)
    drop.write_text(_SOON)
    first.run("systemctl", "daemon-reload")
    first.run("systemctl", "restart", "vcdl-backup.timer")
    assert "vcdl-backup.service" in first.run("systemctl", "list-timers", "--no-pager")
    wait(lambda: len(list((first.root / "srv/backup").glob("vcdl-2026[!0]*/manifest.json"))) > 0, "the timer fires")
    drop.unlink()
    first.run("systemctl", "daemon-reload")
    first.run("systemctl", "restart", "vcdl-backup.timer")
    told.say("backed up by the timer")
    first.run("vcdl", "server", "backup", "--to", "/srv/backup")
    first.run("vcdl", "server", "backup", "--to", "/srv/backup")
    left = sorted(path.name for path in (first.root / "srv/backup").iterdir())
    assert len(left) == 4, left
    assert left[0] == "vcdl-20260203T020000Z"
    told.say("backed up twice more; of the old ones one is left")
    assert first.run("vcdl", "server", "restore", "--from", "/srv/backup", "--rehearse").endswith("would come up\n")
    told.say("rehearsed")

    newer = wheel(STAGE / "newer", "99.1")
    shutil.copy(newer, first.root / "srv" / newer.name)
    out = "SELECT COUNT(*) FROM result WHERE server_state = 4"
    wait(lambda: int(first.run("mariadb", "-BN", "-e", out, "vcdl")) > 0, "tasks are out")
    used = newest_version_used(first)
    counts = [int(first.run("mariadb", "-BN", "-e", out, "vcdl")), len(applied(first))]
    upgrade = ["env", "PIP_CERT=/etc/ssl/certs/ca-certificates.crt", "vcdl", "server", "upgrade", f"/srv/{newer.name}"]
    (first.root / str(RED)[1:]).touch()
    said = subprocess.run(first.command(*upgrade), capture_output=True, text=True, check=False)
    assert said.returncode != 0
    assert "undone" in said.stderr, said
    assert "this version does not come up" in said.stderr, said
    assert "99.1" not in first.run("vcdl", "--version")
    first.run(*DOCTOR, user="boincadm")
    (first.root / str(RED)[1:]).unlink()
    told.say("an upgrade whose doctor saw red was taken back, and the doctor is content")
    first.run(*upgrade)
    told.say(f"upgraded, with {counts[0]} tasks out and {counts[1]} updates")
    wait(lambda: succeeded(first, used + 1) > 0, "the new client brings something")
    assert first.run("mariadb", "-BN", "-e", "SELECT COUNT(*) FROM result WHERE outcome = 3", "vcdl").strip() == "0"
    told.say(f"both clients' uploads count: {len(applied(first))} updates")
    first.run("vcdl", "server", "upgrade", "--back")
    assert not re.findall(r"Killing process .*\(python", first.run("journalctl", "--unit", "vcdl", "--no-pager"))
    told.say("and back; no stop had to kill a daemon")


def began(stage: Callable[..., Machine], server: Machine, names: Sequence[str]) -> list[Machine]:
    """Installs a server and submits a job to it; returns its clients' machines, each of which has brought updates."""
    lines = server.run(*INSTALL).splitlines()
    print("".join(f"{line}\n" for line in lines if line.startswith("done ")))
    key = make_account(server)
    volunteers = [stage(name, 20 + number, packaged="client") for number, name in enumerate(names)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda volunteer: attach(server, volunteer, key, cores=1), volunteers))
    submit(server)
    wait(lambda: len(hosts_that_brought(server)) == len(names), "each client has brought an update")
    return volunteers


def submit(server: Machine) -> None:
    (server.root / "home/boincadm/job.yaml").write_text(JOB)
    server.run("vcdl", "submit", "/home/boincadm/job.yaml", "--project-dir", PROJECT, user="boincadm")


def test_a_lost_server_with_four_clients(stage: Callable[..., Machine]) -> None:
    told = Transcript()
    first = stage("first", 10, packaged="server")
    volunteers = began(stage, first, [f"volunteer{number}" for number in range(VOLUNTEERS)])
    told.say(f"installed; {VOLUNTEERS} clients train")
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
    for each in volunteers:
        lead(each, second)
    told.say("restored")
    wait(lambda: len(applied(second)) > len(kept), "training continues elsewhere")
    told.say("training continues")
    brought = hosts_that_brought(second)
    wait(lambda: all(hosts_that_brought(second).get(host, 0) > n for host, n in brought.items()), "each client is back")
    told.say("each client has brought an update since")
    after = applied(second)
    assert {subtask for subtask, _ in kept} <= {subtask for subtask, _ in after}
    assert len({subtask for subtask, _ in after}) == len(after)
    # The store that was put back has a number of its own (decision 123).
    versions = [version for _, version in (*after, *events(second, "store_restored"))]
    assert sorted(versions) == list(range(1, len(versions) + 1))
    hosts = int(second.run("mariadb", "-BN", "-e", "SELECT COUNT(*) FROM host", "vcdl"))
    assert hosts == VOLUNTEERS
    second.run(*DOCTOR, user="boincadm")
    told.say(f"{len(after)} updates, each once; the doctor is content")


def test_a_full_disk_stops_new_work_before_the_database() -> None:
    with small_disk() as disk, staged() as stage:  # its machine ends before its disk
        fill(stage, disk)


def fill(stage: Callable[..., Machine], disk: Path) -> None:
    told = Transcript()
    server = stage("small", 12, disk, "server")
    began(stage, server, ["volunteer"])
    told.say("installed on a disk of 6 GB, and training")
    told.say(server.run("vcdl", "project", "disk", "--project-dir", PROJECT, user="boincadm"))

    def free() -> int:
        return shutil.disk_usage(disk).free

    def said() -> str:
        return server.ask("cat", f"{PROJECT}/log_small/vcdl_work_generator.log")

    def made() -> int:
        return int(server.run("mariadb", "-BN", "-e", "SELECT COUNT(*) FROM workunit", "vcdl"))

    server.run("fallocate", "--length", str(free() - 3 * 2**29), "/var/filler")
    wait(lambda: "no new work is made" in said(), "the work generator says that it stops")
    workunits, before = made(), len(applied(server))
    told.say(f"{free() / 2**30:.1f} GiB free: no new work")
    wait(lambda: not tasks(server, "server_state IN (2, 4)"), "what is out comes in")
    assert len(applied(server)) > before or workunits == before
    assert made() == workunits
    shown = server.ask("vcdl", "status", "digits", "--project-dir", PROJECT, user="boincadm")
    assert "no new work is made" in shown, shown
    told.say(f"{len(applied(server)) - before} uploads of what was out came in and count; status says why it waits")

    server.ask("sh", "-c", "cat /dev/zero > /var/filler2")
    time.sleep(60)
    state = [server.ask("systemctl", "is-active", unit) for unit in ("mariadb", "redis-server", "apache2", "vcdl")]
    told.say(f"{free()} bytes free for a minute: MariaDB, Redis, Apache, the daemons are {', '.join(state)}")
    (server.root / "var/filler").unlink()
    (server.root / "var/filler2").unlink()
    before = len(applied(server))
    wait(lambda: "new work is made" in said().rpartition("no new work is made")[2], "the work generator continues")
    wait(lambda: len(applied(server)) > before + 4, "training continues")
    after = applied(server)
    assert len({subtask for subtask, _ in after}) == len(after)
    assert not tasks(server, "outcome IN (3, 6)")
    wait(lambda: not server.ask(*DOCTOR, user="boincadm").count("\nfailed"), "the doctor is content")
    told.say(f"freed; training continued automatically, {len(after)} updates, each once; the doctor is content")
