"""Accuracy over slots: our default, which is not tuned, beside FedAvg and FedAvgM at the best of three rates each.

    python -m benchmarks.bench_slots [--seeds 41,42,43] [--out DIR] [--docs DIR]

The problem is `waves` as a stranger brings it. FedAvg trains a round an epoch, of as many clients as there are slots,
each with its part of the data and a fresh Adam; FedAvgM adds a momentum of 0.9 on the server (Hsu et al. 2019, arXiv
1909.06335). Both have the batches of ours and follow the same course of the rate, each slot's rate found with another
seed. The command may be killed: the same one continues.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.experiments.conduct import conduct
from benchmarks.experiments.experiment import Experiment, Variant
from benchmarks.experiments.measured import measured
from benchmarks.experiments.planned_run import PlannedRun, planned_runs
from benchmarks.experiments.problems import StrangersProblem
from benchmarks.experiments.tuning import TUNING_SEEDS
from vcdl.files.atomic import atomic_write
from vcdl.journal.monitor import EpochDetail
from vcdl.report.plot import Curve, figure_of

_SLOTS = (1, 5, 10, 20, 40)
_RATES = (0.004, 0.012, 0.036)
_MOMENTUM = {"FedAvg": 0.0, "FedAvgM": 0.9}
_EPOCHS = 10
_OWN = ("trust=own", "validate.every=epoch")
_WAVES = StrangersProblem("waves", "time series", "series")
_OURS = Experiment(
    title="Accuracy over slots",
    about="",
    variants=tuple(
        Variant(f"{slots} slots", _OWN, (f"clients={slots}", "slots=1"), problem=_WAVES) for slots in _SLOTS
    ),
    epochs=(_EPOCHS,),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="41,42,43")
    parser.add_argument("--out", type=Path, default=Path("experiments/slots"))
    parser.add_argument("--docs", type=Path, default=None, help="folder of the report [default: --out]")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    runs = planned_runs(_OURS, Path(), options.out, seeds)
    conduct(runs, 1, lambda words: print(words, flush=True))
    found = {"ours by default": [[measured(run).final or 0.0 for run in _of(runs, slots)] for slots in _SLOTS]}
    rates: dict[str, list[float]] = {}
    for name, momentum in _MOMENTUM.items():
        rates[name] = [_best_rate(options.out, momentum, slots) for slots in _SLOTS]
        found[name] = [
            [_averaged(options.out, momentum, slots, rate, seed) for seed in seeds]
            for slots, rate in zip(_SLOTS, rates[name], strict=True)
        ]
    _write(options.docs or options.out, found, rates, options.seeds)


def _of(runs: Sequence[PlannedRun], slots: int) -> list[PlannedRun]:
    return [run for run in runs if run.fleet.clients == slots]


def _best_rate(out: Path, momentum: float, slots: int) -> float:
    return max(_RATES, key=lambda rate: _averaged(out, momentum, slots, rate, TUNING_SEEDS[0]))


def _averaged(out: Path, momentum: float, slots: int, rate: float, seed: int) -> float:
    """Test accuracy of FedAvg(M), kept in a file so that nothing is trained twice."""
    kept = out / f"momentum-{momentum:g}-slots-{slots}-rate-{rate:g}-seed-{seed}.json"
    if not kept.exists():
        score = _trained(momentum, slots, rate, seed, out)
        with atomic_write(kept) as temporary:
            temporary.write_text(json.dumps(score), encoding="utf-8")
        print(f"{kept.stem}: {score:.4f}", flush=True)
    return float(json.loads(kept.read_text(encoding="utf-8")))


def _trained(momentum: float, slots: int, rate: float, seed: int, out: Path) -> float:
    from vcdl.client.trainer import Trainer
    from vcdl.data import load_dataset, normalisation_of
    from vcdl.data.rows import in_memory
    from vcdl.data.shards import cut_into_shards
    from vcdl.models.build import build_model
    from vcdl.wire.normalise import normalise

    job = _of(planned_runs(_OURS, Path(), out, [seed]), slots)[0].job
    dataset = load_dataset(job.data, seed)
    norm = normalisation_of(dataset.x_train, job.data)
    built = build_model(job.model, dataset.input_shape, dataset.outputs, job.data.task, seed)
    trainer = Trainer(built.json, replace(job.training_on(norm), share_optimizer_state="none"))
    x, y, batch = normalise(in_memory(dataset.x_train), norm), np.asarray(dataset.y_train), job.training.batch_size
    server, speed = built.weights.copy(), np.zeros_like(built.weights)
    parts = job.data.model_copy(update={"shards": slots})
    shards, rng = cut_into_shards(dataset, parts, seed), np.random.default_rng(seed)
    done = 0
    for _ in range(_EPOCHS):
        order = rng.permutation(len(shards))
        for begin in range(0, len(order), slots):
            uploads = []
            for shard in order[begin : begin + slots]:
                passes = np.concatenate([rng.permutation(shards[shard]) for _ in range(job.training.local_epochs)])
                course = 1 - 0.98 * done / (_EPOCHS * len(shards))
                trainer.begin(server, seed + done, rate * course, -(-len(passes) // batch))
                trainer.steps(x, y, passes, batch)
                uploads.append(trainer.finish())
            done += len(uploads)
            speed = momentum * speed + (np.mean(uploads, axis=0) - server)
            server = server + speed
    trainer.begin(server, seed, 0.0, 1)
    x_test = dataset.x_val if dataset.x_test is None else dataset.x_test
    outputs = trainer.model.predict(normalise(in_memory(x_test), norm), batch_size=256, verbose=0)
    return float(np.mean(outputs.argmax(axis=-1) == dataset.y_test))


def _write(folder: Path, found: Mapping[str, list[list[float]]], rates: Mapping[str, list[float]], seeds: str) -> None:
    """The table, its figures and the picture."""
    head = ["slots", *found]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    rows = ["way,slots,rate,accuracies"]
    for place, slots in enumerate(_SLOTS):
        cells = [str(slots)]
        for name, scores in found.items():
            rate = f"{rates[name][place]:g}" if name in rates else ""
            cells.append(f"{_percent(statistics.fmean, scores[place])} ± {_percent(statistics.stdev, scores[place])}")
            cells[-1] += f" ({rate})" if rate else ""
            rows.append(f"{name},{slots},{rate},{' '.join(map(str, scores[place]))}")
        lines.append(f"| {' | '.join(cells)} |")
    curves = [Curve(name, tuple(map(_point, _SLOTS, scores))) for name, scores in found.items()]
    figure = figure_of(curves, "Accuracy over slots", "test accuracy (mean of the seeds ± spread)")
    figure.axes[0].set_xlabel("slots")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "slots.png", dpi=150)
    (folder / "slots.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    print("\n".join(lines), f"seeds {seeds}", sep="\n")


def _percent(measure: Callable[[list[float]], float], scores: list[float]) -> str:
    return f"{100 * measure(scores):.1f}"


def _point(slots: int, scores: list[float]) -> EpochDetail:
    mean, spread = statistics.fmean(scores), statistics.stdev(scores)
    return EpochDetail(slots, mean, mean - spread, mean + spread, float(slots))


if __name__ == "__main__":
    main()
