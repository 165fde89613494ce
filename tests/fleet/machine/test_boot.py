"""Real boots of the user data, with systemd and cloud-init in a container: nothing runs on."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fleet.fleet_files import settings_of
from tests.fleet.machine.metadata import AwsMetadata, served
from tests.fleet.machine.nspawn import base, booted, network_apart, work_folder
from tests.places import ROOT
from vcdl.fleet.machine.cloud_init import compress, user_data

pytestmark = [pytest.mark.soak, pytest.mark.boinc, pytest.mark.keras, pytest.mark.server, pytest.mark.process]
pytestmark += [pytest.mark.timeout(5400)]
BOINC_UNIT = ROOT / "vcdl/fleet/machine/boinc-client.conf"
_TOKEN = """
from urllib.request import Request, urlopen
headers = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
print(urlopen(Request("http://169.254.169.254/latest/api/token", None, headers, method="PUT"), timeout=5).status)
"""
ASKS = ("systemd-run", "--quiet", "--wait", "--pipe", "python3", "-c", _TOKEN)
"""A service that asks the metadata service."""


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ("lease", "drained: "),
        ("no agent", "the lease and its drain time are over since"),
        ("idle", "no subtask for 40 s: "),
        ("life", "Powering off"),
    ],
)
def test_a_machine_that_nobody_looks_after_powers_itself_off(
    ends: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its set-up can never succeed: nothing but the metadata service can be reached, and not by BOINC's client."""
    tree, metadata = base("bookworm"), AwsMetadata()
    monkeypatch.setenv("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1")
    filters = ("--system-call-filter=bpf", "--capability=CAP_NET_ADMIN,CAP_BPF")
    short = {
        "drain_s": 5,
        "idle_shutdown_s": 40 if ends == "idle" else 1800,
        "max_life_h": 0.01 if ends == "life" else 24,
    }
    settings = settings_of(tmp_path).model_copy(update=short)
    text = user_data(settings, "key")
    if ends == "life":
        text = text.replace("\nruncmd:\n", "\nruncmd:\n- [sleep, infinity]\n")  # its boot never ends
    if ends == "no agent":
        text = text.replace("from .agent import", "from .nowhere import")
    given = compress(text)
    with ExitStack() as stack:
        network, thread = stack.enter_context(network_apart())
        service = served(metadata, ("169.254.169.254", 80))
        thread.submit(service.__enter__).result()
        stack.push(service)
        metadata.mark(time.time() + (60 if ends in ("lease", "no agent") else 3600))
        folder = stack.enter_context(work_folder())
        machine = stack.enter_context(booted(folder / ends, tree, user_data=given, network=network, options=filters))
        if ends == "lease":
            machine.wait_to_hear("notice: none; lease:")
            assert machine.call(*ASKS) == "200\n"
            (denied,) = (line for line in BOINC_UNIT.read_text().splitlines() if line.startswith("IPAddressDeny="))
            assert machine.call(ASKS[0], f"--property={denied}", *ASKS[1:]) == ""
        said_s = machine.wait_to_hear(why)
        assert machine.process.wait(120) == 0, "it is off"
        print(f"{ends}: {said_s:.0f} s after the boot")
