"""Hostile volunteers on a real BOINC server (see test_real_server.py), beside honest ones: no job ends, no honest host
rests, and who lied is out.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.boinc.boinc_client import BoincClient
from tests.boinc.hostile_client import STRIKE, hostile_python
from tests.boinc.real_project import ON_A_PROJECT, TIMEOUT_S, RealProject
from vcdl.boinc.grid.host_care import read_suspensions
from vcdl.boinc.grid.results import host_name
from vcdl.journal.events import HostConvicted, ResultRefused, UploadVerified
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of, read_report

JOB = """
name: hostile
model: {builtin: {name: mlp, units: [32]}}
data: {dataset: digits, shards: 8}
training: {learning_rate: 0.01}
validate: {every: epoch}
stop: {epochs: 200}
"""
_SENT = "SELECT COUNT(*) FROM result WHERE hostid = %s"
_CREDIT = (
    "SELECT SUM(r.granted_credit) FROM result r JOIN workunit w ON w.id = r.workunitid"
    " WHERE r.hostid = %s AND w.name = %s"
)

pytestmark = [*ON_A_PROJECT, pytest.mark.timeout(1800)]


@dataclass(frozen=True)
class Attacked:
    """A job with two honest clients and a hostile one, whose first task is through."""

    real: RealProject
    run: RunFolder
    honest: BoincClient
    liar: BoincClient
    liar_id: int

    @property
    def applied(self) -> int:
        return read_report(self.run).totals.applied

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        self.honest.wait_until(condition, what, timeout_s=2 * TIMEOUT_S, asking=True)

    def is_out(self) -> None:
        """It rests by the work generator's word and gets nothing, the others train on, and none of them rests."""
        self.wait_until(lambda: self.liar_id in read_suspensions(self.real.project).of, "it rests")
        self.liar.wait_until(lambda: not self.liar.tasks(), "it has given its tasks back", timeout_s=TIMEOUT_S)
        before, sent = self.applied, self.real.rows(_SENT, self.liar_id)
        asked = self.liar.log.count("Sending scheduler request")
        self.liar.update()
        self.wait_until(lambda: self.liar.log.count("Sending scheduler request") > asked, "it has asked")
        self.wait_until(lambda: self.applied >= before + 8, "the others train on")
        assert self.real.rows(_SENT, self.liar_id) == sent
        assert read_suspensions(self.real.project).of.keys() == {self.liar_id}
        assert not self.run.summary_file.exists()


@contextmanager
def attacked(real: RealProject, folder: Path, attack: str) -> Iterator[Attacked]:
    (folder / "job.yaml").write_text(JOB)
    run = real.submit(folder / "job.yaml")
    python = str(hostile_python(folder / "hostile", attack))
    known = {int(str(row[0])) for row in real.rows("SELECT id FROM host")}
    with real.client(folder / "liar", cpus=1, VCDL_PYTHON=python) as liar:
        liar.wait_until(lambda: liar.tasks(), "the liar has work", timeout_s=TIMEOUT_S, asking=True)
        (liar_id,) = {int(str(row[0])) for row in real.rows("SELECT id FROM host")} - known
        with real.client(folder / "one", cpus=1) as honest, real.client(folder / "two", cpus=1):
            yield Attacked(real, run, honest, liar, liar_id)


@pytest.mark.parametrize("attack", ["garbage", "garbage_first"])
def test_a_host_that_uploads_garbage_is_out_at_once(real: RealProject, tmp_path: Path, attack: str) -> None:
    with attacked(real, tmp_path, attack) as job:
        job.is_out()
        refused = [one for one in events_of(job.run, ResultRefused) if one.refusal != "host_quarantined"]
        assert {(one.host, one.refusal) for one in refused} == {(host_name(job.liar_id), "unreadable")}


def test_a_sleeper_is_out_once_it_has_struck_and_its_credit_goes_back(real: RealProject, tmp_path: Path) -> None:
    with attacked(real, tmp_path, "flipped") as job:
        name = host_name(job.liar_id)

        def found_good() -> int:
            return sum(one.agrees and one.host == name for one in events_of(job.run, UploadVerified))

        job.wait_until(lambda: found_good() and job.applied >= 24, "the server trained one of its uploads again")
        (tmp_path / "hostile" / STRIKE).touch()
        job.wait_until(lambda: [*events_of(job.run, HostConvicted)], "it is convicted")
        (first, *_) = events_of(job.run, HostConvicted)
        assert (first.host, first.for_good) == (name, False), "one wrong bit in a memory is enough for the first time"
        job.is_out()
        rows = json.loads(real.vcdl("hosts", job.run.path.name, "--json"))
        assert {row["host"]: row["state"] for row in rows}[name] == "quarantined"
        assert real.rows(_CREDIT, job.liar_id, first.workunit)[0][0] == 0
