"""The agent's configuration, /etc/vcdl/agent.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .metadata import CLOUDS


@dataclass(frozen=True)
class Config:
    """What cloud-init wrote down for this machine."""

    cloud: str
    """`aws` or `gcp`."""
    project_url: str
    unreachable_s: float
    """Of no use for so long, the machine is powered off."""
    drain_s: float
    """How long a drained machine is left running."""
    boinc_folder: str = "/var/lib/boinc"
    state_folder: str = "/var/lib/vcdl"
    boinccmd: tuple[str, ...] = ("boinccmd",)
    metadata_url: str = ""
    """Empty: the cloud's own."""

    @classmethod
    def read(cls, path: Path) -> Config:
        """Raises OSError, ValueError and TypeError."""
        config = cls(**json.loads(path.read_text(encoding="utf-8")))
        if config.cloud not in CLOUDS:
            raise ValueError(f"there is no cloud {config.cloud!r}")
        return config
