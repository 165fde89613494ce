"""The movie in README.md: a real run on this machine, under fire, with Redis as its store.

`python -m benchmarks.draw_under_fire [--seed N] [-o FILE.svg]` runs examples/digits.yaml with 480 subtasks in a
temporary folder. Until nine tenths of them are applied it kills, in an order that the seed decides, single processes,
the whole run (which is then resumed) and the store, and puts older copies of the store back. It prints what was killed
and how often, proves with `vcdl verify` that every update counts once, and draws the movie of the journal.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.private_servers import private_redis
from tests.end_to_end.test_hour_of_fire import Fire
from tests.end_to_end.vcdl_process import applied, children, kill
from tests.places import EXAMPLES, ROOT
from tests.store_backups import RedisBackups
from vcdl.wire.workunit import WorkunitName

SHARDS, EPOCHS = 16, 30
SETTINGS = {
    "stop.epochs": EPOCHS, "stop.target_accuracy": "null", "data.shards": SHARDS, "grid.workers": 6, "grid.servers": 2,
    "grid.tries": 1000, "retention.uploads": "all", "training.local_epochs": 60, "validate.every": 4,
}  # fmt: skip
BETWEEN = (2, 16)
"""Updates between two disturbances, so that the run gets ahead on a busy machine too."""


def burn(fire: Fire) -> None:
    """Disturb the run until nine tenths of its updates are applied, then let it come to its end."""
    deeds = {
        fire.kill_a_child: 14, fire.kill_everything: 2, fire.kill_the_store: 2, fire.copy_the_store: 3,
        fire.put_an_older_store_back: 2,
    }  # fmt: skip
    due = SHARDS
    while not (fire.folder / "summary.json").exists():
        done = len(applied(fire.folder))
        if fire.run.poll() is not None:
            fire.go_on()
        elif due <= done < 0.9 * SHARDS * EPOCHS:
            fire.dice.choices([*deeds], [*deeds.values()])[0]()
            due = done + fire.dice.randint(*BETWEEN)
        time.sleep(0.3)
    fire.run.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "images" / "under_fire.svg")
    parser.add_argument("--keep", type=Path, help="copy the run's folder there, to draw it again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vcdl-") as path:
        short = Path(path)
        with private_redis(short, "--appendonly", "yes", "--appendfsync", "always") as redis:
            folder = short / "run" / "digits"
            fire = Fire(folder, short / "run", redis, None, None, RedisBackups, random.Random(arguments.seed))
            words = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
            fire.begin("run", EXAMPLES / "digits.yaml", "--out", folder, "--set", f"store.url={redis.url}", *words)
            try:
                burn(fire)
            finally:
                for pid in [*children(fire.run.pid), fire.run.pid]:
                    kill(pid)
                fire.run.wait()
            rows = applied(folder)
            times = Counter(WorkunitName.parse(row.workunit).subtask for row in rows)
            print(f"{len(rows)} updates of {len(times)} subtasks, {max(times.values())} of each; {dict(fire.counts)}")
            if arguments.keep is not None:
                shutil.copytree(folder, arguments.keep)
            for command in (
                ["verify", folder],
                ["plot", folder, "--movie", arguments.output, "--title", "A run under fire"],
            ):
                subprocess.run([sys.executable, "-m", "vcdl", *map(str, command)], check=True)


if __name__ == "__main__":
    main()
