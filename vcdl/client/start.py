"""The zipapp's begin: a delivered Python unpacks its packages, then the client is imported, which needs them.

BOINC's client is not heard meanwhile, which is a minute at most: whatever it ends, the next task removes.
"""

import logging
import sys
from pathlib import Path
from typing import NoReturn

from vcdl.client.channels import CHANNELS_FILE
from vcdl.client.resources import Shortage, shortage_of
from vcdl.client.runtime import RuntimeUnusable, make_ready
from vcdl.client.slot import EXIT_INIT_FAILURE, tell_postponed

POSTPONED_S = 600
"""BOINC's own delay for a task that finds too little memory."""
_log = logging.getLogger(__name__)


def run() -> NoReturn:
    """Make this Python ready, train the task in the current folder and exit."""
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S")
    logging.getLogger("vcdl").setLevel(logging.INFO)
    try:
        make_ready()
    except (OSError, RuntimeUnusable, Shortage) as error:
        _end(Path.cwd(), error)
    from vcdl.client import boinc

    boinc.run()


def _end(slot: Path, error: Exception) -> NoReturn:
    """Postpone the task where something is short, and fail otherwise; BOINC's wrapper cannot postpone."""
    lacking = shortage_of(error)
    if lacking is not None and (slot / CHANNELS_FILE).exists():
        try:
            tell_postponed(slot, POSTPONED_S, lacking)
        except OSError as full:
            error = full
        else:
            _log.warning("postponed for %d s: %s", POSTPONED_S, lacking)
            sys.exit(0)
    _log.error("failed: %s", error)
    sys.exit(EXIT_INIT_FAILURE)
