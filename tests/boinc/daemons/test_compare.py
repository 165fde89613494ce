"""`vcdl_compare`: two hosts' uploads of one workunit, in the files and rows that BOINC has of them.

No real script_validator has called it yet: its contract is read from BOINC's source (docs/trust.md).
"""

import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.boinc.daemons.conftest import Server
from tests.boinc.standin.transitioner import transition
from tests.uploads import header_of
from vcdl.boinc.daemons.compare import compare
from vcdl.boinc.daemons.opened_runs import OpenedRuns
from vcdl.boinc.daemons.script import ACCEPTED, REFUSED, Verdict
from vcdl.boinc.daemons.work_generator import WorkGenerators
from vcdl.boinc.grid.results import output_file
from vcdl.codecs.choose import up_encoding
from vcdl.errors import RunFolderError
from vcdl.job import save_job
from vcdl.run.run import Run
from vcdl.wire.weights import Vector, read_weights
from vcdl.wire.workunit import WorkunitName

pytestmark = [pytest.mark.boinc, pytest.mark.keras]

ALL = "trust: {kind: strangers, verify: 0, redundancy: 1.0}\n"


@dataclass
class Pair:
    """The two results of the first workunit, which hosts 1 and 2 got."""

    server: Server
    workunit: str
    files: tuple[Path, Path]
    base: Vector
    run: Run

    def bring(self, number: int, step: Vector, fraction: float = 1.0) -> None:
        run = self.run
        whole = run.prepared.shard_samples[WorkunitName.parse(self.workunit).shard]
        samples = round(fraction * whole)
        facts = {"samples": samples, "fraction": samples / whole, "train_s": 0.5 + number}
        header = header_of(self.workunit, run.layout.fingerprint, **facts)
        self.files[number].parent.mkdir(parents=True, exist_ok=True)
        up_encoding(run.transport, run.layout).write_upload(
            self.files[number], self.base + step, self.base, header.to_json()
        )

    def host(self, number: int, host: int) -> None:
        connection = self.server.standin.connect()
        with connection.cursor() as cursor:
            cursor.execute("UPDATE result SET hostid = %s WHERE name = %s", (host, f"{self.workunit}_{number}"))
        connection.commit()
        connection.close()

    def compared(self) -> int:
        return self.verdict().code

    def verdict(self, *files: Path) -> Verdict:
        with closing(OpenedRuns(self.server.project)) as runs:
            return compare(runs, files or self.files)


@pytest.fixture
def pair(server: Server) -> Pair:
    with closing(WorkGenerators(server.project)) as generators:
        generators.run_once()
    transition(server.standin)
    workunit = server.standin.rows("SELECT name FROM workunit ORDER BY name LIMIT 1")[0]["name"]
    rows = server.standin.rows("SELECT xml_doc_in FROM result WHERE name LIKE %s ORDER BY name", f"{workunit}_%")
    first, second = [server.project.upload_path(output_file(row["xml_doc_in"])) for row in rows]
    run = Run.open(server.folder)
    base, _ = read_weights(server.folder.snapshot(0), run.layout.size)
    pair = Pair(server, workunit, (first, second), base, run)
    for number in (0, 1):
        pair.host(number, number + 1)
    return pair


def step_of(pair: Pair, seed: int = 1) -> Vector:
    step = 0.01 * np.random.default_rng(seed).standard_normal(pair.base.size, dtype=np.float32)
    step[pair.run.layout.model.size :] = 0  # second moments are never negative
    return step


@pytest.mark.parametrize("server", [ALL], indirect=True)
def test_the_same_work_is_accepted_and_other_work_is_not(pair: Pair) -> None:
    step = step_of(pair)
    pair.bring(0, step)
    pair.bring(1, step)
    assert pair.compared() == ACCEPTED, "bit-equal, although the headers differ"
    pair.bring(1, step + np.float32(0.01) * step_of(pair, 2))
    assert pair.compared() == ACCEPTED, "near-equal: another processor"
    pair.bring(1, -step)
    assert pair.compared() == REFUSED
    assert "results 0 and 1 differ by 2 of their step in the trained weights" in pair.verdict().why
    pair.bring(1, 0 * step)
    assert pair.compared() == REFUSED, "a free rider uploads what it got"
    pair.bring(1, step, fraction=0.5)
    assert pair.compared() == REFUSED, "a partial result says nothing about a whole one"
    pair.files[1].write_bytes(b"rubbish")
    assert pair.compared() == REFUSED
    pair.bring(1, step)
    pair.host(1, 1)
    assert pair.compared() == REFUSED, "two results of one host say nothing about each other"


@pytest.mark.parametrize("server", [ALL], indirect=True)
def test_nobody_is_refused_where_there_is_nothing_to_compare(pair: Pair, tmp_path: Path) -> None:
    pair.bring(0, step_of(pair))
    pair.bring(1, -step_of(pair))
    assert pair.compared() == REFUSED
    prepared = pair.run.folder.prepared_file
    away = prepared.rename(tmp_path / "away")
    with pytest.raises(RunFolderError, match=r"prepared\.json"):
        pair.compared()
    away.rename(prepared)
    trust = pair.run.job.trust.model_copy(update={"redundancy": 0.0})
    save_job(pair.run.job.model_copy(update={"trust": trust}), pair.run.folder.job_file)
    assert pair.compared() == ACCEPTED, "a late result of a workunit that needs one"
    save_job(pair.run.job, pair.run.folder.job_file)
    pair.run.folder.snapshot(0).unlink()
    assert pair.compared() == ACCEPTED, "a late result of a workunit that is over"


@pytest.mark.parametrize("server", [ALL], indirect=True)
def test_boinc_sees_the_exit_code_and_what_is_no_pair_is_refused(pair: Pair) -> None:
    for number, sign in ((0, 1), (1, -1)):
        pair.bring(number, sign * step_of(pair))
    command = [sys.executable, "-m", "vcdl.boinc.daemons.compare", *map(str, pair.files)]
    command += ["--project-dir", str(pair.server.project.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == REFUSED, done.stderr
    assert "differ by 2 of their step" in done.stderr
    other = pair.files[1].with_name(pair.files[1].name.replace("_s000_", "_s001_"))
    assert pair.verdict(pair.files[0], other).code == REFUSED
    assert pair.verdict(Path("rubbish"), Path("rubbish")).code == REFUSED
