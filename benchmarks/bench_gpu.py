"""One GPU, measured in eight minutes: is it used, how fast is the client beside plain `fit`, do CPU and GPU agree?

    python -m benchmarks.bench_gpu [--out gpu.json] [--seconds 480] [--cpu]

It runs with TensorFlow or JAX, whichever is there (KERAS_BACKEND says which of two), and needs Keras, NumPy, h5py and
this checkout; nothing is downloaded. Each case is a process of its own, so that it finds the GPU's memory empty, and
cases that the time has no room for are named as left out. `--cpu` runs small cases on the processor: what the tests do.

    device     the devices that Keras sees
    speed      samples/s of `fit` and of the client, in turn in one process; the goal is 0.95 of `fit`
    agreement  one subtask trained on the CPU and on the GPU: is the difference what trust allows for rounding?
    resumed    a subtask that stops at a checkpoint and is resumed, beside one that was not stopped
    together   two subtasks at once on the GPU, beside one
    job        `vcdl run` of a small job, where the packages of a server are there
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS_S = 20.0
"""Seconds of rounds of a case: some ten rounds of a subtask of a second, so that medians are steady."""
CASE_S = 150.0
"""Longest case, mostly its compilation; a model that takes longer says so instead of taking the others' time."""


@dataclass(frozen=True)
class Case:
    """A model with the size of its batches."""

    model: str
    precision: str
    batch_size: int
    samples: int


CASES = (
    Case("small_cnn", "float32", 256, 25_600),
    Case("resnet_164", "float32", 128, 2_560),
    Case("resnet_164", "mixed_bfloat16", 128, 2_560),
    Case("transformer_10m", "float32", 64, 2_560),
    Case("transformer_10m", "mixed_bfloat16", 64, 2_560),
    Case("transformer_100m", "float32", 16, 320),
    Case("transformer_100m", "mixed_bfloat16", 16, 320),
)
SMALL = (Case("small_cnn", "float32", 32, 320), Case("transformer_tiny", "float32", 16, 64))
_TRANSFORMERS = {"transformer_10m": (256, 8, 12), "transformer_100m": (768, 12, 14), "transformer_tiny": (16, 2, 1)}
"""Width, heads and blocks."""
_TOKENS, _LENGTH = 8192, 256


def build(name: str) -> Any:
    """Return a model that is not compiled: an image or a text into ten classes."""
    import keras

    if name == "small_cnn":
        from vcdl.models.small_cnn import small_cnn

        return small_cnn((28, 28, 1), 10, "classification")
    if name == "resnet_164":
        from vcdl.models.resnet_v2 import resnet_v2

        return resnet_v2((32, 32, 3), 10, "classification", depth=164)
    width, heads, blocks = _TRANSFORMERS[name]
    layers = keras.layers
    tokens = keras.Input((_LENGTH,), dtype="int32")
    x = layers.Embedding(_TOKENS, width)(tokens)
    for _ in range(blocks):
        normed = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(normed, normed, use_causal_mask=True)])
        inner = layers.Dense(4 * width, "gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(width)(inner)])
    pooled = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(tokens, layers.Dense(10, "softmax", dtype="float32")(pooled))


def prepare(folder: Path, case: Case) -> tuple[Any, Any, Any]:
    """Write the files of a workunit; return the same model, compiled, and the same data, for `fit`."""
    import keras

    from vcdl.client.compile import compile_model
    from vcdl.wire.layout import Layout, flatten
    from vcdl.wire.params import ParamsHeader
    from vcdl.wire.weights import write_weights
    from vcdl.wire.workunit import Named, Normalisation, Training, Workunit

    is_text = case.model in _TRANSFORMERS
    training = Training(
        optimizer=Named("adam"),
        learning_rate=1e-4,
        batch_size=case.batch_size,
        local_epochs=1,
        loss=Named("sparse_categorical_crossentropy"),
        normalisation=Normalisation(integers=True) if is_text else Normalisation((1 / 255,)),
    )
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(case.precision)
    model = build(case.model)
    keras.config.set_dtype_policy("float32")
    compile_model(model, training)
    rng, shape = np.random.default_rng(1), model.input_shape[1:]
    x = rng.integers(_TOKENS if is_text else 256, size=(case.samples, *shape)).astype("int32" if is_text else "uint8")
    y = rng.integers(10, size=case.samples)
    np.savez(folder / "shard.npz", x=x, y=y)
    (folder / "model.json").write_text(model.to_json())
    (folder / "workunit.json").write_text(
        Workunit(job="bench", epoch=1, shard=0, attempt=0, base_version=0, seed=1, training=training).to_json()
    )
    write_weights(
        folder / "params.h5", flatten(model), ParamsHeader("bench", 0, Layout.of(model).fingerprint).to_json()
    )
    return model, x if is_text else x.astype(np.float32) / np.float32(255), y


class Watched:
    """A supervisor that notes progress, and may ask the training to stop at a checkpoint."""

    def __init__(self, quits_at: float = 2.0) -> None:
        self._quits_at, self._fraction = quits_at, 0.0

    def request(self) -> Any:
        from vcdl.client.supervisor import Request

        return Request.QUIT if self._fraction >= self._quits_at else Request.GO

    def progress(self, fraction: float, samples: int) -> None:
        self._fraction = fraction

    def checkpoint_made(self) -> None: ...


# -- what a child measures: each takes its folder and case, and returns figures


def device(_folder: Path, _case: Case) -> dict[str, Any]:
    import keras

    devices = keras.distribution.list_devices()
    return {
        "backend": keras.backend.backend(),
        "keras": keras.__version__,
        "devices": devices,
        "memory_mib": used_mib(),
    }


def speed(folder: Path, case: Case) -> dict[str, Any]:
    """Train in turn with `fit` and with the client, for some seconds after the round that compiles."""
    from vcdl.client.train import train_workunit
    from vcdl.client.trainer import TrainerCache
    from vcdl.wire.layout import Layout
    from vcdl.wire.weights import read_header
    from vcdl.wire.workunit import OUTPUT_FILE, UpdateHeader

    model, x, y = prepare(folder, case)
    trainers, size = TrainerCache(), Layout.of(model).size
    fits: list[float] = []
    trained: list[float] = []
    wholes: list[float] = []
    first: dict[str, float] = {}
    began_s = time.perf_counter()
    while len(fits) < 3 or time.perf_counter() < began_s + ROUNDS_S:
        start_s = time.perf_counter()
        model.fit(x, y, batch_size=case.batch_size, epochs=1, verbose=0)
        fits.append(time.perf_counter() - start_s)
        start_s = time.perf_counter()
        train_workunit(folder, Watched(), trainers)
        wholes.append(time.perf_counter() - start_s)
        header = UpdateHeader.from_json(read_header(folder / OUTPUT_FILE, size))
        trained.append(header.train_s)
        if not first:
            first, began_s = {"fit_s": fits[0], "subtask_s": wholes[0], **header.times_s}, time.perf_counter()
        (folder / OUTPUT_FILE).unlink()
    fit_s, train_s, whole_s = (statistics.median(one[1:]) for one in (fits, trained, wholes))
    return {
        "parameters": int(model.count_params()),
        "layers": len(model.layers),
        "rounds": len(fits) - 1,
        "fit_samples_per_s": case.samples / fit_s,
        "client_samples_per_s": case.samples / train_s,
        "client_of_fit": fit_s / train_s,
        "whole_subtask_of_fit": fit_s / whole_s,
        "first": first,
        "memory_mib": used_mib(),
    }


def subtask(folder: Path, case: Case) -> dict[str, Any]:
    """Train one subtask to its end."""
    return _trained(folder, case)


def resumed(folder: Path, case: Case) -> dict[str, Any]:
    """Train one subtask that stops half way, at a checkpoint, and is resumed with another model."""
    return _trained(folder, case, quits_at=0.5)


def _trained(folder: Path, case: Case, quits_at: float = 2.0) -> dict[str, Any]:
    from vcdl.client.train import train_workunit
    from vcdl.client.trainer import TrainerCache

    if not (folder / "workunit.json").exists():
        prepare(folder, case)
    outcomes = []
    start_s = time.perf_counter()
    if quits_at < 1:
        outcomes.append(train_workunit(folder, Watched(quits_at), TrainerCache()).value)
    outcomes.append(train_workunit(folder, Watched(), TrainerCache()).value)
    return {"outcomes": outcomes, "seconds": time.perf_counter() - start_s, "memory_mib": used_mib()}


CHILDREN: dict[str, Callable[[Path, Case], dict[str, Any]]] = {
    "device": device,
    "speed": speed,
    "subtask": subtask,
    "resumed": resumed,
}


def used_mib() -> int | None:
    """Return the memory that is used on the first NVIDIA GPU; None without nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return int(done.stdout.split()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


# -- the parent


def started(what: str, folder: Path, case: Case, on_cpu: bool) -> "subprocess.Popen[str]":
    """Start a child that prints its figures as the last line."""
    here = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}
    hidden = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"} if on_cpu else {}
    command = [sys.executable, "-m", "benchmarks.bench_gpu", "--child", what, json.dumps(asdict(case)), str(folder)]
    environment = {**os.environ, **here, **hidden}
    return subprocess.Popen(command, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(process: "subprocess.Popen[str]", timeout_s: float) -> dict[str, Any]:
    """Return a child's figures, or why it has none."""
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"failed": f"not over after {timeout_s:.0f} s"}
    if process.returncode:
        return {"failed": " ".join(errors.split())[-500:]}
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    return figures


def agreement(folder: Path, first: Path, second: Path) -> dict[str, Any]:
    """Compare two updates of a subtask as trust does."""
    from vcdl.client.model import load_model
    from vcdl.codecs.choose import up_encoding
    from vcdl.trust.agreement import disagreement
    from vcdl.wire.layout import Layout
    from vcdl.wire.workunit import PLAIN

    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    layout = Layout.of(load_model((folder / "model.json").read_text()))
    apart = disagreement(first, second, folder / "params.h5", up_encoding(PLAIN, layout))
    return {"is_rounding": bool(apart.is_rounding), **{key: float(value) for key, value in vars(apart).items()}}


def measured(cases: tuple[Case, ...], seconds: float, on_cpu: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the figures of each part, until the time is over."""
    until_s = time.monotonic() + seconds
    from vcdl.wire.workunit import OUTPUT_FILE

    def left_s() -> float:
        return min(CASE_S, until_s - time.monotonic())

    def child(what: str, folder: Path, case: Case, cpu: bool = on_cpu) -> dict[str, Any]:
        return ended(started(what, folder, case, cpu), left_s()) if left_s() > 10 else {"failed": "no time was left"}

    with tempfile.TemporaryDirectory() as path:
        top = Path(path)
        folders = {name: top / name for name in ("here", "cpu", "halves", "one", "two")}
        for each in folders.values():
            each.mkdir()
        yield "device", child("device", top, cases[0])
        small = cases[0]
        trained = {name: child("subtask", folders[name], small, name == "cpu" or on_cpu) for name in ("here", "cpu")}
        trained["halves"] = child("resumed", folders["halves"], small)
        yield "subtasks", trained
        for name, other in (("agreement", "cpu"), ("resumed", "halves")):
            updates = [folders["here"] / OUTPUT_FILE, folders[other] / OUTPUT_FILE]
            if all(update.is_file() for update in updates):
                yield name, agreement(folders["here"], *updates)
        both = [started("subtask", folders[name], small, on_cpu) for name in ("one", "two")]
        yield "together", {str(number): ended(process, left_s()) for number, process in enumerate(both)}
        for case in cases:
            (folder := top / f"{case.model}_{case.precision}").mkdir()
            yield f"speed {case.model} {case.precision}", child("speed", folder, case)
        yield "job", job(top / "job", left_s())


def job(folder: Path, timeout_s: float) -> dict[str, Any]:
    """Run a small job by the command line."""
    if lacking := [name for name in ("click", "rich", "pydantic", "yaml", "msgspec") if find_spec(name) is None]:
        return {"failed": f"this needs {', '.join(lacking)}"}
    folder.mkdir()
    rng = np.random.default_rng(1)
    x = rng.integers(256, size=(2000, 28, 28, 1), dtype=np.uint8)
    np.savez(folder / "data.npz", x_train=x, y_train=(x[:, 0, 0, 0] > 127).astype(np.int64))
    (folder / "job.yaml").write_text(
        "name: gpu\nmodel: {builtin: small_cnn}\ndata: {npz: data.npz, shards: 8}\nstop: {epochs: 2}\n"
        "grid: {workers: 1}\n"
    )
    start_s = time.monotonic()
    command = [sys.executable, "-m", "vcdl", "run", "job.yaml"]
    given = {**os.environ, "PYTHONPATH": os.getcwd()}
    try:
        done = subprocess.run(
            command, cwd=folder, env=given, capture_output=True, text=True, check=False, timeout=max(10.0, timeout_s)
        )
    except subprocess.TimeoutExpired:
        return {"failed": "not over in time"}
    failure = {} if done.returncode == 0 else {"failed": done.stderr[-400:]}
    return {"seconds": time.monotonic() - start_s, "said": done.stdout[-400:], **failure}


def main() -> int:
    """Measure, print a line for each part, and write the figures; return 1 where a part has failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="where the figures go")
    parser.add_argument("--seconds", type=float, default=480.0, help="the longest that it may take")
    parser.add_argument("--cpu", action="store_true", help="small cases on the processor")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, case, folder = options.child
        print(json.dumps(CHILDREN[what](Path(folder), Case(**json.loads(case)))))
        return 0
    figures: dict[str, Any] = {}
    for name, found in measured(SMALL if options.cpu else CASES, options.seconds, options.cpu):
        figures[name] = found
        print(f"{name:<36} {json.dumps(found)[:300]}", flush=True)
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    return int(any("failed" in found for found in figures.values()))


if __name__ == "__main__":
    sys.exit(main())
