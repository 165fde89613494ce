import socket
from pathlib import Path

import pytest

from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import GridError


def make(folder: Path, **settings: object) -> BoincProject:
    given = {
        "master_url": "http://example.org/p/", "db_name": "p", "host": "server", "uldl_dir_fanout": 1024, **settings,
    }  # fmt: skip
    lines = "".join(f"<{key}>{value}</{key}>\n" for key, value in given.items() if value is not None)
    (folder / "config.xml").write_text(
        f"<boinc>\n<!-- ours -->\n<config>\n{lines}</config>\n<daemons>\n</daemons>\n</boinc>\n"
    )
    return BoincProject.at(folder)


def test_a_project_is_read_from_its_config(tmp_path: Path) -> None:
    project = make(tmp_path, db_user="u", db_passwd="secret", db_host="db.example.org:3307", upload_dir="/mnt/upload")
    assert (project.db_host, project.db_port, project.db_user) == ("db.example.org", 3307, "u")
    assert project.download_dir == tmp_path / "download"
    assert project.upload_dir == Path("/mnt/upload")
    assert project.log_dir == tmp_path / "log_server"
    assert project.db_password == "secret"
    assert "secret" not in repr(project)


@pytest.mark.parametrize("host", ["localhost", "", None, socket.gethostname()])
def test_the_server_itself_is_reached_through_its_socket_as_by_boinc(tmp_path: Path, host: str | None) -> None:
    assert make(tmp_path, db_host=host).db_host == "localhost"


def test_the_fan_out_is_that_of_boincs_dir_hier_path(tmp_path: Path) -> None:
    project = make(tmp_path)
    assert project.download_path("vcdl_x.npz") == tmp_path / "download" / "3f3" / "vcdl_x.npz"  # what the program says
    assert project.upload_path("vcdl_x.npz") == tmp_path / "upload" / "3f3" / "vcdl_x.npz"


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "/etc/passwd", "a/b", "a\0b", "a" * 256])
def test_no_name_leads_outside(tmp_path: Path, name: str) -> None:
    with pytest.raises(GridError, match="not the name of a file"):
        make(tmp_path).upload_path(name)


def test_a_flag_may_be_a_lone_tag(tmp_path: Path) -> None:
    assert not make(tmp_path).cache_md5_info
    assert not make(tmp_path, cache_md5_info=0).cache_md5_info
    assert make(tmp_path, cache_md5_info=1).cache_md5_info
    (tmp_path / "config.xml").write_text(
        "<boinc><config><master_url>u</master_url><db_name>p</db_name><cache_md5_info/></config></boinc>"
    )
    assert BoincProject.at(tmp_path).cache_md5_info


def test_what_is_no_project_is_told_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(GridError, match=r"no BOINC project .* give the folder that make_project made"):
        BoincProject.at(tmp_path)
    for text in ("<boinc>", "<boinc></boinc>", "<boinc><config><db_name>p</db_name></config></boinc>"):
        (tmp_path / "config.xml").write_text(text)
        with pytest.raises(GridError, match=r"config\.xml"):
            BoincProject.at(tmp_path)
    for fanout in ("many", -1):
        with pytest.raises(GridError, match="a number was expected"):
            make(tmp_path, uldl_dir_fanout=fanout)


def test_a_setting_with_two_values_is_refused_as_boinc_s_programs_differ_in_which_they_take(tmp_path: Path) -> None:
    make(tmp_path, ban_os="Windows</ban_os><ban_os>Darwin")  # BOINC takes several of these
    with pytest.raises(GridError, match="has uldl_dir_fanout twice"):
        make(tmp_path, uldl_dir_fanout="1024</uldl_dir_fanout><uldl_dir_fanout>512")
