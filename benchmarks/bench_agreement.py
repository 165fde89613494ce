"""`python -m benchmarks.bench_agreement RUN`: how far two honest computers' updates of one subtask are apart.

Trains some shards of a run's job from the first and from the newest weights that it keeps, each under several numbers
of threads and with oneDNN on and off, as different computers would, and prints the distances as shares of the step
(vcdl.trust.agreement).
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcdl.client.processors import limit_threads
from vcdl.codecs.choose import up_encoding
from vcdl.errors import RunFolderError
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.run.staging import Staged
from vcdl.trust.agreement import Disagreement, disagreement
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import read_weights, write_weights
from vcdl.wire.workunit import DESCRIPTION_FILE, OUTPUT_FILE, Workunit


@dataclass(frozen=True)
class Computer:
    """A way to round."""

    threads: int
    onednn: bool

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **limit_threads(self.threads), "TF_ENABLE_ONEDNN_OPTS": str(int(self.onednn))}

    def __str__(self) -> str:
        return f"{self.threads} thread{'s' if self.threads > 1 else ''}, oneDNN {'on' if self.onednn else 'off'}"


_TRAIN = "import sys; from vcdl.client.__main__ import main; sys.exit(max(main([slot]) for slot in sys.argv[1:]))"
FIRST, *OTHERS = (Computer(1, True), Computer(1, True), Computer(2, True), Computer(1, False), Computer(2, False))
"""The second is the first once more: the same computer gives the same bits."""


def measured(run: Run, shards: int, folder: Path) -> Iterator[tuple[str, int, Computer, Disagreement]]:
    """The weights started from, the shard, the other computer, and its disagreement with the first one."""
    versions = run.folder.snapshot_versions()
    starts = {
        f"{which} weights": read_weights(run.folder.snapshot(version), run.layout.size)[0]
        for which, version in (("first", versions[0]), ("newest", versions[-1]))
    }
    for name, weights in starts.items():
        header = ParamsHeader(run.name, 0, run.layout.fingerprint)
        write_weights(folder / f"{name}.h5", weights, header.to_json())
    subtasks = [(name, shard) for name in starts for shard in range(shards)]
    encoding = up_encoding(run.transport, run.layout)
    first = trained(run, subtasks, FIRST, folder / "first")
    for number, computer in enumerate(OTHERS):
        updates = trained(run, subtasks, computer, folder / f"{number}")
        for (name, shard), one, other in zip(subtasks, first, updates, strict=True):
            yield name, shard, computer, disagreement(one, other, folder / f"{name}.h5", encoding)


def trained(run: Run, subtasks: Sequence[tuple[str, int]], computer: Computer, folder: Path) -> list[Path]:
    """The updates of subtasks, by their weights' name and shard, from one process. Raises RunFolderError."""
    slots = [folder / f"{name} {shard}" for name, shard in subtasks]
    for slot, (name, shard) in zip(slots, subtasks, strict=True):
        slot.mkdir(parents=True)
        unit = Workunit(run.name, 1, shard, 0, 0, run.job.seed, run.training, run.transport, run.prepared.frozen)
        (slot / DESCRIPTION_FILE).write_text(unit.to_json())
        frozen = None if unit.frozen is None else run.folder.frozen_file
        staged = Staged(unit, run.folder.model_file, folder.parent / f"{name}.h5", run.folder.shard(shard), frozen)
        for logical, source in staged.inputs.items():
            (slot / logical).symlink_to(source)
    command = [sys.executable, "-c", _TRAIN, *map(str, slots)]
    done = subprocess.run(command, env=computer.environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RunFolderError(f"{folder.name}: the client failed: {done.stderr[-300:]}")
    return [slot / OUTPUT_FILE for slot in slots]


def main() -> None:
    """Measure, and print a line for each comparison."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench_agreement", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--shards", type=int, default=2, metavar="N")
    options = parser.parse_args()
    run = Run.open(RunFolder.existing(options.run))
    print(f"{'from':<16}{'shard':<7}{'1 thread, oneDNN on, against':<30}{'trained':>10}{'rest':>10}")
    with tempfile.TemporaryDirectory(prefix="vcdl-agreement-") as folder:
        for name, shard, computer, apart in measured(run, options.shards, Path(folder)):
            print(f"{name:<16}{shard:<7}{computer!s:<30}{apart.trained:>10.2g}{apart.rest:>10.2g}", flush=True)


if __name__ == "__main__":
    main()
