"""systemd, asked and told through systemctl."""

from __future__ import annotations

import subprocess

from .log import logger

_TIMEOUT_S = 10.0


def systemctl(command: str) -> str:
    """What it answers; nothing when it cannot."""
    try:
        done = subprocess.run(["systemctl", command], stdout=subprocess.PIPE, timeout=_TIMEOUT_S, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.error("systemctl %s: %s", command, error)
        return ""
    return done.stdout.strip()
