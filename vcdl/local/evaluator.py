"""Evaluate a run's versions, as `python -m vcdl.local.evaluator RUN_FOLDER`, until standard input is closed.

It may be killed at any moment: an evaluation that was not recorded is repeated.
"""

import sys
import time
from functools import partial

from vcdl.errors.backoff import POLL_S, retry
from vcdl.local.child import Log, child_main
from vcdl.loop.evaluator import Evaluator
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run


def _evaluate(folder: RunFolder, log: Log) -> None:
    run = Run.open(folder)
    journal = retry(run.journal, log)
    evaluator = retry(partial(Evaluator, run, journal), log)
    while True:
        if not retry(evaluator.run_once, log):
            time.sleep(POLL_S)


if __name__ == "__main__":
    sys.exit(child_main("evaluator", _evaluate))
