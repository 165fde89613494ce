"""A client process for the test that kills one: `python -m tests.client.recording_client FOLDER LOG`.

It checkpoints every 0.1 s and takes its time between batches.
"""

import sys
import time
from pathlib import Path

from tests.client.workunit_folder import RecordingCache, ScriptedSupervisor
from vcdl.client.supervisor import Request
from vcdl.client.train import TrainingTerms, train_workunit


def slow(_question: int) -> Request:
    time.sleep(0.02)
    return Request.GO


if __name__ == "__main__":
    trainers = RecordingCache(Path(sys.argv[2]))
    train_workunit(Path(sys.argv[1]), ScriptedSupervisor(slow), trainers, TrainingTerms(checkpoint_every_s=0.1))
