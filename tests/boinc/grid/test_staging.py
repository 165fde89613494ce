import gzip
import hashlib
import os
from pathlib import Path

import pytest

from tests.boinc.grid.world import World
from tests.full_disk import files_limited_to
from vcdl.boinc.grid.download_folder import Content, DownloadFolder
from vcdl.boinc.grid.manifest import Manifest, Manifests
from vcdl.errors import GridError

pytestmark = pytest.mark.boinc


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.json"
    path.write_text("{}" * 1000)
    return path


def test_a_staged_file_has_its_md5_beside_it_as_create_work_wants_it(world: World, source: Path) -> None:
    content = Content.of(source)
    for _ in range(2):
        DownloadFolder(world.project).stage(source, content, compress=True)
    path = world.project.download_path(content.name)
    assert world.downloads() == {path.name, f"{path.name}.gz", f"{path.name}.md5"}
    md5 = path.with_name(f"{path.name}.md5")
    assert md5.read_text() == f"{hashlib.md5(source.read_bytes()).hexdigest()} {source.stat().st_size}\n"
    assert md5.stat().st_mtime >= path.stat().st_mtime  # or BOINC does not believe it
    assert gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes()) == source.read_bytes()
    DownloadFolder(world.project).remove(content.name)
    DownloadFolder(world.project).remove(content.name)
    assert world.downloads() == set()
    assert path.parent.is_dir()  # BOINC's file_deleter takes a missing one for an error


def test_the_web_server_can_read_whatever_the_umask(world: World, source: Path) -> None:
    source.chmod(0o600)
    before = os.umask(0o077)
    try:
        folder = DownloadFolder(world.project)
        content = Content.of(source)
        folder.stage(source, content)
        folder.write("a.json", b"{}")
    finally:
        os.umask(before)
    paths = [world.project.download_path(name) for name in (content.name, "a.json")]
    for path in (*paths, *(path.with_name(f"{path.name}.md5") for path in paths)):
        assert path.stat().st_mode & 0o777 == 0o644
        assert path.parent.stat().st_mode & 0o777 == 0o771


def test_a_file_that_was_cut_short_is_staged_anew(world: World, source: Path) -> None:
    content = Content.of(source)
    path = world.project.download_path(content.name)
    path.parent.mkdir()
    path.write_text("{")
    DownloadFolder(world.project).stage(source, content)
    assert path.read_bytes() == source.read_bytes()


def test_a_full_disk_leaves_nothing_half_staged(world: World, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    content = Content.of(source)
    with pytest.raises(GridError, match="free some space"), files_limited_to(1000):
        DownloadFolder(world.project).stage(source, content)
    assert world.downloads() == set()
    DownloadFolder(world.project).stage(source, content)
    assert world.project.download_path(content.name).read_bytes() == source.read_bytes()


# -- manifests


def test_a_manifest_is_read_as_it_was_written(world: World) -> None:
    a, b = Content("vcdl_a.json", 1, "x"), Content("vcdl_b.npz", 2, "y")
    manifest = Manifest(3, "vcdl_out_5.xml", a, {17: b}, {142: b})
    manifests = Manifests(world.project)
    assert manifests.read("mnist") is None
    with manifests.locked():
        manifests.write("mnist", manifest)
    assert manifests.read("mnist") == manifest
    assert manifests.others("other") == {"mnist": manifest}
    assert manifests.others("mnist") == {}
    assert manifest.names == {"vcdl_a.json", "vcdl_b.npz"}


def test_a_manifest_is_decoded_once_and_again_when_another_process_wrote_it(world: World) -> None:
    """It names every shard, and each subtask that is sent asks it: 38 ms with 10 000 shards."""
    one, another = Manifests(world.project), Manifests(world.project)
    with one.locked():
        one.write("mnist", Manifest(1, "t"))
    first = one.read("mnist")
    assert one.read("mnist") is first
    with another.locked():
        another.write("mnist", Manifest(2, "t"))
    assert one.read("mnist") == Manifest(2, "t")
    another.remove("mnist")
    assert one.read("mnist") is None


def test_a_manifest_of_an_open_job_from_before_is_read(world: World) -> None:
    world.project.manifests.mkdir(parents=True)
    (world.project.manifests / "old.json").write_text(MANIFEST.replace("share", "priority"))
    assert Manifests(world.project).read("old") == Manifest(1, "t")


MANIFEST = '{"share": 1, "result_template": "t", "model": null, "shards": {}, "params": {}}'


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "{}", '{"share": "x"}', "null", "[" * 100_000, MANIFEST.replace("1,", '"1",'),
        MANIFEST.replace("1,", "1.5,"), MANIFEST.replace("null", '{"name": 5, "size_bytes": 1, "md5": "a"}'),
        MANIFEST.replace("null", '{"name": "a", "size_bytes": "1", "md5": "a"}'),
        MANIFEST.replace('"shards": {}', '"shards": {"a": null}'),
        MANIFEST.replace('"shards": {}', '"shards": {"0": {"\\ud800": 1}}'),
    ],
)  # fmt: skip
def test_a_damaged_manifest_says_what_to_do(world: World, text: str) -> None:
    world.project.manifests.mkdir(parents=True)
    (world.project.manifests / "mnist.json").write_text(text)
    with pytest.raises(GridError, match=r"mnist\.json is damaged .*: remove it"):
        Manifests(world.project).read("mnist")


def test_the_manifest_names_a_file_before_it_is_staged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed while it stages leaves nothing that clear does not find."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    item = world.staged()
    with monkeypatch.context() as patch:
        patch.setattr(DownloadFolder, "stage", killed)
        with pytest.raises(KeyboardInterrupt):
            world.grid().submit([item])
    assert world.grid()._staging.manifest.names == {Content.of(p).name for p in (item.model, item.params, item.shard)}
