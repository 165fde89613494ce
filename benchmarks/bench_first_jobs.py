"""What somebody's first jobs reach who sets no key for training, beside plain `model.fit`.

    python -m benchmarks.bench_first_jobs [--seeds 41,42,43] [--out DIR] [--only TEXT]

The jobs are those of `vcdl new`, of the tutorial, and those that `vcdl new --from` makes of tables of scikit-learn.
`vcdl run` trains each on this machine's workers, `vcdl simulate` on ten clients at a time. `fit` makes as many passes
over the same samples from the same weights, with Adam at Keras' usual rate, 0.001, and at the best of three rates on
the test samples, which flatters it. The command may be killed: the same one continues.
"""

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.commands.new import TEMPLATES
from vcdl.files.atomic import atomic_write

_TABLES = ("iris", "wine", "digits", "breast_cancer", "diabetes")
_TUTORIAL = """\
name: three_machines
model: {builtin: {name: mlp, units: [64]}}
data: {dataset: digits, shards: 12}
stop: {epochs: 60}
grid: {workers: 3}
"""
_RATES = (0.001, 0.003, 0.01)
_TEN_SLOTS = ("simulate", "--clients", "10", "--slots", "1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="41,42,43")
    parser.add_argument("--out", type=Path, default=Path("experiments/first_jobs"))
    parser.add_argument("--only", default="", help="jobs whose name has this text")
    options = parser.parse_args()
    print("| Job | `fit` at 0.001 | `fit`, best of three | `vcdl run` | ten slots |", "|" + " -- |" * 5, sep="\n")
    for name in (*TEMPLATES, "tutorial", *_TABLES):
        if options.only in name:
            job = _job(options.out / name, name)
            rows = [_compared(job, int(seed)) for seed in options.seeds.split(",")]
            measure = "error" if _is_regression(job) else "accuracy"
            cells = [_words(column, measure) for column in zip(*rows, strict=True)]
            print(f"| {name}, {measure} | {' | '.join(cells)} |", flush=True)


def _job(folder: Path, name: str) -> Path:
    """The job file, written as somebody gets it."""
    if not (folder / "job.yaml").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        if name == "tutorial":
            folder.mkdir(exist_ok=True)
            (folder / "job.yaml").write_text(_TUTORIAL, encoding="utf-8")
        elif name in TEMPLATES:
            _vcdl("new", name, str(folder))
        else:
            train, test = _tables(folder.parent.resolve(), name)
            _vcdl("new", "--from", str(train), str(folder))
            text = (folder / "job.yaml").read_text(encoding="utf-8")
            text = text.replace(f"path: {train}", f"path: {train}\n    test: {test}")
            (folder / "job.yaml").write_text(text, encoding="utf-8")
    return folder / "job.yaml"


def _tables(folder: Path, name: str) -> tuple[Path, Path]:
    """A data set of scikit-learn as two tables with a line of names: three quarters to train on, the rest to test."""
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    rows = np.random.default_rng(1).permutation(np.column_stack([x, y]))
    head = ",".join([*(f"column_{number}" for number in range(x.shape[1])), "target"])
    paths = folder / f"{name}.csv", folder / f"{name}_test.csv"
    for path, part in zip(paths, np.split(rows, [len(rows) * 3 // 4]), strict=True):
        np.savetxt(path, part, "%.7g", ",", header=head, comments="")
    return paths


def _compared(job: Path, seed: int) -> tuple[float, ...]:
    """Measures of the test samples: `fit` at Keras' rate, at its best one, `vcdl run`, ten slots."""
    kept = job.parent / f"seed-{seed}.json"
    if not kept.exists():
        plain = [_fitted(job, seed, rate) for rate in _RATES]
        best = min(plain) if _is_regression(job) else max(plain)
        scores = (plain[0], best, *(_trained(job, seed, command) for command in (("run",), _TEN_SLOTS)))
        with atomic_write(kept) as temporary:
            temporary.write_text(json.dumps(scores), encoding="utf-8")
    return tuple(json.loads(kept.read_text(encoding="utf-8")))


def _trained(job: Path, seed: int, command: tuple[str, ...]) -> float:
    out = job.parent / f"{command[0]}-{seed}"
    if not (out / "summary.json").exists():
        _vcdl(command[0], str(job), *command[1:], "--out", str(out), "--set", f"seed={seed}")
    measured = json.loads((out / "summary.json").read_text(encoding="utf-8"))["metrics"]
    return _measure(measured["test"] or measured["validation"])


def _fitted(job_file: Path, seed: int, rate: float) -> float:
    import keras

    from vcdl.client.compile import compile_model, loss_unit
    from vcdl.client.model import load_model, target_scale
    from vcdl.data import load_dataset
    from vcdl.data.rows import first_of
    from vcdl.job import load_job
    from vcdl.models.fitted import build_fitted
    from vcdl.models.model_classes import load_data_with_model_classes
    from vcdl.wire.layout import assign, assign_frozen
    from vcdl.wire.normalise import normalise

    job = load_job(job_file, [f"seed={seed}"], slots=2)
    keras.utils.set_random_seed(seed)
    fit = build_fitted(job, load_data_with_model_classes(job, partial(load_dataset, seed=seed)))
    model = load_model(fit.model.json)
    assign(model, fit.model.weights)
    assign_frozen(model, fit.model.frozen)
    training = replace(fit.training, learning_rate=rate)
    compile_model(model, training, loss_weight=1 / loss_unit(training.loss, target_scale(model)))
    model.optimizer.learning_rate = rate
    data, norm = fit.dataset, fit.normalisation
    x, y = normalise(first_of(data.x_train, len(data.x_train)), norm), np.asarray(data.y_train)
    model.fit(x, y, batch_size=training.batch_size, epochs=job.stop.epochs, verbose=0)
    held, labels = (data.x_val, data.y_val) if data.x_test is None else (data.x_test, data.y_test)
    x_held = normalise(first_of(held, len(held)), norm)
    return _measure(model.evaluate(x_held, np.asarray(labels), verbose=0, return_dict=True))


def _measure(measures: dict[str, Any]) -> float:
    """Accuracy, or the error of a regression."""
    return float(next(measures[name] for name in ("accuracy", "mean_absolute_error") if name in measures))


def _is_regression(job: Path) -> bool:
    from vcdl.job import load_job

    return load_job(job).data.task == "regression"


def _vcdl(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "vcdl", *words], check=True, stdout=subprocess.DEVNULL)


def _words(scores: tuple[float, ...], measure: str) -> str:
    scale, form = (100, ".1f") if measure == "accuracy" else (1, ".4g")
    spread = f" ± {scale * statistics.stdev(scores):.2g}" if len(scores) > 1 else ""
    return f"{format(scale * statistics.fmean(scores), form)}{spread}"


if __name__ == "__main__":
    main()
