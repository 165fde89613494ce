"""The success of a backdoor: how often a run's last weights call a sample with the pattern what the pattern says."""

import json

import numpy as np

from vcdl.data.npz_file import read_split
from vcdl.errors import folder_errors, unreadable
from vcdl.files.atomic import atomic_write
from vcdl.run.export import trained_model
from vcdl.run.finding import read_report
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.simulate.poisoned_data import BACKDOOR_CLASS, highest_of, with_pattern
from vcdl.wire.normalise import normalise

BACKDOOR_FILE = "backdoor.json"
"""The file in a run's folder with the success."""


def leave_backdoor_success(folder: RunFolder) -> None:
    """Measure a run that has ended on its test set (or its validation set), and write the file. Raises VcdlError."""
    run, stop = Run.open(folder), read_report(folder).stop
    x, y = read_split(folder.test_file if run.prepared.has_test else folder.validation_file)
    if stop is None or run.job.data.task != "classification":
        return
    model = trained_model(run, stop.version)
    others = with_pattern(x[y != BACKDOOR_CLASS], highest_of(run.shard_files))
    called = np.argmax(np.asarray(model(normalise(others, run.prepared.normalisation))), axis=-1)
    success = float(np.mean(called == BACKDOOR_CLASS))
    with folder_errors(folder.path), atomic_write(folder.path / BACKDOOR_FILE) as temporary:
        temporary.write_text(json.dumps({"samples": len(others), "success": success}) + "\n", encoding="utf-8")


def read_backdoor_success(folder: RunFolder) -> float | None:
    """The share of samples of other classes that the run calls class 0 for their pattern; None: not measured.

    Raises FileUnavailable.
    """
    path = folder.path / BACKDOOR_FILE
    try:
        return float(json.loads(path.read_text(encoding="utf-8"))["success"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
