"""Each codec on real weights and on a subtask's change of them: bytes in each direction, seconds, and the
error.

    python benchmarks/bench_codecs.py small_cnn
    python benchmarks/bench_codecs.py resnet_v2 --samples 900 --keep resnet.npz

The model trains on Fashion-MNIST (for resnet_v2 widened to 32 × 32 × 3: the paper's depth 164) with Adam: first
`--warm-up` batches, whose result a client downloads, then a subtask of `--samples`. With `--keep` the two
vectors are kept for the next call. Times are processor seconds of one core including the file, the median of
`--rounds`. The error is ‖decoded − x‖ / ‖x‖, of the weights on the way down and of the change on the way up. It
leaves out the statistics of batch normalisation, which are exact and large, and the moments of Adam, which
`--moments` lets travel as jobs do by default.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.client.batches import steps_of
from vcdl.codecs.choose import down_encoding, up_encoding
from vcdl.codecs.encoding import Encoding
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.workunit import Named, Training, Transport

BATCH_SIZE = 32
CODECS = (
    Named("float32"),
    Named("float16"),
    Named("bfloat16"),
    Named("int8"),
    Named("int8", {"levels": 31}),
    Named("int8", {"levels": 15}),
    Named("top_k", {"share": 0.05}),
    Named("top_k", {"share": 0.01}),
)


@dataclass(frozen=True)
class Way:
    """One codec in one direction."""

    codec: str
    size_bytes: int
    share: float
    """Size as a share of the plain file."""
    encode_s: float
    decode_s: float
    error: float


@dataclass(frozen=True)
class Trained:
    """Weights before and after a subtask, shape (n,)."""

    layout: Layout
    base: Vector
    weights: Vector


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["small_cnn", "resnet_v2"])
    parser.add_argument("--warm-up", type=int, default=32, help="batches before the subtask")
    parser.add_argument("--samples", type=int, default=1000, help="of the subtask")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--moments", action="store_true", help="Adam's second moments travel as well")
    parser.add_argument("--keep", type=Path, metavar="FILE.npz")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    trained = trained_or_kept(options.model, options.warm_up, options.samples, options.moments, options.keep)
    with tempfile.TemporaryDirectory() as folder:
        down, up = measure(trained, Path(folder) / "weights.h5", options.rounds)
    if options.json:
        print(
            json.dumps({"weights": trained.layout.size, "down": list(map(asdict, down)), "up": list(map(asdict, up))})
        )
        return
    print(f"{options.model}: {trained.layout.size} weights, plain {4 * trained.layout.size / 1e6:.2f} MB")
    for words, ways in (("down", down), ("up", up)):
        print(f"\n| {words} | bytes | of float32 | encode | decode | error |\n|---|---|---|---|---|---|")
        for way in ways:
            times = f"{way.encode_s * 1000:.1f} ms | {way.decode_s * 1000:.1f} ms"
            print(
                f"| {way.codec} | {way.size_bytes:,} | {way.share:.3f} | {times} | {way.error:.1e} |".replace(",", " ")
            )


def measure(trained: Trained, path: Path, rounds: int) -> tuple[list[Way], list[Way]]:
    """Every codec, compressed and not, in both directions."""
    change, model_size = trained.weights - trained.base, trained.layout.model.size
    change[model_size:] = trained.weights[model_size:]
    down, up = [], []
    for codec in CODECS:
        for compress in (False, True):
            if codec.name != "top_k":
                way = down_encoding(Transport(down=codec, compress=compress), trained.layout)
                down.append(one_way(way, trained.base, path, rounds))
            way = up_encoding(Transport(up=codec, compress=compress), trained.layout)
            up.append(one_way(way, change if way.is_difference else trained.weights, path, rounds))
    return down, up


def one_way(way: Encoding, vector: Vector, path: Path, rounds: int) -> Way:
    encode_s = seconds(lambda: way.write(path, vector, "{}"), rounds)
    decode_s = seconds(lambda: way.read(path), rounds)
    decoded, _ = way.read(path)
    trained = np.ones(vector.size, np.bool_)
    for begin, end in way.layout.statistics:
        trained[begin:end] = False
    error = float(np.linalg.norm((decoded - vector)[trained]) / np.linalg.norm(vector[trained]))
    size_bytes = path.stat().st_size
    return Way(
        codec=way.label,
        size_bytes=size_bytes,
        share=size_bytes / (4 * vector.size),
        encode_s=encode_s,
        decode_s=decode_s,
        error=error,
    )


def seconds(step: Callable[[], object], rounds: int) -> float:
    """Median of processor time, so that a busy machine gives the figures of a quiet one."""
    times = []
    for _ in range(rounds + 1):
        begun_s = time.process_time()
        step()
        times.append(time.process_time() - begun_s)
    return statistics.median(times[1:])


def trained_or_kept(model: str, warm_up: int, samples: int, moments: bool, keep: Path | None) -> Trained:
    if keep is not None and keep.exists():
        with np.load(keep) as file:
            names, sizes = file["names"], file["sizes"]
            offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
            parts = (Variable(str(n), (int(s),), int(o)) for n, s, o in zip(names, sizes, offsets, strict=True))
            return Trained(Layout(tuple(parts)), file["base"], file["weights"])
    trained = train(model, warm_up, samples, moments)
    if keep is not None:
        variables = trained.layout.variables
        names, sizes = [variable.path for variable in variables], [variable.size for variable in variables]
        np.savez(keep, base=trained.base, weights=trained.weights, names=np.array(names), sizes=np.array(sizes))
    return trained


def train(model: str, warm_up: int, samples: int, moments: bool) -> Trained:
    """Train a subtask as a client does, on one core."""
    os.environ.update({"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"})
    from vcdl.client.trainer import Trainer
    from vcdl.data import load_dataset
    from vcdl.data.rows import in_memory
    from vcdl.job.data import DataSettings
    from vcdl.job.model import ModelSettings
    from vcdl.models.build import build_model_json, initial_weights

    dataset = load_dataset(DataSettings.model_validate({"dataset": "fashion-mnist"}), 1)
    count = warm_up * BATCH_SIZE + samples
    x, y = (
        np.asarray(in_memory(dataset.x_train)[:count], np.float32) / np.float32(255),
        dataset.y_train[:count].astype(np.int32),
    )
    builtin: Any = "small_cnn"
    if model == "resnet_v2":
        builtin = {"name": "resnet_v2", "depth": 164}
        x = np.repeat(np.pad(x.reshape(-1, 28, 28, 1), ((0, 0), (2, 2), (2, 2), (0, 0))), 3, axis=3)
    settings = ModelSettings.model_validate({"builtin": builtin}, context=Path())
    model_json = build_model_json(settings, x.shape[1:], dataset.outputs, "classification")
    training = Training(Named("adam"), 0.001, BATCH_SIZE, 1, Named("sparse_categorical_crossentropy"))
    trainer = Trainer(model_json, replace(training, share_optimizer_state="second_moment" if moments else "none"))
    initial = initial_weights(model_json, 1)
    trainer.begin(
        np.concatenate([initial, np.zeros(trainer.layout.size - initial.size, np.float32)]), 1, 0.001, warm_up
    )
    trainer.steps(x, y, np.arange(warm_up * BATCH_SIZE), BATCH_SIZE)
    base = trainer.finish().copy()
    trainer.begin(base, 2, 0.001, steps_of(samples, BATCH_SIZE))
    trainer.steps(x, y, np.arange(warm_up * BATCH_SIZE, count), BATCH_SIZE)
    return Trained(trainer.layout, base, trainer.finish().copy())


if __name__ == "__main__":
    main()
