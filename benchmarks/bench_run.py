"""A whole `vcdl run` beside plain Keras training of the same model for the same number of sample passes.

`python -m benchmarks.bench_run [JOB.yaml] [--epochs N] [--rounds N]` runs whole processes in turn, A B A B …,
including the import of Keras and the data on both sides. It prints of each the wall time, the processor time of all
processes, and the most memory that they had at once, shared pages counted once (PSS), and the medians of the ratios
(target for the wall time: ≤ 1.25).
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.bench_run_start import ROOT, Cost, cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", nargs="?", type=Path, default=ROOT / "examples" / "fashion_mnist.yaml")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    ratios: list[tuple[float, float, float]] = []
    for number in range(1, arguments.rounds + 1):
        job = str(arguments.job.resolve())
        (ours, our_test), (plain, plain_test) = _vcdl(job, arguments.epochs), _plain(job, arguments.epochs)
        ratios.append(
            (
                ours.wall_s / plain.wall_s,
                ours.processor_s / plain.processor_s,
                ours.peak_bytes / plain.peak_bytes,
            )
        )
        print(
            f"round {number}: vcdl run {_words(ours)} (test {our_test:.4f}); plain Keras {_words(plain)} "
            f"(test {plain_test:.4f})",
            flush=True,
        )
    wall, processor, memory = (median(ratio) for ratio in zip(*ratios, strict=True))
    print(f"median ratios of {arguments.rounds}: wall {wall:.2f}, processor {processor:.2f}, memory {memory:.2f}")


def _words(took: Cost) -> str:
    return f"{took.wall_s:.1f} s, processor {took.processor_s:.1f} s, {took.peak_bytes / 1e6:.0f} MB"


def _vcdl(job: str, epochs: int) -> tuple[Cost, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        took = cost(["-m", "vcdl", "run", job, "--out", str(out), "--set", f"stop.epochs={epochs}"], ROOT)
        return took, json.loads((out / "summary.json").read_text())["accuracy"]["test"]


def _plain(job: str, epochs: int) -> tuple[Cost, float]:
    with tempfile.TemporaryFile("w+") as output:
        took = cost([str(ROOT / "benchmarks" / "plain_keras.py"), job, str(epochs)], ROOT, output=output)
        output.seek(0)
        return took, json.loads(output.read().splitlines()[-1])["test"]


if __name__ == "__main__":
    main()
