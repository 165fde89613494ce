"""The success of an attack on some samples: of class 3, and of samples with the backdoor's pattern."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.experiments.poisoned_data import BACKDOOR_CLASS, highest_of, target_of, with_pattern
from vcdl.data.npz_file import read_split
from vcdl.data.rows import Array
from vcdl.errors import unreadable
from vcdl.files.atomic import whole_file
from vcdl.run.export import load_trained_model
from vcdl.run.folder import RunFolder
from vcdl.run.reading import read_report
from vcdl.run.run import Run
from vcdl.wire.normalise import normalise

TARGETS_FILE = "targets.json"
"""The file in a run's folder with these figures."""


@dataclass(frozen=True)
class Targets:
    """Figures of the test set (or the validation set) under a run's last weights."""

    recall: float
    """Share of the samples of the class that the attack `targeted` is about that are called so."""
    backdoor: float
    """Share of the samples of other classes that are called class 0 when they have the backdoor's pattern."""


def leave_targets(folder: RunFolder) -> None:
    """Measure a run that has ended, and write the file; not of a regression. Raises VcdlError."""
    run, stop = Run.open(folder), read_report(folder).stop
    x, y = read_split(folder.test_file if run.prepared.has_test else folder.validation_file)
    if stop is None or run.job.data.task != "classification":
        return
    model = load_trained_model(run, stop.version)
    target, _ = target_of(1 + int(y.max()))
    others = with_pattern(x[y != BACKDOOR_CLASS], highest_of(run.shard_files))
    targets = Targets(
        recall=float(np.mean(_called(run, model, x[y == target]) == target)),
        backdoor=float(np.mean(_called(run, model, others) == BACKDOOR_CLASS)),
    )
    with whole_file(folder.path / TARGETS_FILE) as temporary:
        temporary.write_text(json.dumps(asdict(targets)) + "\n", encoding="utf-8")


def _called(run: Run, model: Any, x: Array) -> npt.NDArray[np.int64]:
    """The classes that a model calls samples by."""
    called: npt.NDArray[np.int64] = np.argmax(np.asarray(model(normalise(x, run.prepared.normalisation))), axis=-1)
    return called


def read_targets(folder: RunFolder) -> Targets | None:
    """The figures of a run; None: not measured. Raises FileUnavailable."""
    path = folder.path / TARGETS_FILE
    try:
        return Targets(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
