"""The user data of an instance: cloud-init's own check, the content, and the size."""

import json
import random
import re
import shlex
import subprocess
import xml.etree.ElementTree as ET
from configparser import ConfigParser
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fleet.fleet_files import settings_of
from tests.http_server import served_by
from tests.places import ROOT
from tests.store_servers import needs
from vcdl.errors import FleetError
from vcdl.fleet.gcp.launch import metadata_items
from vcdl.fleet.machine.cloud_init import compress, user_data
from vcdl.fleet.settings import FleetSettings

MACHINE = ROOT / "vcdl" / "fleet" / "machine"
KEY = "17_0123456789abcdef0123456789abcdef"
ACCOUNT = "/etc/vcdl/account_boinc.example.org_mine.xml"


def on_gcp(folder: Path) -> FleetSettings:
    return settings_of(folder, "cloud=gcp", "gcp_project=my-project", "places=[{region: us-central1}]")


def written(text: str) -> dict[str, tuple[str, str]]:
    """Permissions and content of each file that cloud-init writes, by path."""
    return {file["path"]: (file["permissions"], file["content"]) for file in yaml.safe_load(text)["write_files"]}


def incompressible(length: int) -> str:
    return random.Random(1).randbytes(length // 2).hex()


def options(text: str, name: str) -> dict[str, str | None]:
    """The options in one of the BOINC client's XML files."""
    root = ET.fromstring(written(text)[f"/etc/vcdl/{name}"][1])
    return {element.tag: element.text for element in root.iter() if len(element) == 0}


@pytest.mark.process
@pytest.mark.parametrize("settings", [settings_of, on_gcp], ids=["aws", "gcp"])
def test_cloud_init_finds_no_fault_with_it(settings: Any, tmp_path: Path) -> None:
    needs("cloud-init")
    path = tmp_path / "user-data"
    path.write_text(user_data(settings(tmp_path), KEY))
    done = subprocess.run(["cloud-init", "schema", "--config-file", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Valid" in done.stdout


@pytest.mark.process
def test_cloud_init_unpacks_what_aws_gets(tmp_path: Path) -> None:
    needs("cloud-init")
    text = user_data(settings_of(tmp_path), KEY)
    script = (
        "import sys; from cloudinit.user_data import convert_string as c; "
        "sys.stdout.buffer.write(c(sys.stdin.buffer.read()).get_payload(decode=True))"
    )
    done = subprocess.run(["/usr/bin/python3", "-c", script], input=compress(text), stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode() == text


@pytest.mark.server
def test_cloud_init_reads_what_the_metadata_of_gcp_hold(tmp_path: Path) -> None:
    """Read by cloud-init's own code."""
    needs("cloud-init")
    text = user_data(on_gcp(tmp_path), KEY)
    instance = tmp_path / "instance"
    (instance / "attributes").mkdir(parents=True)
    for name in ("id", "zone", "hostname"):
        (instance / name).write_text(name)
    attributes = {item["key"]: item["value"] for item in metadata_items(text)}
    (instance / "attributes" / "index.html").write_text(json.dumps(attributes))
    script = (
        "import sys; from types import SimpleNamespace; from cloudinit.sources.DataSourceGCE import read_md; "
        "from cloudinit.user_data import convert_string as c; "
        "read = read_md(sys.argv[1], SimpleNamespace(num_retries=0, sec_between_retries=0), False); "
        "sys.stdout.buffer.write(c(read['user-data']).get_payload(decode=True))"
    )
    with served_by(partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as url:
        done = subprocess.run(["/usr/bin/python3", "-c", script, f"{url}/"], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode() == text


def test_more_than_aws_takes_is_refused_before_a_launch(tmp_path: Path) -> None:
    long = incompressible(40_000)
    with pytest.raises(FleetError, match="AWS accepts 16384") as refused:
        user_data(settings_of(tmp_path), long)
    assert long[:40] not in str(refused.value)


def test_the_key_is_in_one_file_that_only_root_can_read(tmp_path: Path) -> None:
    text = user_data(settings_of(tmp_path), KEY)
    files = written(text)
    assert [path for path, (_, content) in files.items() if KEY in content] == [ACCOUNT]
    assert files[ACCOUNT] == (
        "0600",
        "<account>\n<master_url>https://boinc.example.org/mine/</master_url>\n"
        f"<authenticator>{KEY}</authenticator>\n</account>\n",
    )
    assert text.count(KEY) == 1


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://BOINC.example.org/Mine", "boinc.example.org_Mine"),
        ("https://boinc.example.org:8080//a&b/c_/", "boinc.example.org_8080_a_b_c_"),
        ("https://boinc.example.org", "boinc.example.org"),
    ],
)
def test_the_account_is_in_the_file_in_which_the_client_keeps_it(tmp_path: Path, url: str, name: str) -> None:
    files = written(user_data(settings_of(tmp_path, f"project.url={url}"), KEY))
    account = ET.fromstring(files[f"/etc/vcdl/account_{name}.xml"][1])
    assert account.findtext("master_url") == url


def test_the_programs_arrive_unchanged(tmp_path: Path) -> None:
    files = written(user_data(settings_of(tmp_path), KEY))
    agent = {
        path: content for path, (_, content) in files.items() if path.startswith("/usr/local/lib/vcdl/vcdl_agent/")
    }
    assert agent == {
        f"/usr/local/lib/vcdl/vcdl_agent/{path.name}": path.read_text() for path in MACHINE.glob("vcdl_agent/*.py")
    }
    assert files["/usr/local/lib/vcdl/setup.sh"] == ("0755", (MACHINE / "setup.sh").read_text())
    for name in ("vcdl-agent.service", "vcdl-setup.service", "vcdl-lease.service", "vcdl-lease.timer"):
        assert files[f"/etc/systemd/system/{name}"][1] == (MACHINE / name).read_text()


@pytest.mark.process
def test_the_agent_is_complete_and_starts_as_its_unit_says(tmp_path: Path) -> None:
    files = written(user_data(settings_of(tmp_path), KEY))
    unit = ConfigParser(interpolation=None)
    unit.read_string(files["/etc/systemd/system/vcdl-agent.service"][1])
    machine = tmp_path / "machine"
    for path, (_, content) in files.items():
        (machine / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (machine / path[1:]).write_text(content)
    before = sorted(machine.rglob("*"))
    command, folder = shlex.split(unit["Service"]["ExecStart"]), machine / unit["Service"]["WorkingDirectory"][1:]
    done = subprocess.run([*command, "--help"], cwd=folder, env={}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--dry-run" in done.stdout
    assert sorted(machine.rglob("*")) == before, "and writes nothing beside itself"


def test_the_agents_settings_are_those_of_the_fleet_file(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "idle_shutdown_s=700", "drain_s=500")
    agent = json.loads(written(user_data(settings, KEY))["/etc/vcdl/agent.json"][1])
    assert agent == {
        "cloud": "aws",
        "project_url": "https://boinc.example.org/mine/",
        "idle_s": 700,
        "max_life_s": 86400,
        "lease_s": 7200,
        "drain_s": 500,
    }


@pytest.mark.parametrize(
    ("overrides", "gpus"),
    [
        ((), False),
        (("capacity.unit=gpu", "image=ami-1"), True),
        (("instances={requirements: {vcpus: {min: 4}}}",), False),
    ],
)
def test_gpus_are_used_when_the_fleet_has_them(overrides: tuple[str, ...], gpus: bool, tmp_path: Path) -> None:
    text = user_data(settings_of(tmp_path, *overrides), KEY)
    assert ("no_gpus" not in options(text, "cc_config.xml")) == gpus
    assert ("nvidia-cudnn" in written(text)["/etc/vcdl/requirements.txt"][1]) == gpus
    (account,) = [content for path, (_, content) in written(text).items() if "/account_" in path]
    assert ("<no_cpu>1</no_cpu>" in account.replace("\n", "")) == gpus, "or CPU tasks take a dear machine"


@pytest.mark.parametrize("unit", ["vcpu", "gpu"])
def test_packages_are_those_of_the_lock_file_with_hashes(unit: str, tmp_path: Path) -> None:
    text = user_data(settings_of(tmp_path, f"capacity.unit={unit}", "image=ami-1"), KEY)
    lines = written(text)["/etc/vcdl/requirements.txt"][1].split("\n")
    pins = [line.split()[0] for line in lines if line]
    locked = (ROOT / "requirements.lock").read_text()
    known = set(re.findall(r"^(\S+==\S+)", locked, re.MULTILINE))
    names = {pin.partition("==")[0] for pin in known}
    assert {"numpy", "keras", "h5py"} <= {pin.partition("==")[0] for pin in pins}
    assert [pin for pin in pins if pin.partition("==")[0] in names and pin not in known] == [], "run `make lock`"
    digests = [re.findall("--hash=sha256:([0-9a-f]{64})( |$)", line) for line in lines if line]
    assert all(digests), "pip refuses a package without one"
    if unit == "vcpu":
        assert set(pins) <= known
        assert all(digest in locked for found in digests for digest, _ in found)


def test_nothing_listens_unless_the_fleet_file_says_so(tmp_path: Path) -> None:
    closed = ["systemctl", "mask", "--now", "--no-block", "ssh.socket", "ssh"]
    assert closed in yaml.safe_load(user_data(settings_of(tmp_path), "key"))["bootcmd"]
    assert closed not in yaml.safe_load(user_data(settings_of(tmp_path, "ssh=true"), "key"))["bootcmd"]


def test_a_machine_ends_itself_however_far_its_boot_came(tmp_path: Path) -> None:
    """Units wait for the end of the boot, which waits for cloud-init, unless they have no default dependencies."""
    *_, ends = yaml.safe_load(user_data(settings_of(tmp_path), "key"))["bootcmd"]
    assert {"--property=DefaultDependencies=no", "--timer-property=DefaultDependencies=no"} <= set(ends)
    assert f"--on-active={86_400 + 930}" in ends


@pytest.mark.process
def test_systemd_finds_no_fault_with_the_units(tmp_path: Path) -> None:
    needs("systemd-analyze")
    for path, (_, content) in written(user_data(settings_of(tmp_path), KEY)).items():
        if path.endswith((".service", ".timer")):
            content = content.replace("/usr/local/lib/vcdl/setup.sh", "/bin/true")  # missing on this machine
            (tmp_path / Path(path).name).write_text(content)
    units = [str(path) for path in sorted(tmp_path.glob("vcdl-*"))]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if "vcdl-" in line]
    assert (len(units), ours) == (4, [])
