"""What a pool costs: `python -m benchmarks.bench_pool --pilots 100`.

Light pilots with the real protocol share a folder with a real grid; nothing is trained, and nothing is folded. It
prints the server's time a subtask and the file system's requests of a waiting pilot and of the server.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.pool.light_pilots import SIZE, LightWorker
from tests.served_run import SHARDS, ServedRun
from vcdl.job.schema import GridSettings
from vcdl.pool.grid import PoolGrid
from vcdl.pool.mailboxes import PoolFolder
from vcdl.pool.pilot import Pilot
from vcdl.run.staging import stage
from vcdl.wire.workunit import WorkunitName


def measure(pilots: int, subtasks: int) -> None:
    """Run so many subtasks over so many pilots, and print what they cost."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary)
        served = ServedRun.new(path / "run", np.ones(SIZE, np.float32), "")
        folder = served.folder
        folder.model_file.write_text("{}")
        folder.shards.mkdir(parents=True)
        for shard in range(SHARDS):
            folder.shard(shard).write_bytes(b"samples")
        grid = PoolGrid(folder, served.run.job.model_copy(update={"grid": GridSettings(servers=1)}))
        grid.start()
        pool = PoolFolder.of(folder.path)
        flying = []
        for number in range(pilots):
            scratch = path / f"scratch{number}"
            scratch.mkdir()
            worker = LightWorker(served.prepared.layout.fingerprint)
            flying.append(Pilot(f"p{number}", pool, worker, scratch, 600.0, print))
        template = stage(served.run, WorkunitName(served.run.name, 1, 0, 0, 0), 1.0)
        grid_s, done, created = 0.0, 0, 0
        while done < subtasks:
            for pilot in flying:
                pilot.step(0)
            begun_s = time.perf_counter()
            missing = grid.target_open_workunits() - (created - done)
            items = []
            for _ in range(missing):
                unit = replace(template.workunit, epoch=1 + created // SHARDS, shard=created % SHARDS)
                items.append(replace(template, workunit=unit))
                created += 1
            grid.submit(items)
            for outcome in grid.claim():
                grid.done(outcome.workunit)
                done += 1
            grid.sent()
            grid_s += time.perf_counter() - begun_s
        print(f"{pilots} pilots, {done} subtasks: {1000 * grid_s / done:.2f} ms of the server a subtask")
        begun_s, looks = time.perf_counter(), 200
        for _ in range(looks):
            grid.wait(0)
        print(f"a look of the server when nobody rings: {1e6 * (time.perf_counter() - begun_s) / looks:.0f} us")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pilots", type=int, default=100)
    parser.add_argument("--subtasks", type=int, default=2000)
    arguments = parser.parse_args()
    measure(arguments.pilots, arguments.subtasks)


if __name__ == "__main__":
    main()
