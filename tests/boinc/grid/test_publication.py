"""The newest weights lie in download/ beside a signed statement, and workunits tell their clients where."""

import hashlib
import json

import pytest

from tests.boinc.grid.world import World
from tests.weights_key import KEY
from vcdl.boinc.grid.create_work import WorkSettings
from vcdl.boinc.grid.grid import BoincGrid, clear_job
from vcdl.boinc.grid.weights_key import WeightsKey
from vcdl.errors import GridError
from vcdl.wire.newest import read_signed
from vcdl.wire.workunit import Workunit

pytestmark = pytest.mark.boinc


@pytest.fixture
def grid(world: World) -> BoincGrid:
    return offering(world)


def offering(world: World, offers_newest: bool = True) -> BoincGrid:
    """The grid of a job that offers its newest weights, in a project with a key."""
    path = WeightsKey.file(world.project.path)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(KEY.to_pem())
    return grid_of(world, offers_newest)


def grid_of(world: World, offers_newest: bool = True) -> BoincGrid:
    settings = WorkSettings(
        "mnist", 1, 3600.0, 1e12, 1e9, 1e9, 1_000_000, layout="print", offers_newest=offers_newest,
    )  # fmt: skip
    return BoincGrid(world.project, world.database, settings)


def told(world: World, name: str) -> str | None:
    """Where a workunit's clients look for newer weights."""
    return Workunit.from_json(world.project.download_path(f"{name}.json").read_text()).newest


def local(world: World, url: str) -> bytes:
    """The file at an address of the project."""
    top = f"{world.project.download_url}/"
    assert url.startswith(top)
    return (world.project.download_dir / url.removeprefix(top)).read_bytes()


def test_a_client_finds_what_was_published_last_and_nothing_is_left_at_the_end(world: World, grid: BoincGrid) -> None:
    item = world.staged(version=0)
    grid.submit([item])
    url = told(world, item.workunit.name)
    assert url is not None
    for version in (1, 2):
        grid.publish(version, world.folder().snapshot(version))
        newest = read_signed(local(world, url), KEY.public)
        weights = local(world, newest.url)
        assert (newest.job, newest.layout, newest.version) == ("mnist", "print", version)
        assert weights == world.folder().snapshot(version).read_bytes()
        assert (newest.size_bytes, newest.sha256) == (len(weights), hashlib.sha256(weights).hexdigest())
    before = world.downloads()
    grid.discard_params({2})
    assert len(before - world.downloads()) == 2  # version 1 and its .md5
    clear_job(world.project, world.database, "mnist", forget_on_clients=False)
    assert world.downloads() == set()


def test_a_newer_version_that_is_a_workunits_base_later_is_one_file(world: World, grid: BoincGrid) -> None:
    grid.submit([world.staged(version=0)])
    grid.publish(1, world.folder().snapshot(1))
    before = world.downloads()
    item = world.staged(epoch=2, version=1)
    grid.submit([item])
    assert {name.removesuffix(".md5") for name in world.downloads() - before} == {f"{item.workunit.name}.json"}


@pytest.mark.parametrize("content", [b"", b"rubbish", json.dumps({}).encode()])
def test_a_damaged_key_is_said_with_its_cure(world: World, content: bytes) -> None:
    path = WeightsKey.file(world.project.path)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(GridError, match="install"):
        WeightsKey.of(world.project)
