"""Run a parameter server, `python -m vcdl.local.server RUN_FOLDER`, until standard input is closed.

It applies the uploads in the run's folder, and may be killed at any moment. While the store is unreachable or the disk
is full, it waits.
"""

import sys
import time
from functools import partial

from vcdl.errors import StoreLost
from vcdl.errors.backoff import retry
from vcdl.journal.kept_state import kept_history
from vcdl.local.child import Log, child_main
from vcdl.local.upload_folder import UploadFolder
from vcdl.loop.parameter_server import ParameterServer
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run

_POLL_S = 0.02
"""Seconds between two checks for uploads. An upload waits for half of this on average, and a check is cheap, as it
lists a single folder."""


def _serve(folder: RunFolder, log: Log) -> None:
    run = Run.open(folder)
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
                return  # the run has ended, and its weights were deleted from the store
            log(str(lost))
            is_lost = True


if __name__ == "__main__":
    sys.exit(child_main("parameter server", _serve))
