"""Speed of staging and creating workunits in a real BOINC project: 10 000 in at most 60 s.

    python benchmarks/bench_boinc_create.py --project-dir PROJECT [--workunits 10000] [--shards 50] [--shard-kb 500]
        [--params-mb 4] [--json]

Use a project made for trials: at the end the workunits are cancelled and their files removed, but their rows
stay in the database.
"""

import argparse
import json
import secrets
import tempfile
import time
from pathlib import Path

from vcdl.boinc.grid.create_work import WorkSettings
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.grid import BoincGrid
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.run.staging import Staged
from vcdl.wire.workunit import Named, Training, Workunit

LIMIT_S_PER_WORKUNIT = 60 / 10_000
TRAINING = Training(Named("adam"), 0.001, 32, 1, Named("sparse_categorical_crossentropy"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project-dir", type=Path, required=True)
    parser.add_argument("--workunits", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=50)
    parser.add_argument("--shard-kb", type=int, default=500)
    parser.add_argument("--params-mb", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    project = BoincProject.at(options.project_dir)
    database = BoincDatabase(project)
    job = f"bench-{secrets.token_hex(4)}"
    grid = BoincGrid(
        project,
        database,
        WorkSettings(
            job=job,
            share=1,
            deadline_s=3600.0,
            flops=1e12,
            memory_bytes=1e9,
            disk_bytes=1e9,
            upload_bytes=10_000_000,
        ),
    )
    with tempfile.TemporaryDirectory(dir=project.path) as folder:
        staged = _staged(Path(folder), job, options)
        timings = {}
        try:
            for what, call in (
                ("submit", lambda: grid.submit(staged)),
                ("submit again", lambda: grid.submit(staged)),
                ("refresh", grid.refresh),
                ("sent", grid.sent),
            ):
                begin_s = time.perf_counter()
                call()
                timings[what] = round(time.perf_counter() - begin_s, 3)
        finally:
            begin_s = time.perf_counter()
            grid.clear(forget_on_clients=True)
            timings["clear"] = round(time.perf_counter() - begin_s, 3)
    database.close()
    limit_s = LIMIT_S_PER_WORKUNIT * options.workunits
    if options.json:
        print(json.dumps({"workunits": options.workunits, "limit_s": limit_s, "timings_s": timings}))
        return
    for what, took_s in timings.items():
        print(f"{what:12}  {took_s:7.2f} s for {options.workunits} workunits")
    verdict = "within" if timings["submit"] <= limit_s else "ABOVE"
    print(f"staged and created: {verdict} the limit of {limit_s:g} s")


def _staged(folder: Path, job: str, options: argparse.Namespace) -> list[Staged]:
    """Files of random bytes, which are hashed, linked and named like real ones."""
    model, params = folder / "model.json", folder / "params_v000000.h5"
    model.write_text(json.dumps({"layers": [secrets.token_hex(16) for _ in range(1000)]}))
    params.write_bytes(secrets.token_bytes(options.params_mb << 20))
    shards = [folder / f"shard_{number:03d}.npz" for number in range(options.shards)]
    for shard in shards:
        shard.write_bytes(secrets.token_bytes(options.shard_kb << 10))
    numbers = (divmod(number, options.shards) for number in range(options.workunits))
    return [
        Staged(
            Workunit(
                job=job, epoch=epoch + 1, shard=shard, attempt=0, base_version=0, seed=epoch * shard, training=TRAINING
            ),
            model,
            params,
            shards[shard],
        )
        for epoch, shard in numbers
    ]


if __name__ == "__main__":
    main()
