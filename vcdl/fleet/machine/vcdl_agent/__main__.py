"""The agent's process: options, configuration, log; it ends when one of its threads dies."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

from .agent import Agent, Config


def _end_process(failure: threading.ExceptHookArgs) -> NoReturn:
    """End the process with the thread: without it the agent would miss notices. systemd starts a new one."""
    threading.__excepthook__(failure)
    os._exit(1)


def main() -> None:
    """Run the agent until SIGTERM."""
    parser = argparse.ArgumentParser(prog="vcdl_agent", description="Looks after an instance of a VCDL fleet.")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--dry-run", action="store_true", help="never power the machine off, only log it")
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    threading.excepthook = _end_process
    try:
        config = Config.parse(json.loads(options.config.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        sys.exit(f"{options.config} cannot be read ({error}): cloud-init writes it, see docs/fleet-machine.md")
    Agent(config, options.dry_run).run()


if __name__ == "__main__":
    main()
