"""The agent's process: its options, its log, and its end should one of its threads die."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

from .agent import Agent
from .config import Config


def _end_process(failure: threading.ExceptHookArgs) -> NoReturn:
    """A thread that died would leave a deaf agent: systemd starts a new one."""
    threading.__excepthook__(failure)
    os._exit(1)


def main() -> None:
    """Look after this machine."""
    parser = argparse.ArgumentParser(prog="vcdl_agent", description="Looks after an instance of a VCDL fleet.")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--dry-run", action="store_true", help="never power the machine off, only say so")
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    threading.excepthook = _end_process
    try:
        config = Config.read(options.config)
    except (OSError, ValueError, TypeError) as error:
        sys.exit(f"{options.config} cannot be read ({error}): it is written by cloud-init, see docs/fleet-machine.md")
    Agent(config, options.dry_run).run()


if __name__ == "__main__":
    main()
