"""The dead man's switch: power off once the lease is over for the drain time, whatever became of agent and tasks.

    python3 -m vcdl_agent.lease_end /etc/vcdl/agent.json

systemd starts it every 30 s (vcdl-lease.timer), so nothing of ours has to survive. While the metadata do not answer the
last known lease holds; a machine that never knew one has `lease_s` from its boot.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from contextlib import suppress
from pathlib import Path

from .boinc import systemctl
from .watches import CLOUDS

_GRACE_S = 30.0
"""Seconds left to the agent, so that it can power off in good order first."""


def _until_s(config: dict[str, str], known: Path, boot_s: float) -> float:
    """Return the Unix time of the lease's end."""
    with suppress(OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        if (mark := CLOUDS[config["cloud"]](config.get("metadata_url", "")).read().until) is not None:
            if not mark.isdecimal():
                return time.time()  # somebody else's mark: the agent drains, the next mark counts
            with suppress(OSError):
                known.write_text(mark)
            return float(mark)
    with suppress(OSError, ValueError):
        return float(known.read_text())
    return boot_s + float(config["lease_s"])


def main() -> None:
    """Check the lease once."""
    config = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    known = Path(config.get("state_folder", "/var/lib/vcdl")) / "until_s"
    over_s = time.time() - _until_s(config, known, time.time() - uptime_s) - float(config["drain_s"])
    if over_s >= _GRACE_S:
        print(f"the lease and its drain time are over since {over_s:.0f} s: the machine is powered off", flush=True)
        systemctl("poweroff")


if __name__ == "__main__":
    main()
