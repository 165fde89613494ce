"""What an instance is told at its first boot: a cloud-init file, the same for both clouds.

It holds the agent, the set-up script and their settings, and the project's account key, which a BOINC client cannot do without:
whoever may read the instance's user data, or is root on it, can read the key. Use the weak one, which can fetch work and nothing else.

The programs are in it as they are, for whoever reads it. To AWS, which takes 16 KB, it goes compressed as a whole (cloud-init unpacks it):
each file compressed by itself and in base64 would be twice as much, and too much.
"""

import gzip
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import yaml

from vcdl.errors import FleetError
from vcdl.fleet.settings import FleetSettings

AGENT = "vcdl_agent"
"""The agent's package, here and on the instance."""
MOST_BYTES = 16_384
"""AWS takes no more, and counts what is compressed."""
_ETC = "/etc/vcdl"
_LIB = "/usr/local/lib/vcdl"
_PRIVATE, _PLAIN, _PROGRAM = "0600", "0644", "0755"
_UNITS = "/etc/systemd/system"
_SERVICES = ("vcdl-setup.service", "vcdl-agent.service")
_RUNTIME = ("numpy>=2.0", "h5py>=3.12", "keras>=3.10")
_TENSORFLOW = {False: "tensorflow-cpu>=2.18", True: "tensorflow[and-cuda]>=2.18"}
"""By whether GPUs are used."""
_OPTIONS = {
    "report_results_immediately": 1,
    "fetch_on_update": 1,  # the agent's updates then also ask for work
    "skip_cpu_benchmarks": 1,
    "no_info_fetch": 1,
    "max_file_xfers": 16,  # on notice all subtasks upload at once
    "max_file_xfers_per_project": 16,
}
_PREFERENCES = {
    "run_on_batteries": 1,
    "run_if_user_active": 1,
    "run_gpu_if_user_active": 1,
    "suspend_cpu_usage": 0,  # Debian's client stops above a quarter of foreign load
    "max_ncpus_pct": 100,
    "cpu_usage_limit": 100,
    "work_buf_min_days": 0,  # what waits has stale weights
    "work_buf_additional_days": 0,
    "leave_apps_in_memory": 1,
    "disk_interval": 60,
    "disk_max_used_gb": 0,  # no limit but the next two
    "disk_max_used_pct": 95,
    "disk_min_free_gb": 0.5,
    "ram_max_used_busy_pct": 95,
    "ram_max_used_idle_pct": 95,
}


def user_data(settings: FleetSettings, account_key: str) -> str:
    """The cloud-init file of a fleet's instances, the same text each time for the same arguments. It holds the key: never log it.

    Raises FleetError when it is larger than AWS allows, compressed.
    """
    gpus = _uses_gpus(settings)
    agent = {
        "cloud": settings.cloud,
        "project_url": settings.project.url,
        "unreachable_s": settings.shutdown_when_unreachable_s,
        "drain_s": settings.drain_s,
    }
    options = {**_OPTIONS, **({} if gpus else {"no_gpus": 1})}
    document = {
        "write_files": [
            *(_shipped(f"{_LIB}/{AGENT}/{name}", f"{AGENT}/{name}") for name in _agent_files()),
            _shipped(f"{_LIB}/setup.sh", "setup.sh", _PROGRAM),
            *(_shipped(f"{_UNITS}/{name}", name) for name in _SERVICES),
            _shipped(f"{_UNITS}/boinc-client.service.d/vcdl.conf", "boinc-client.conf"),
            _written(f"{_ETC}/agent.json", json.dumps(agent, indent=1)),
            _written(f"{_ETC}/project_url", settings.project.url),
            _written(f"{_ETC}/account_key", account_key, _PRIVATE),
            _written(f"{_ETC}/requirements.txt", "\n".join((*_RUNTIME, _TENSORFLOW[gpus]))),
            _written(f"{_ETC}/cc_config.xml", _xml({"cc_config": {"options": options}})),
            _written(f"{_ETC}/global_prefs_override.xml", _xml({"global_preferences": _PREFERENCES})),
        ],
        "runcmd": [
            ["systemctl", "daemon-reload"],
            # Not waited for: the set-up takes minutes, and the agent is there from the beginning.
            ["systemctl", "enable", "--now", "--no-block", *_SERVICES],
        ],
    }
    text = "#cloud-config\n" + yaml.dump(document, Dumper=_Readable, sort_keys=False, width=MOST_BYTES)
    if (size := len(compressed(text))) > MOST_BYTES:
        raise FleetError(f"the instances' user data has {size} bytes, and AWS takes {MOST_BYTES}: shorten project.url")
    return text


def compressed(user_data: str) -> bytes:
    """As it is sent: the same bytes each time."""
    return gzip.compress(user_data.encode(), 9, mtime=0)


class _Readable(yaml.SafeDumper):
    """Writes a file's lines as lines."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _Readable.represent_text)


def _uses_gpus(settings: FleetSettings) -> bool:
    requirements = settings.instances.requirements
    return settings.capacity.unit == "gpu" or (requirements is not None and requirements.gpus.holds(1))


def _written(path: str, content: str, mode: str = _PLAIN) -> dict[str, str]:
    return {"path": path, "permissions": mode, "content": f"{content}\n"}


def _shipped(path: str, name: str, mode: str = _PLAIN) -> dict[str, str]:
    """A file of this package, as it is."""
    return {"path": path, "permissions": mode, "content": files(__package__).joinpath(name).read_text("utf-8")}


def _agent_files() -> list[str]:
    return sorted(file.name for file in files(__package__).joinpath(AGENT).iterdir() if file.name.endswith(".py"))


def _xml(content: Mapping[str, Any]) -> str:
    """Elements of whole words and numbers: nothing to escape."""
    return "\n".join(
        f"<{name}>\n{_xml(value)}\n</{name}>" if isinstance(value, Mapping) else f"<{name}>{value}</{name}>"
        for name, value in content.items()
    )
