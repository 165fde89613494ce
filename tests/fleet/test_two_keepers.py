"""Two keepers of one fleet, in two folders, as on two machines: one keeps it, the other says so and waits."""

from pathlib import Path

import pytest

from tests.fleet.fake_fleet import FakeFleet
from tests.fleet.test_alerts import fleet_that_writes, names
from tests.fleet.test_runaway import DRAIN_S
from vcdl.fleet.run import up

pytestmark = pytest.mark.process


def two_keepers(path: Path) -> tuple[FakeFleet, FakeFleet, Path]:
    """The same fleet with 5 and with 10 instances; the second one's alerts."""
    first = FakeFleet.begun(path)
    (path / "other").mkdir()
    second, told = fleet_that_writes(path / "other", "capacity.target=80")
    second.cloud = first.cloud
    second.controller = second.another_process()
    return first, second, told


def live(hours: float, *keepers: FakeFleet, every_s: float = 30.0) -> None:
    cloud = keepers[0].cloud
    for _ in range(round(hours * 3600 / every_s)):
        for keeper in keepers:
            keeper.controller.reconcile_once()
        keepers[0].later(every_s)
        cloud.agents_act(DRAIN_S)


def test_two_keepers_with_different_targets_do_not_fight_and_the_second_says_why(tmp_path: Path) -> None:
    first, second, told = two_keepers(tmp_path)
    live(1.0, first, second)
    assert first.cloud.asked == [40]
    assert len(first.cloud.live) == 5
    assert names(told) == ["keeper"]
    (name,) = {one.keeper for one in first.cloud.live}
    assert name in told.read_text()
    assert any(name in line for line in second.controller.preview(up).lines())


def test_the_second_takes_over_once_the_leases_of_the_first_are_over(tmp_path: Path) -> None:
    first, second, _ = two_keepers(tmp_path)
    live(0.5, first, second)
    live(1.4, second)
    assert first.cloud.asked == [40], "the first may come back"
    live(1.0, second)
    assert len(first.cloud.live) == 10
    live(1.0, first, second)
    assert len(first.cloud.live) == 10, "now the first one waits"


def test_keepers_that_began_at_the_same_time_agree_on_one(tmp_path: Path) -> None:
    first, second, _ = two_keepers(tmp_path)
    first.cloud.hides_s = 60.0
    live(1.5, first, second)
    assert len(first.cloud.asked) == 2
    assert len(first.cloud.live) == 5


def test_another_process_in_the_same_folder_is_the_same_keeper(tmp_path: Path) -> None:
    first, _, _ = two_keepers(tmp_path)
    live(0.5, first)
    first.folder.state_file.unlink()
    first.controller = first.another_process()
    first.controller.change(lambda state: state.__class__(state.goal.UP))
    live(3.0, first)
    assert len(first.cloud.instances) == 5
