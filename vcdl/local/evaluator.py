"""`python -m vcdl.local.evaluator RUN_FOLDER`: may be killed and started again at any time, until its input closes."""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from vcdl.errors.backoff import POLL_S, retry
from vcdl.local.child import end_with_parent, log_lines, run_child
from vcdl.loop.evaluator import Evaluator
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run


def _evaluate(folder: RunFolder, log: Callable[[str], None]) -> None:
    run = Run.open(folder)
    journal = retry(run.journal, log)
    evaluator = retry(partial(Evaluator, run, journal), log)
    while True:
        if not retry(evaluator.run_once, log):
            time.sleep(POLL_S)


def main(path: str) -> int:
    """Evaluate until the standard input closes."""
    end_with_parent()
    log = log_lines("evaluator")
    return run_child(lambda: _evaluate(RunFolder.existing(Path(path)), log), log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
