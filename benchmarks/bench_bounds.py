"""The cost of bounding strangers' uploads: the time of a server for one update, with bounds and without.

    python -m benchmarks.bench_bounds [--params 105866] [--rounds 30]

The rule is the default one, on a folder store; half of the numbers are an optimizer's second moments, as by default.
One after the other in each round; medians, and the ratio. Reading an upload's header, the journal's rows and the
release of the upload are part of a server's work for each update and cost the same in both: they are left out.
"""

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from vcdl.checks import UploadCheck
from vcdl.loop.streamed_upload import Rooms, StreamedUpload, UploadFacts
from vcdl.rules.bounds import Bounds
from vcdl.rules.forecast import Forecast
from vcdl.stores import FileStore, Fold
from vcdl.wire.weights import Layout, Variable, Vector, write_weights

RULE = Forecast(0.15, 0.4, 2.0, 1.0)
UPLOADS = 8


def layout_of(params: int) -> Layout:
    """A model of eight variables, and their second moments."""
    size = max(1, params // 8)
    names = [f"{prefix}{number}{ending}" for prefix, ending in (("v", ""), ("/", "_velocity")) for number in range(8)]
    return Layout(tuple(Variable(name, (size,), place * size) for place, name in enumerate(names)))


class Server:
    """A store, uploads that wait for it, and bounds or none."""

    def __init__(self, folder: Path, layout: Layout, base: Vector, bounds: Bounds | None) -> None:
        self._folder, self._layout, self._bounds = folder, layout, bounds
        state = RULE.state if bounds is None else bounds.state_of(RULE)
        self._store = FileStore(folder / ("bounded" if bounds else "plain"), layout.size, state)
        self._store.create(base)
        self._rooms = Rooms()
        self._check = UploadCheck("bench", layout, (1,), 1, layout.size**0.5)

    def fold(self, numbers: range) -> float:
        """Fold waiting uploads in, between one read and one write; returns seconds for each."""
        folds = [Fold(f"s{number}", f"w{number}", 0, partial(self._begin, number)) for number in numbers]
        begun_s = time.perf_counter()
        self._store.fold(folds)
        return (time.perf_counter() - begun_s) / len(folds)

    def _begin(self, number: int, staleness: int) -> StreamedUpload:
        return StreamedUpload(
            self._folder / f"{number % UPLOADS}.h5",
            self._layout,
            RULE,
            UploadFacts(1, min(staleness, 9), 1, 1.0, number - 10),
            judge=self._check,
            bounds=self._bounds,
            base=self._folder / "base.h5",
            reference=None,
            rooms=self._rooms,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--params", type=int, default=105_866)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    layout, rng = layout_of(options.params), np.random.default_rng(1)
    base = np.abs(rng.standard_normal(layout.size, np.float32))
    steps = [np.float32(0.01) * np.abs(rng.standard_normal(layout.size, np.float32)) for _ in range(UPLOADS)]
    bounds = Bounds(layout, 1.5, tuple(Bounds(layout, 1.5, ()).lengths_of(steps[0], base, 1.0).tolist()))
    with tempfile.TemporaryDirectory(prefix="vcdl-") as name:
        folder = Path(name)
        write_weights(folder / "base.h5", base, "{}")
        for number, step in enumerate(steps):
            write_weights(folder / f"{number}.h5", base + step, "{}")
        servers = {"without": Server(folder, layout, base, None), "with": Server(folder, layout, base, bounds)}
        print(f"{options.params} weights and as many moments, {options.rounds} rounds, ms an update")
        for waiting in (1, 8):
            times_s: dict[str, list[float]] = {kind: [] for kind in servers}
            for number in range(options.rounds):
                begin = waiting * 1000 + number * waiting
                for kind, server in servers.items():
                    times_s[kind].append(server.fold(range(begin, begin + waiting)))
            without, bounded = (1000 * statistics.median(times_s[kind]) for kind in ("without", "with"))
            print(f"{waiting} waiting: without {without:.2f}, with {bounded:.2f}, ratio {bounded / without:.2f}")


if __name__ == "__main__":
    main()
