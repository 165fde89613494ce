"""`python -m vcdl.local.evaluator RUN_FOLDER`: evaluate until standard input is closed; may be killed any time."""

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
