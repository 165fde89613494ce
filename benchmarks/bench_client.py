"""Training speed of the client beside plain `model.fit`: same model, data, batch size and threads, in turn in
one process.

    python benchmarks/bench_client.py [--model small_cnn] [--batch-size 32] [--threads 1] [--samples 1080]
                                      [--rounds 9] [--metrics accuracy] [--json]

The model is a built-in one on random images of 28 × 28 (resnet_v2: 32 × 32 × 3), on the backend of KERAS_BACKEND. Speed
is samples per second of training; the client must reach 0.95 of `fit`. Overhead is a subtask's time beyond training:
reading, checking, resetting model and optimizer, writing the update. On a busy machine use the processor time: wall
time then measures the neighbours.
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.wire.layout import Layout, flatten
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import read_header, write_weights
from vcdl.wire.workunit import OUTPUT_FILE, Named, Normalisation, Training, UpdateHeader, Workunit

SHAPES = {"mlp": (28, 28, 1), "small_cnn": (28, 28, 1), "resnet_v2": (32, 32, 3)}
"""Shape of a sample, by built-in model."""
SCALE = 1 / 255


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="small_cnn")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1, help="of the backend")
    parser.add_argument("--samples", type=int, default=1080, help="in the shard (Fashion-MNIST in 50 shards: 1080)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--metrics", nargs="*", default=["accuracy"], help="of the job; the client measures none of them"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    limit = {"TF_NUM_INTRAOP_THREADS": options.threads, "TF_NUM_INTEROP_THREADS": 1, "OMP_NUM_THREADS": options.threads}
    os.environ.update({name: str(value) for name, value in limit.items()}, TF_CPP_MIN_LOG_LEVEL="3")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])  # JAX takes as many threads as cores
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(
            Path(folder), options.model, options.samples, options.batch_size, options.rounds, tuple(options.metrics)
        )
    figures["threads"] = options.threads
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:34} {value:10.3f}")


class Quiet:
    """A supervisor that asks for nothing."""

    def request(self) -> Any:
        from vcdl.client.supervisor import Request

        return Request.GO

    def progress(self, fraction: float, samples: int) -> None: ...

    def checkpoint_made(self) -> None: ...


def measure(
    folder: Path, builtin: str, samples: int, batch_size: int, rounds: int, metrics: tuple[str, ...]
) -> dict[str, float]:
    """Train in turn with fit and with the client; medians, separate for the first round, which builds and traces."""
    from vcdl.client.train import train_workunit
    from vcdl.client.trainer import TrainerCache

    named = tuple(Named(metric) for metric in metrics)
    training = Training(
        optimizer=Named("adam"),
        learning_rate=0.001,
        batch_size=batch_size,
        local_epochs=1,
        loss=Named("sparse_categorical_crossentropy"),
        metrics=named,
        normalisation=Normalisation((SCALE,), (0.0,)),
    )
    model, x, y = prepare(folder, builtin, training, samples)
    trainers, size = TrainerCache(), Layout.of(model).size
    fit_s, train_s, whole_s, fit_cpu_s, whole_cpu_s = ([0.0] * (rounds + 1) for _ in range(5))
    for i in range(rounds + 1):
        with _timed(fit_s, fit_cpu_s, i):
            model.fit(x, y, batch_size=batch_size, epochs=1, verbose=0)
        with _timed(whole_s, whole_cpu_s, i):
            train_workunit(folder, Quiet(), trainers)
        header = read_header(folder / OUTPUT_FILE, size)
        train_s[i] = UpdateHeader.from_json(header).train_s
        (folder / OUTPUT_FILE).unlink()
    fit, train, whole, fit_cpu, whole_cpu, overhead = (
        statistics.median(values[1:])
        for values in (fit_s, train_s, whole_s, fit_cpu_s, whole_cpu_s, np.subtract(whole_s, train_s).tolist())
    )
    return {
        "fit_samples_per_s": samples / fit,
        "client_samples_per_s": samples / train,
        "client_speed_of_fit": fit / train,
        "whole_subtask_speed_of_fit": fit / whole,
        "whole_subtask_cpu_of_fit": whole_cpu / fit_cpu,
        "overhead_of_a_subtask_ms": overhead * 1e3,
        "first_fit_s": fit_s[0],
        "first_subtask_s": whole_s[0],
    }


@contextlib.contextmanager
def _timed(wall_s: list[float], cpu_s: list[float], index: int) -> Iterator[None]:
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    yield
    wall_s[index], cpu_s[index] = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s


def prepare(folder: Path, builtin: str, training: Training, samples: int) -> tuple[Any, Any, Any]:
    """Write a workunit's files; returns the same model, compiled, and the same normalised data, for `fit`."""
    from vcdl.client.compile import compile_model
    from vcdl.models.build import BUILTIN

    rng = np.random.default_rng(1)
    x = rng.integers(256, size=(samples, *SHAPES[builtin]), dtype=np.uint8)
    y = rng.integers(10, size=samples)
    np.savez_compressed(folder / "shard.npz", x=x, y=y)
    model = BUILTIN[builtin](SHAPES[builtin], 10, "classification")
    compile_model(model, training)
    (folder / "model.json").write_text(model.to_json())
    (folder / "workunit.json").write_text(
        Workunit(job="bench", epoch=1, shard=0, attempt=0, base_version=0, seed=1, training=training).to_json()
    )
    header = ParamsHeader("bench", 0, Layout.of(model).fingerprint)
    write_weights(folder / "params.h5", flatten(model), header.to_json())
    return model, x.astype(np.float32) * np.float32(SCALE), y


if __name__ == "__main__":
    main()
