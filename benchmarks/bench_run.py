"""A whole `vcdl run` beside plain Keras training of the same model for the same number of sample passes.

`python benchmarks/bench_run.py [JOB.yaml] [--epochs N] [--rounds N]` runs whole processes in turn, A B A B …,
including the import of Keras and the data on both sides. It prints the wall times, their medians and the ratio
(target: ≤ 1.25).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

_HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", nargs="?", type=Path, default=_HERE.parent / "examples" / "fashion_mnist.yaml")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds = []
    for number in range(1, arguments.rounds + 1):
        vcdl_s, vcdl_test = _vcdl(arguments.job, arguments.epochs)
        plain_s, plain_test = _plain(arguments.job, arguments.epochs)
        rounds.append((vcdl_s, plain_s))
        print(
            f"round {number}: vcdl run {vcdl_s:.1f} s (test {vcdl_test:.4f}), plain Keras {plain_s:.1f} s "
            f"(test {plain_test:.4f}), ratio {vcdl_s / plain_s:.3f}",
            flush=True,
        )
    print(
        f"median of {arguments.rounds}: vcdl run {median(v for v, _ in rounds):.1f} s, plain Keras "
        f"{median(p for _, p in rounds):.1f} s, ratio {median(v / p for v, p in rounds):.3f}"
    )


def _vcdl(job: Path, epochs: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "vcdl", "run", str(job), "--out", str(out), "--set", f"stop.epochs={epochs}"]
        begin_s = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall_s = time.perf_counter() - begin_s
        return wall_s, json.loads((out / "summary.json").read_text())["accuracy"]["test"]


def _plain(job: Path, epochs: int) -> tuple[float, float]:
    command = [sys.executable, str(_HERE / "plain_keras.py"), str(job), str(epochs)]
    begin_s = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - begin_s, json.loads(done.stdout.splitlines()[-1])["test"]


if __name__ == "__main__":
    main()
