"""Build the cloud-init file of an instance's first boot, for both clouds.

It contains the agent, the set-up script, settings and the account key. Whoever can read the user data can read that
key, so it must be the weak one.

AWS accepts 16 KB of user data. The file is compressed as a whole, which takes half as much space as compressing each
file in it.
"""

import gzip
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any
from xml.sax.saxutils import escape

import yaml

from vcdl.errors import FleetError
from vcdl.fleet.settings import CLOUDS, GRACE_S, FleetSettings

_AGENT = "vcdl_agent"
"""Name of the agent's package, here and on the instance."""
MAX_BYTES = 16_384
"""AWS's limit for user data, which holds for the compressed file."""
_ETC = "/etc/vcdl"
_LIB = "/usr/local/lib/vcdl"
_PRIVATE, _PLAIN, _PROGRAM = "0600", "0644", "0755"
_UNITS = "/etc/systemd/system"
_STARTED = ("vcdl-setup.service", "vcdl-agent.service", "vcdl-lease.timer")
_OPTIONS = {
    "report_results_immediately": 1,
    "fetch_on_update": 1,  # the agent's updates then also ask for work
    "skip_cpu_benchmarks": 1,
    "no_info_fetch": 1,
    "max_file_xfers": 16,  # on notice all subtasks upload at the same time
    "max_file_xfers_per_project": 16,
}
_PREFERENCES = {
    "run_on_batteries": 1,
    "run_if_user_active": 1,
    "run_gpu_if_user_active": 1,
    "suspend_cpu_usage": 0,  # Debian's client pauses above a quarter of other load
    "max_ncpus_pct": 100,
    "cpu_usage_limit": 100,
    "work_buf_min_days": 0,  # waiting subtasks get stale weights
    "work_buf_additional_days": 0,
    "leave_apps_in_memory": 1,
    "disk_interval": 60,
    "disk_max_used_gb": 0,  # only the next two limits apply
    "disk_max_used_pct": 95,
    "disk_min_free_gb": 0.5,
    "ram_max_used_busy_pct": 95,
    "ram_max_used_idle_pct": 95,
}


def user_data(settings: FleetSettings, account_key: str) -> str:
    """Return the cloud-init file of a fleet's instances, which contains the account key: never log it.

    Args:
        settings: The fleet file.
        account_key: The account's weak key.

    Raises:
        FleetError: The compressed file exceeds AWS's limit, whichever cloud the fleet is in.
    """
    gpus = settings.capacity.unit == "gpu"
    life_s = settings.max_life_h * 3600 + settings.drain_s + GRACE_S
    # Have systemd power off at the end of life, even if nothing of ours runs. Without DefaultDependencies=no the timer
    # would wait for the end of the boot, which waits for cloud-init, which runs this command.
    apart = [f"--{prefix}property=DefaultDependencies=no" for prefix in ("timer-", "")]
    at_each_boot = [["systemd-run", "--no-block", *apart, f"--on-active={life_s:.0f}", "systemctl", "poweroff"]]
    if not settings.ssh:  # nothing listens on an instance, whatever its network lets in
        at_each_boot.insert(0, ["systemctl", "mask", "--now", "--no-block", "ssh.socket", "ssh"])
    # Do not wait: the set-up takes minutes, and the agent runs from the start.
    begun = [["systemctl", "enable", "--now", "--no-block", *_STARTED]]
    agent_files = sorted(file.name for file in files(__package__).joinpath(_AGENT).iterdir() if file.name[-3:] == ".py")
    agent = {
        "cloud": CLOUDS[settings.cloud].metadata_service,
        "project_url": settings.project.url,
        "idle_s": settings.idle_shutdown_s,
        "max_life_s": settings.max_life_h * 3600,
        "lease_s": settings.lease_s,
        "drain_s": settings.drain_s,
    }
    document = {
        "write_files": [
            *(_file_entry(f"{_LIB}/{_AGENT}/{name}", read_shipped(f"{_AGENT}/{name}")) for name in agent_files),
            _file_entry(f"{_LIB}/setup.sh", read_shipped("setup.sh"), _PROGRAM),
            _file_entry(f"{_LIB}/attach.sh", read_shipped("attach.sh")),
            *(_file_entry(f"{_UNITS}/{name}", read_shipped(name)) for name in (*_STARTED, "vcdl-lease.service")),
            _file_entry(f"{_UNITS}/boinc-client.service.d/vcdl.conf", read_shipped("boinc-client.conf")),
            _file_entry(f"{_ETC}/agent.json", json.dumps(agent, indent=1) + "\n"),
            _file_entry(f"{_ETC}/requirements.txt", read_shipped(f"requirements-{'gpu' if gpus else 'cpu'}.txt")),
            *(
                _file_entry(f"{_ETC}/{name}", f"{content}\n", _PRIVATE if name.startswith("account_") else _PLAIN)
                for name, content in client_files(settings.project.url, account_key, gpus, not gpus).items()
            ),
        ],
        "bootcmd": at_each_boot,
        "runcmd": [["systemctl", "daemon-reload"], *begun],
    }
    text = "#cloud-config\n" + yaml.dump(document, Dumper=_ReadableYaml, sort_keys=False, width=MAX_BYTES)
    if (size := len(compress(text))) > MAX_BYTES:
        raise FleetError(f"the instances' user data has {size} bytes, but AWS accepts {MAX_BYTES}: shorten project.url")
    return text


def client_files(url: str, account_key: str, gpus: bool, cpus: bool = True) -> dict[str, str]:
    """Return the files with which a BOINC client attaches to a project when it starts, name → content.

    Args:
        url: The project's URL, with a slash at the end.
        account_key: The account's weak key.
        gpus: Let the client use GPUs.
        cpus: Let the client accept CPU tasks. If the account has project preferences, they replace this setting.
    """
    options = {**_OPTIONS, **({} if gpus else {"no_gpus": 1})}
    account = {"master_url": escape(url), "authenticator": account_key}
    only_gpus = {} if cpus else {"project_preferences": {"no_cpu": 1}}
    return {
        "cc_config.xml": _xml({"cc_config": {"options": options}}),
        "global_prefs_override.xml": _xml({"global_preferences": _PREFERENCES}),
        _account_file(url): _xml({"account": {**account, **only_gpus}}),
    }


def compress(user_data: str) -> bytes:
    """Compress user data with gzip; equal input gives equal bytes, on which the name of a launch template depends."""
    return gzip.compress(user_data.encode(), 9, mtime=0)


class _ReadableYaml(yaml.SafeDumper):
    """A YAML dumper that writes text of several lines as a block."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_ReadableYaml.add_representer(str, _ReadableYaml.represent_text)


def _file_entry(path: str, content: str, mode: str = _PLAIN) -> dict[str, str]:
    """Return an entry of cloud-init's `write_files`."""
    return {"path": path, "permissions": mode, "content": content}


def read_shipped(name: str) -> str:
    """Return the text of a file of this package, by its path within the package."""
    return files(__package__).joinpath(name).read_text("utf-8")


def _account_file(url: str) -> str:
    """Return the name that BOINC's client gives the account file of a project.

    If the file had another name, the client would create a second one.
    """
    # Do exactly what escape_project_url in BOINC's client does.
    _, _, rest = url.partition("://")
    host, _, path = re.sub("/+", "/", f"{rest}/").partition("/")
    return (
        f"account_{re.sub(rb'[^A-Za-z0-9._-]', b'_', f'{host.lower()}/{path}'.encode()).decode().removesuffix('_')}.xml"
    )


def _xml(content: Mapping[str, Any]) -> str:
    """Format nested values as XML; nothing is escaped, so texts must have been."""
    return "\n".join(
        f"<{name}>\n{_xml(value)}\n</{name}>" if isinstance(value, Mapping) else f"<{name}>{value}</{name}>"
        for name, value in content.items()
    )
