"""A project that was made by hand becomes known, and what a restore could not make again is refused."""

import getpass
from pathlib import Path

import pytest

from vcdl.boinc.server import settings as server_settings
from vcdl.boinc.server.adopting import adopt, read_settings
from vcdl.boinc.server.settings import ServerSettings, load_installed
from vcdl.errors import ServerError

CONFIG = """\
<boinc><config>
<master_url>{url}</master_url><db_name>{database}</db_name><db_host>{db_host}</db_host><db_user>ada</db_user>
</config></boinc>
"""
URL = "http://train.example.org/mine/"
EMAIL, TREE = "ada@example.org", Path("/opt/boinc")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(server_settings, "ETC", tmp_path / "etc")
    monkeypatch.setattr(ServerSettings, "project", property(lambda self: tmp_path / self.user / self.name))
    return made(tmp_path / getpass.getuser() / "mine")


def made(path: Path, url: str = URL, database: str = "mine", db_host: str = "localhost") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.xml").write_text(CONFIG.format(url=url, database=database, db_host=db_host))
    return path


def test_an_adopted_project_is_known_as_an_installed_one(project: Path) -> None:
    with pytest.raises(ServerError, match="vcdl server adopt"):
        load_installed()
    adopt(read_settings(project, EMAIL, TREE, ""))
    known = load_installed()
    assert (known.name, known.host, known.project) == ("mine", "train.example.org", project)
    assert known.url == URL
    with pytest.raises(ServerError, match="is adopted already"):
        adopt(read_settings(project, EMAIL, TREE, ""))


def test_a_project_with_tls_says_how(project: Path) -> None:
    made(project, URL.replace("http", "https"))
    with pytest.raises(ServerError, match="--tls"):
        read_settings(project, EMAIL, TREE, "")
    assert read_settings(project, EMAIL, TREE, "letsencrypt").url == URL.replace("http", "https")


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"database": "other"}, "its database is other at localhost"),
        ({"db_host": "db.example.org"}, "its database is mine at db.example.org"),
        ({"url": "http://train.example.org/elsewhere/"}, "its address"),
    ],
)
def test_what_a_restore_would_not_make_again_is_refused(project: Path, changed: dict[str, str], what: str) -> None:
    with pytest.raises(ServerError, match=what):
        read_settings(made(project, **changed), EMAIL, TREE, "")


def test_a_project_elsewhere_is_refused(project: Path, tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="its folder"):
        read_settings(made(tmp_path / "srv" / "mine"), EMAIL, TREE, "")
