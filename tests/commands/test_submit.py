"""`vcdl submit`: what is refused before anything is made, and that names are never used twice."""

from pathlib import Path

import pytest

from tests.boinc.standin import Database, StandinProject
from tests.run_folders import readable_files_with
from tests.store_servers import start_mariadb
from tests.stores.conftest import sql
from vcdl.commands.submit import submit
from vcdl.errors import DataError, GridError, JobError
from vcdl.job import load_frozen_job
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.stores.settings import URL_VARIABLE

pytestmark = [pytest.mark.boinc, pytest.mark.keras]

JOB = "name: tiny\nmodel: {builtin: {name: mlp, units: [4]}}\ndata: {dataset: digits, shards: 2}\n"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_a_folder_that_is_no_project_is_refused(job_file: Path, tmp_path: Path) -> None:
    with pytest.raises(GridError, match="no BOINC project"):
        submit(job_file, tmp_path)


def test_names_are_new_for_ever_and_a_refused_job_leaves_nothing(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with start_mariadb(tmp_path) as mariadb:
        standin = StandinProject.make(tmp_path / "project", Database.of(mariadb))
        for name, value in standin.environment.items():
            monkeypatch.setenv(name, value)
        runs = standin.path / "vcdl" / "runs"
        with pytest.raises(JobError, match="nodelete"):
            submit(job_file, standin.path, ["name=my-nodelete-job"])
        with pytest.raises(DataError):
            submit(job_file, standin.path, ["data.shards=100000"])
        environment = standin.path / "vcdl" / "environment"
        environment.parent.mkdir(exist_ok=True)
        environment.write_text("VCDL_JOB_QUOTA_GB=0.0001\n")
        with pytest.raises(GridError, match=r"tiny needs at least 0\.\d+ GB .*, and a job may hold 0\.0001 "):
            submit(job_file, standin.path)
        environment.unlink()
        assert not runs.exists() or not list(runs.iterdir())
        submit(job_file, standin.path)
        submit(job_file, standin.path)
        assert "submitted tiny-2" in capsys.readouterr().out
        assert load_frozen_job(runs / "tiny-2" / "job.yaml").name == "tiny-2"
        assert (runs / "tiny" / "prepared.json").is_file()

        app = standin.rows("SELECT id FROM app")[0]["id"]
        standin.insert("workunit", appid=app, name="tiny-3_e0001_s000_a0_v000000")  # its folder was removed since
        submit(job_file, standin.path)
        assert (runs / "tiny-4").is_dir()

        (standin.path / "vcdl" / "environment").write_text(f"VCDL_STORE_URL='file:{tmp_path}/the-daemons'\n")
        monkeypatch.setenv(URL_VARIABLE, f"file:{tmp_path}/mine")
        submit(job_file, standin.path)
        monkeypatch.delenv(URL_VARIABLE)
        sql(mariadb.url, "GRANT ALL ON vcdl.* TO guarded@localhost IDENTIFIED BY 'hunter2'")
        guarded = mariadb.url.replace("vcdl@", "guarded:hunter2@")
        submit(job_file, standin.path, [f"store.url={guarded}"])
        assert readable_files_with("hunter2", runs) == []
        assert (runs / "tiny-6" / "store_password").read_text() == "hunter2\n"
        of_daemons = Prepared.read(RunFolder(runs / "tiny-5")).store
        assert of_daemons == f"file:{tmp_path}/the-daemons", "as the launchers, which read the same file"
