"""A client's start and its share of training: what a task's process does from its start to its end.

    python benchmarks/bench_start.py [--model small_cnn] [--seconds 5 20 60] [--rounds 3] [--beside CHECKOUT]
                                     [--python PYTHON] [--json]

A task is started by the launcher in a slot, as a BOINC client does it, and trains for so many seconds. It says itself
when it trained its first and its last batch, and when it ends. `--beside` does the same with the client of another
checkout, in turn, for a comparison side by side: it must say these times, too. `--python` trains (that of this process
by default), on the backend of KERAS_BACKEND. A task uses one core. On a busy machine look at the processor times.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_AGE = re.compile(r"(first batch|last batch|the task's process).* after ([\d.]+) s \(([\d.]+) s of processor time\)")
_NAME = "vcdl_client_bench"
_BUILD = "import sys, pathlib, vcdl.boinc.project.client_build as b; b.build_client(pathlib.Path(sys.argv[1]))"
_WRITE = """
import sys
from pathlib import Path
from benchmarks.bench_client import SCALE, prepare
from vcdl.wire.workunit import Named, Normalisation, Training
loss, normalisation = Named("sparse_categorical_crossentropy"), Normalisation((SCALE,), (0.0,))
training = Training(Named("adam"), 0.001, 32, 1, loss, metrics=(), normalisation=normalisation)
prepare(Path(sys.argv[1]), sys.argv[2], training, int(sys.argv[3]))
"""


@dataclass(frozen=True)
class Ages:
    """Seconds since the start of a task's process: on the clock, or of processor time."""

    first_batch_s: float
    last_batch_s: float
    end_s: float

    @property
    def share(self) -> float:
        """Training's share of the process' time, without the first batch, which is compiled."""
        return (self.last_batch_s - self.first_batch_s) / self.end_s


@dataclass(frozen=True)
class Task:
    """A task that was trained to its end, by the clock and by the processor."""

    wall: Ages
    processor: Ages


class Host:
    """A BOINC client's folders, with the client of one checkout as app version."""

    def __init__(self, folder: Path, checkout: Path, python: str) -> None:
        self._project, self._slots, self._python = folder / "projects" / "x", folder / "slots", python
        self._project.mkdir(parents=True)
        shutil.copy(checkout / "wrappers" / "linux" / "vcdl_client", self._project / _NAME)
        subprocess.run([sys.executable, "-c", _BUILD, self._project / f"{_NAME}.pyz"], cwd=checkout, check=True)

    def task(self, workunit: Path, local_epochs: int) -> Task:
        """Train the workunit in a fresh slot."""
        slot = self._slots / "0"
        shutil.rmtree(slot, ignore_errors=True)
        shutil.copytree(workunit, slot)
        description = json.loads((slot / "workunit.json").read_text())
        description["training"]["local_epochs"] = local_epochs
        (slot / "workunit.json").write_text(json.dumps(description))
        (slot / "boinc_mmap_file").write_bytes(bytes(8 * 1024))
        (slot / "init_data.xml").write_text(_init_data(self._project))
        environment = {**os.environ, "VCDL_PYTHON": self._python}
        environment.pop("PYTHONPATH", None)
        with (slot / "stderr.txt").open("wb") as errors:
            command = [f"../../projects/x/{_NAME}", "--nthreads", "1"]
            subprocess.run(command, cwd=slot, env=environment, stderr=errors, check=True)
        return _task((slot / "stderr.txt").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("mlp", "small_cnn", "resnet_v2"), default="small_cnn")
    parser.add_argument("--samples", type=int, default=1080, help="in the shard")
    parser.add_argument("--seconds", type=float, nargs="*", default=[5.0, 20.0, 60.0], help="of training, by task")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another checkout")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    checkouts = {"this checkout": ROOT} | ({"the other": options.beside.resolve()} if options.beside else {})
    with tempfile.TemporaryDirectory() as folder:
        workunit = Path(folder) / "workunit"
        _write(workunit, options.model, options.samples)
        hosts = {
            name: Host(Path(folder) / str(number), checkout, options.python)
            for number, (name, checkout) in enumerate(checkouts.items())
        }
        figures = measure(hosts, workunit, options.seconds, options.rounds)
    if options.json:
        print(json.dumps(figures))
        return
    for name, values in figures.items():
        print(name)
        for what, value in values.items():
            print(f"  {what:58} {value:8.2f}")


def measure(
    hosts: Mapping[str, Host], workunit: Path, seconds: list[float], rounds: int
) -> dict[str, dict[str, float]]:
    """Medians by host, whose tasks take turns. A first task of each host compiles what is kept."""
    figures: dict[str, dict[str, float]] = {}
    for name, host in hosts.items():
        first = host.task(workunit, 1)
        figures[name] = {
            "first task of a host: first batch after, s": first.wall.first_batch_s,
            "first task of a host: first batch after, processor s": first.processor.first_batch_s,
        }
    epoch_s = _epoch_s(next(iter(hosts.values())), workunit)
    for wanted_s in seconds:
        tasks: dict[str, list[Task]] = {name: [] for name in hosts}
        for _ in range(rounds):
            for name, host in hosts.items():
                tasks[name].append(host.task(workunit, max(1, round(wanted_s / epoch_s))))
        for name, trained in tasks.items():
            figures[name] |= {
                f"{wanted_s:g} s: {what}": statistics.median(map(value, trained))
                for what, value in (
                    ("first batch after, s", lambda task: task.wall.first_batch_s),
                    ("first batch after, processor s", lambda task: task.processor.first_batch_s),
                    ("training, s", lambda task: task.wall.last_batch_s - task.wall.first_batch_s),
                    ("training's share of the time", lambda task: task.wall.share),
                    ("training's share of the processor time", lambda task: task.processor.share),
                )
            }
    return figures


def _epoch_s(host: Host, workunit: Path) -> float:
    """Processor time of a local epoch: seconds of training are those of an idle machine."""
    trials = [host.task(workunit, epochs).processor for epochs in (1, 11)]
    spans_s = [trial.last_batch_s - trial.first_batch_s for trial in trials]
    return max(1e-3, (spans_s[1] - spans_s[0]) / 10)


def _task(said: str) -> Task:
    ages = {what: (float(wall), float(processor)) for what, wall, processor in _AGE.findall(said)}
    first, last, end = ages["first batch"], ages["last batch"], ages["the task's process"]
    return Task(Ages(first[0], last[0], end[0]), Ages(first[1], last[1], end[1]))


def _init_data(project: Path) -> str:
    told = {"project_dir": project, "client_pid": os.getpid(), "ncpus": "1.0", "checkpoint_period": "60.0"}
    return "\n".join(
        ["<app_init_data>", *(f"<{name}>{value}</{name}>" for name, value in told.items()), "</app_init_data>"]
    )


def _write(folder: Path, model: str, samples: int) -> None:
    """Write a workunit's files in another process: Keras' backend there is TensorFlow."""
    folder.mkdir()
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", _WRITE, str(folder), model, str(samples)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
