"""A project with a submitted job, and its daemons as objects whose rounds a test counts."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.boinc.daemons.fabricated_client import FabricatedClient
from tests.boinc.standin import Database, StandinProject
from tests.places import ROOT
from tests.store_servers import start_mariadb
from vcdl.boinc.daemons.opened_runs import OpenedRuns
from vcdl.boinc.daemons.validate import validate
from vcdl.boinc.daemons.work_generator import WorkGenerators
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.commands.submit import submit
from vcdl.journal.events import WorkunitFailed
from vcdl.report.measures import Report
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of, read_report

JOB = """
name: tiny
model: {builtin: {name: mlp, units: [8]}}
data: {dataset: digits, shards: 3}
validate: {every: epoch}
stop: {epochs: 1}
grid: {tries: 2}
"""
TRUST = "trust: own\n"
"""The client trains nothing, and few tests have an evaluator, for whose reference update bounds would wait."""


@dataclass
class Server:
    """A stand-in project with the parts of VCDL that run in it."""

    standin: StandinProject
    project: BoincProject
    client: FabricatedClient
    folder: RunFolder

    @property
    def report(self) -> Report:
        return read_report(self.folder)

    def generate(self) -> None:
        """A round of the work generator."""
        with closing(WorkGenerators(self.project)) as generators:
            generators.run_once()

    def validated(self, file: Path) -> int:
        """What vcdl_validate says of an upload."""
        with closing(OpenedRuns(self.project)) as runs:
            return validate(runs, file).code

    def failures(self) -> list[WorkunitFailed]:
        return list(events_of(self.folder, WorkunitFailed))

    def staged(self) -> list[str]:
        """Names of the files in download/."""
        return sorted(path.name for path in self.project.download_dir.rglob("*") if path.is_file())


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A project with JOB, and the lines that a test adds to it."""
    with tempfile.TemporaryDirectory(prefix="vcdl-") as short, start_mariadb(Path(short)) as mariadb:
        standin = StandinProject.make(tmp_path / "project", Database.of(mariadb))
        for name, value in standin.environment.items():
            monkeypatch.setenv(name, value)
        validator = standin.path / "bin" / "vcdl_validate"
        validator.write_text(
            f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{sys.executable}' -m vcdl.boinc.daemons.validate \"$@\"\n"
        )
        validator.chmod(0o755)
        job_file = tmp_path / "job.yaml"
        added = getattr(request, "param", "")
        job_file.write_text(JOB + ("" if "trust:" in added else TRUST) + added)
        submit(job_file, standin.path)
        project = BoincProject.at(standin.path)
        yield Server(standin, project, FabricatedClient(standin, project), project.run_folder("tiny"))
