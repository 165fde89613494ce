"""Read a task's init_data.xml.

It contains the volunteer's account key, which is neither stored nor shown in messages.
"""

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vcdl.client.slot import SlotError

INIT_DATA_FILE = "init_data.xml"
_SIZE_LIMIT_BYTES = 4_000_000
"""Largest init_data.xml that is read: it contains preferences and names, so a larger file cannot be one."""
_END = "</app_init_data>"
_VALUE = re.compile(r"<(\w+)>(.*)</\1>\s*")
PROJECT_VARIABLE, KEPT_VARIABLE = "VCDL_PROJECT", "VCDL_KEPT"
"""Variables that name a container's read-only folder of the project, and a folder that persists between tasks."""
_FOREIGN = re.compile(r"<project_preferences>.*?</project_preferences>", re.DOTALL)
"""The section of the project's preferences, which is removed because it may contain elements of any name."""


@dataclass(frozen=True)
class InitData:
    """The values that a task needs. A value that the client omits has BOINC's own default."""

    project: Path
    """The project's folder, as this process sees it."""
    client_pid: int = 0
    """Process id of the client, or 0 if unknown."""
    cpu_s: float = 0.0
    """Processor seconds of this task up to its last checkpoint."""
    elapsed_s: float = 0.0
    """Seconds that this task ran before this process."""
    checkpoint_period_s: float = 0.0
    """The volunteer's preferred seconds between checkpoints, or 0 without a preference."""
    cpus: float = 1.0
    """Number of cores that the task may use, on average."""
    memory_bytes: float = 0.0
    """The server's limit on the task's memory, or 0 if there is none."""
    gpu_type: str = ""
    """`NVIDIA`, `ATI`, …, or an empty string for a task without a GPU."""
    gpu_device: int = -1
    """Number of the device in the BOINC client's count, or -1 for none."""

    @property
    def kept(self) -> Path:
        """The folder for files that later tasks reuse: the project's, or a container's volume."""
        return Path(os.environ.get(KEPT_VARIABLE) or self.project)

    @classmethod
    def read(cls, slot: Path) -> Self:
        """Read a slot's init_data.xml.

        Raises:
            SlotError: The file is missing or invalid.
        """
        try:
            with (slot / INIT_DATA_FILE).open(encoding="utf-8", errors="surrogateescape") as file:
                text = file.read(_SIZE_LIMIT_BYTES)
        except OSError as error:
            raise SlotError(f"{INIT_DATA_FILE} cannot be read ({error.strerror}): restart the BOINC client") from error
        values = _values(text)
        return cls(
            project=Path(os.environ.get(PROJECT_VARIABLE) or values.get("project_dir", "")),
            client_pid=_whole(values, "client_pid", 0),
            cpu_s=_number(values, "wu_cpu_time", 0.0),
            elapsed_s=_number(values, "starting_elapsed_time", 0.0),
            checkpoint_period_s=_number(values, "checkpoint_period", 0.0),
            cpus=_number(values, "ncpus", 1.0),
            memory_bytes=_number(values, "rsc_memory_bound", 0.0),
            gpu_type=values.get("gpu_type", ""),
            gpu_device=_whole(values, "gpu_device_num", -1, at_least=-1),
        )


def _values(text: str) -> dict[str, str]:
    """Return the values at the top level, which are unindented, one per line.

    The file is not valid XML, because it contains unescaped folder names.
    """
    if not text.lstrip().startswith("<app_init_data>") or _END not in text:
        raise SlotError(f"{INIT_DATA_FILE} is incomplete: restart the BOINC client")
    values: dict[str, str] = {}
    for line in _FOREIGN.sub("", text).splitlines():
        match = _VALUE.fullmatch(line)
        if match is None:
            continue
        name, value = match.groups()
        # A folder's name may imitate a value. So if a name occurs twice, neither value can be trusted.
        if name in _NAMES and values.setdefault(name, value) != value:
            raise SlotError(f"{INIT_DATA_FILE} has two different values of {name}: restart the BOINC client")
    return values


_READ = """
    project_dir client_pid wu_cpu_time starting_elapsed_time checkpoint_period ncpus rsc_memory_bound gpu_type
    gpu_device_num
"""
_NAMES = frozenset(_READ.split())


def _number(values: dict[str, str], name: str, default: float) -> float:
    try:
        number = float(values.get(name, default))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise SlotError(f"{INIT_DATA_FILE}: {name} is {values[name][:40]!r}, expected a number ≥ 0")
    return number


def _whole(values: dict[str, str], name: str, default: int, at_least: int = 0) -> int:
    try:
        number = int(values.get(name, default))
    except ValueError:
        number = at_least - 1
    if number < at_least:
        raise SlotError(f"{INIT_DATA_FILE}: {name} is {values[name][:40]!r}, expected a whole number ≥ {at_least}")
    return number
