"""The start and the end of a short local run, in units of `import keras` beside it.

    python -m benchmarks.bench_run_start [--rounds 5] [--job examples/digits.yaml] [--beside CHECKOUT] [--json]

In turn, in each round: a Python that imports Keras; Keras' own `fit` for one epoch, in a process of its own; `vcdl run`
of the job for one epoch; a run that is refused, since its labels are more than its model has outputs. Medians over the
rounds of what each took, by the clock and by the processor (all of its processes), divided by the import of the same
round; and the most memory that all processes had at once, shared pages counted once (PSS), divided by that of `fit`.
`--beside` does the same with another checkout, in turn.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.peak_memory import PeakMemory
from vcdl.journal.events import UpdateApplied, VersionEvaluated
from vcdl.journal.journal import Journal

ROOT = Path(__file__).resolve().parent.parent
_FIT = """
import keras
from sklearn.datasets import load_digits
x, y = load_digits(return_X_y=True)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10, "softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x / 16, y, 16, verbose=0, validation_split=0.2)
"""
_REFUSED = """
import keras, numpy as np
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
model.save("model.keras")
np.savez("data.npz", x_train=np.zeros((100, 4), np.float32), y_train=np.arange(100) % 7)
open("job.yaml", "w").write("name: refused\\nmodel: {keras: model.keras}\\ndata: {npz: data.npz, shards: 2}\\n")
"""
_SAMPLED_EVERY_S = 0.2


@dataclass(frozen=True)
class Cost:
    """What a process took, with its children."""

    begun_s: float
    wall_s: float
    processor_s: float
    peak_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--job", type=Path, default=ROOT / "examples" / "digits.yaml")
    parser.add_argument("--beside", type=Path, help="another checkout")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    checkouts = {"this checkout": ROOT} | ({"the other": options.beside.resolve()} if options.beside else {})
    figures: dict[str, dict[str, list[float]]] = {name: {} for name in checkouts}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", _REFUSED], cwd=folder, check=True, stderr=subprocess.DEVNULL)
        for number in range(options.rounds):
            keras = cost(["-c", "import keras"], ROOT)
            fit = cost(["-c", _FIT], ROOT)
            for name, checkout in checkouts.items():
                of_run = run(checkout, options.job.resolve(), Path(folder) / f"{name}-{number}", keras, fit)
                of_run |= refusal(checkout, Path(folder), keras)
                for what, value in of_run.items():
                    figures[name].setdefault(what, []).append(value)
    medians = {name: {what: statistics.median(values) for what, values in of.items()} for name, of in figures.items()}
    if options.json:
        print(json.dumps(medians))
        return
    for name, values in medians.items():
        print(name)
        for what, value in values.items():
            print(f"  {what:50} {value:8.2f}")


def run(checkout: Path, job: Path, folder: Path, keras: Cost, fit: Cost) -> dict[str, float]:
    """Train a job for an epoch; returns what it took."""
    took = cost(["-m", "vcdl", "run", str(job), "--out", str(folder), "--set", "stop.epochs=1"], checkout)
    with contextlib.closing(Journal.read_only(folder / "journal.db")) as journal:
        rows = journal.read()
    update_s = next(row.time_s for row in rows if isinstance(row.event, UpdateApplied))
    evaluation_s = next(row.time_s for row in rows if isinstance(row.event, VersionEvaluated))
    return {
        "first update, of the import": (update_s - took.begun_s) / keras.wall_s,
        "first evaluation, of the import": (evaluation_s - took.begun_s) / keras.wall_s,
        "whole command, of the import": took.wall_s / keras.wall_s,
        "whole command, processor time": took.processor_s / keras.processor_s,
        "whole command, of fit": took.wall_s / fit.wall_s,
        "memory, of fit's": took.peak_bytes / fit.peak_bytes,
        "import, s": keras.wall_s,
        "import, processor s": keras.processor_s,
    }


def refusal(checkout: Path, folder: Path, keras: Cost) -> dict[str, float]:
    """Run a job that is refused; returns what that took."""
    took = cost(["-m", "vcdl", "run", "job.yaml", "--out", "refused"], checkout, folder, status=5)
    return {
        "refusal, of the import": took.wall_s / keras.wall_s,
        "refusal, processor time": took.processor_s / keras.processor_s,
    }


def cost(
    arguments: Sequence[str],
    checkout: Path,
    folder: Path | None = None,
    status: int = 0,
    output: IO[str] | None = None,
) -> Cost:
    """What a Python with these arguments takes, with the package of a checkout; `output`: where it prints to."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "TF_CPP_MIN_LOG_LEVEL": "3"}
    before, begun_s, begun = _processor_s(), time.time(), time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder or checkout,
        env=environment,
        stdout=output or subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with PeakMemory(process.pid, _SAMPLED_EVERY_S) as memory:
        process.wait()
        wall_s = time.monotonic() - begun
    if process.returncode != status:
        raise SystemExit(f"python {' '.join(arguments)}: ended with {process.returncode}")
    return Cost(begun_s, wall_s, _processor_s() - before, memory.peak_bytes)


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
