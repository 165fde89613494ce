"""The cost of a simulation beside its training: processor time of `vcdl simulate`'s own process for an update.

    python -m benchmarks.bench_simulate [--clients 1000] [--shards 1000] [--epochs 3] [--trust strangers] [--keep DIR]

A job on made-up data in shards of ten samples, with one slot a client, so that each workunit starts from weights of its
own. Worker processes train and are not counted. The evaluator runs the model in this process, also to train uploads
again, and is counted apart. Measured from the end of the first epoch to the last update: processor time and not wall
time, as other work of the machine does not change it much. At the end stands a digest of journal and weights: two
versions of VCDL that give the same one did the same.
"""

import argparse
import hashlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.job import Job
from vcdl.journal.events import Recorded, UpdateApplied
from vcdl.journal.journal import Journal
from vcdl.journal.observer import RunObserver
from vcdl.run.folder import RunFolder
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.simulation import simulate
from vcdl.simulate.virtual_run import InstantEvaluator

_SAMPLES = 10
_FEATURES = 64
_CLASSES = 10


class _Meter(RunObserver):
    """Processor times of the main thread, from the first update after a number of them on."""

    def __init__(self, from_update: int) -> None:
        self._from_update = from_update
        self._updates = 0
        self._began_s: float | None = None
        self._measuring: dict[str, float] = defaultdict(float)
        self.updates = 0
        self.total_s = 0.0
        self.apart_s: dict[str, float] = {}

    def events(self, events: Sequence[Recorded]) -> None:
        for _ in (recorded for recorded in events if isinstance(recorded.event, UpdateApplied)):
            self._updates += 1
            if self._updates == self._from_update:
                self._began_s = time.thread_time()
                self._measuring.clear()
            elif self._began_s is not None:
                self.updates, self.total_s = self._updates - self._from_update, time.thread_time() - self._began_s
                self.apart_s = dict(self._measuring)

    def counts(self, kind: type, method: str) -> None:
        """Count the time of a method apart."""
        called: Callable[..., Any] = getattr(kind, method)

        @wraps(called)
        def counted(*arguments: Any) -> Any:
            began_s = time.thread_time()
            try:
                return called(*arguments)
            finally:
                self._measuring[kind.__name__] += time.thread_time() - began_s

        setattr(kind, method, counted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--trust", choices=("strangers", "own"), default="strangers")
    parser.add_argument("--keep", type=Path, help="where the run is left [default: nowhere]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vcdl-bench-") as temporary:
        folder = RunFolder((options.keep or Path(temporary) / "run").absolute())
        meter = _Meter(options.shards)
        meter.counts(InstantEvaluator, "measure")
        job = _job(Path(temporary) / "data.npz", options)
        simulate(folder, job, ClientFleet(clients=options.clients, slots=1, speed_ratio=4), meter)
        apart_s = sum(meter.apart_s.values())
        print(f"updates             {meter.updates}")
        print(f"overhead            {1e3 * (meter.total_s - apart_s) / meter.updates:.2f} ms an update")
        for name, took_s in meter.apart_s.items():
            print(f"{name:<20}{1e3 * took_s / meter.updates:.2f} ms an update")
        print(f"journal and weights {_digest(folder)}")


def _job(data: Path, options: argparse.Namespace) -> Job:
    random = np.random.default_rng(1)
    count = _SAMPLES * options.shards
    x = random.random((count + 1000, _FEATURES), np.float32)
    y = np.argmax((x - 0.5) @ random.standard_normal((_FEATURES, _CLASSES)), axis=1)
    np.savez(data, x_train=x[:count], y_train=y[:count], x_val=x[count:], y_val=y[count:])
    return Job.model_validate(
        {
            "name": "bench",
            "model": {"builtin": "mlp"},
            "data": {"npz": str(data), "shards": options.shards},
            "stop": {"epochs": options.epochs},
            "trust": options.trust,
        }
    )


def _digest(folder: RunFolder) -> str:
    """A fingerprint of all events and of the last weights."""
    digest = hashlib.sha256()
    journal = Journal.read_only(folder.journal_file)
    for recorded in journal.stream():
        digest.update(repr(recorded).encode())
    journal.close()
    digest.update(folder.snapshot(max(folder.snapshot_versions())).read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    main()
