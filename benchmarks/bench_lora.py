"""Fine-tuning a decoder of GPT-2's size (124 million weights) by LoRA: bytes of files, and memory of processes.

`python benchmarks/bench_lora.py [--blocks 12] [--width 768] [--frozen int8] [--epochs 1]` builds a decoder
Transformer of Keras' own layers with random weights, adapts the queries and values of all blocks with rank 8, and
trains it by `vcdl run` with one worker on generated text. Targets: at most 5 MB up and down a subtask, the frozen
weights once, and a worker below 4 GB. `--job FOLDER` only writes the job, for a run on a BOINC server; `--blocks 8
--width 512 --vocabulary 8000` makes 30 million weights.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.journal.events import UpdateApplied
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of

_LENGTH, _HEAD = 64, 64
_TRANSPORT = {"down": "int8", "up": "int8", "compress": True, "moment_block": 32}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--frozen", choices=("float32", "int8"), default="int8")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--job", type=Path)
    arguments = parser.parse_args()
    if arguments.job is not None:
        arguments.job.mkdir(parents=True, exist_ok=True)
        print(_write_job(arguments.job, arguments))
        return
    with tempfile.TemporaryDirectory(prefix="vcdl-lora-") as name:
        folder = Path(name)
        job = _write_job(folder, arguments)
        subprocess.run([sys.executable, "-m", "vcdl", "describe", str(job)], check=True)
        peaks = _run(job, folder / "run")
        _show(RunFolder(folder / "run"), peaks)


def _write_job(folder: Path, arguments: argparse.Namespace) -> Path:
    """Write the model, in a process of its own, the texts and the job file; returns the latter."""
    shape = (arguments.vocabulary, arguments.width, arguments.blocks)
    code = f"from benchmarks.bench_lora import decoder; decoder{shape}.save({str(folder / 'decoder.keras')!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])
    rng = np.random.default_rng(1)
    step = rng.integers(1, 20, size=(arguments.samples, 1))  # a text counts up in steps of its own
    tokens = (rng.integers(arguments.vocabulary, size=(arguments.samples, 1)) + step * np.arange(_LENGTH + 1)) % 1000
    x, y = tokens[:, :-1].astype(np.int32), tokens[:, 1:].astype(np.int32)
    np.savez(folder / "texts.npz", x_train=x, y_train=y, x_val=x[:8], y_val=y[:8])
    job = {
        "name": "lora",
        "model": {
            "keras": "decoder.keras",
            "lora": {"rank": arguments.rank, "layers": ["query*", "value*"]},
            "frozen": arguments.frozen,
        },
        "data": {"npz": "texts.npz", "task": "sequence", "shards": arguments.shards, "normalise": "none"},
        "training": {"optimizer": "adam", "learning_rate": 0.001, "batch_size": 4},
        "transport": _TRANSPORT,
        "stop": {"epochs": arguments.epochs},
        "grid": {"workers": 1},
    }
    path = folder / "lora.yaml"
    path.write_text(json.dumps(job, indent=1))
    return path


def decoder(vocabulary: int, width: int, blocks: int) -> Any:
    """A decoder Transformer as GPT-2 is: normalised before each part, and words out by the matrix of words in."""
    import keras
    from keras import layers, ops

    inputs = keras.Input((_LENGTH,), dtype="int32")
    words = layers.ReversibleEmbedding(vocabulary, width, name="words")
    places = ops.cumsum(ops.ones_like(inputs), axis=1) - 1
    x = words(inputs) + layers.Embedding(1024, width, name="places")(places)
    for number in range(blocks):
        y = layers.LayerNormalization(name=f"norm_{number}")(x)
        attention = layers.MultiHeadAttention(width // _HEAD, _HEAD, name=f"attention_{number}")
        x = x + attention(y, y, use_causal_mask=True)
        y = layers.LayerNormalization(name=f"norm_up_{number}")(x)
        y = layers.Dense(4 * width, activation="gelu", name=f"up_{number}")(y)
        x = x + layers.Dense(width, name=f"down_{number}")(y)
    return keras.Model(inputs, words(layers.LayerNormalization(name="norm")(x), reverse=True), name="decoder")


def _run(job: Path, out: Path) -> dict[str, int]:
    """Run the job; returns the most memory of each kind of process, in bytes."""
    command = [sys.executable, "-m", "vcdl", "run", str(job), "--out", str(out)]
    process, peaks = subprocess.Popen(command), dict[str, int]()
    while process.poll() is None:
        for pid in _descendants(process.pid):
            kind, peak = _kind_of(pid), _peak_bytes(pid)
            peaks[kind] = max(peaks.get(kind, 0), peak)
        time.sleep(0.2)
    if process.returncode:
        sys.exit(f"vcdl run ended with {process.returncode}")
    return peaks


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            continue
        found += map(int, children)
    return found


def _kind_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return "gone"
    return " ".join(os.path.basename(word) for word in words if word and not word.startswith("-"))[:60]


def _peak_bytes(pid: int) -> int:
    """The most memory that a process has had, pages of mapped files included."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _show(folder: RunFolder, peaks: dict[str, int]) -> None:
    for name in ("model.json", "frozen.h5"):
        print(f"{name:12} {(folder.path / name).stat().st_size / 1e6:8.2f} MB, once")
    updates = list(events_of(folder, UpdateApplied))
    for update in updates:
        print(f"update       {update.bytes_up / 1e6:8.2f} MB, loss {update.loss}, {update.times_s}")
    for kind, peak in sorted(peaks.items(), key=lambda item: -item[1]):
        print(f"{peak / 1e9:6.2f} GB  {kind}")


if __name__ == "__main__":
    main()
