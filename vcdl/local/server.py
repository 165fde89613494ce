"""`python -m vcdl.local.server RUN_FOLDER`: folds uploads of the folder in until its standard input closes. It may be
killed at any moment, and waits while the store is away or a disk full.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from vcdl.errors import StoreLost
from vcdl.errors.backoff import retry
from vcdl.journal.kept_state import kept_history
from vcdl.local.child import end_with_parent, log_lines, run_child
from vcdl.local.upload_folder import UploadFolder
from vcdl.loop.parameter_server import ParameterServer
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run

_POLL_S = 0.02


def _serve(run: Run, log: Callable[[str], None]) -> None:
    journal = retry(run.journal, log)
    server = retry(partial(ParameterServer.of, run, journal, UploadFolder(run.folder)), log)
    is_ready, is_lost = False, False
    while True:
        try:
            if is_lost:
                retry(server.restore, log)
                is_lost = False
            if not is_ready:
                retry(server.catch_up, log)
                is_ready = True
            if not retry(server.run_once, log):
                time.sleep(_POLL_S)
        except StoreLost as lost:
            if kept_history(journal).advance().stop is not None:
                return  # its weights were dropped
            log(str(lost))
            is_lost = True


def main(path: str) -> int:
    """Serve until the standard input closes."""
    end_with_parent()
    log = log_lines("parameter server")
    return run_child(lambda: _serve(Run.open(RunFolder.existing(Path(path))), log), log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
