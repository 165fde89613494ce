"""The evaluator of a local run in a process of its own.

`python -m vcdl.local.evaluator RUN_FOLDER` may be killed and started again at any moment. It waits while its disk is
full, and ends when its standard input closes.
"""

import sys
import time
from functools import partial
from pathlib import Path

from vcdl.backoff import retry
from vcdl.errors import VcdlError
from vcdl.local.child import end_with_parent, log_lines
from vcdl.loop.evaluator import Evaluator
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run

_POLL_S = 0.1


def main(path: str) -> int:
    """Evaluate until the standard input closes."""
    end_with_parent()
    log = log_lines("evaluator")
    try:
        run = Run.open(RunFolder.existing(Path(path)))
        journal = retry(run.journal, log)
        evaluator = retry(partial(Evaluator, run, journal), log)
        while True:
            if not retry(evaluator.run_once, log):
                time.sleep(_POLL_S)
    except VcdlError as error:
        log(str(error))
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
