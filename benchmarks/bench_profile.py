"""The cost of profiling: seconds of the stage clock in a subtask's training, and bytes of the stages in its header.

    python -m benchmarks.bench_profile [--model mlp] [--samples 1080] [--batch-size 32] [--rounds 9] [--json]

The clock's calls are counted in a real subtask and timed alone: what they cost is far below the noise of two trainings
side by side. Its goals are 0.5 % of the training and 200 bytes.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

from benchmarks.bench_client import SCALE, SHAPES, Quiet, prepare
from vcdl.client.stage_clock import TRAIN, StageClock
from vcdl.wire.layout import Layout
from vcdl.wire.weights import read_header
from vcdl.wire.workunit import OUTPUT_FILE, STAGES, Named, Normalisation, Training, UpdateHeader

_CALLS = 100_000


class CountingClock(StageClock):
    """A stage clock that counts its calls."""

    calls = 0

    def add(self, stage: str, seconds: float) -> None:
        type(self).calls += 1
        super().add(stage, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="mlp")
    parser.add_argument("--samples", type=int, default=1080)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options.model, options.samples, options.batch_size, options.rounds)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:34} {value:12.6g}")


def measure(folder: Path, builtin: str, samples: int, batch_size: int, rounds: int) -> Mapping[str, float]:
    """Train a subtask some times; medians without the first one, which compiles."""
    from vcdl.client.train import train_workunit
    from vcdl.client.trainer import TrainerCache

    training = Training(
        Named("adam"), 0.001, batch_size, 1, Named("sparse_categorical_crossentropy"),
        normalisation=Normalisation((SCALE,), (0.0,)),
    )  # fmt: skip
    model, _, _ = prepare(folder, builtin, training, samples)
    trainers, size = TrainerCache(), Layout.of(model).size
    train_s, calls = [], []
    for _ in range(rounds + 1):
        CountingClock.calls = 0
        with patch("vcdl.client.train.StageClock", CountingClock):
            train_workunit(folder, Quiet(), trainers)
        header = UpdateHeader.from_json(read_header(folder / OUTPUT_FILE, size))
        (folder / OUTPUT_FILE).unlink()
        train_s.append(header.train_s)
        calls.append(CountingClock.calls)
    clock, begun_s = StageClock({}), time.perf_counter()
    for _ in range(_CALLS):
        clock.lap(TRAIN)
    call_s = (time.perf_counter() - begun_s) / _CALLS
    usual_s, usual_calls = statistics.median(train_s[1:]), statistics.median(calls[1:])
    longest = dict.fromkeys(STAGES, 9_999.999)
    return {
        "calls_of_a_subtask": usual_calls,
        "us_a_call": call_s * 1e6,
        "train_s": usual_s,
        "percent_of_training": 100.0 * call_s * usual_calls / usual_s,
        "bytes_in_the_header": len(json.dumps(header.times_s)),
        "bytes_of_all_stages_at_their_longest": len(json.dumps(longest)),
    }


if __name__ == "__main__":
    main()
