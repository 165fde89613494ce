"""Baking on a cloud in memory: what is launched, what is made, what is left after a kill at each step."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fleet.fake_cloud import FakeCloud
from tests.fleet.fleet_files import settings_of
from vcdl.errors import FleetError, FleetUnavailable
from vcdl.fleet.bake import UBUNTU, Bake, baking_settings, base_of, old_images, remove_image
from vcdl.fleet.machine import setup_hash, user_data
from vcdl.fleet.prices import PriceTable
from vcdl.fleet.provider import BakedImage
from vcdl.fleet.refusal import ProblemKind

TYPES = "instances.types=[t3.2xlarge, c6i.xlarge]"


PRICES = PriceTable.shipped()


class Killed(BaseException):
    """Ends the process like kill -9: nothing is cleaned up."""


def bake_of(cloud: FakeCloud, base: str = UBUNTU) -> Bake:
    setup = setup_hash(cloud.settings, base)
    cloud.said = f"[   99.1] setup.sh[412]: vcdl-setup: ready as an image {setup}\r\n"
    return Bake(cloud.settings, base, cloud, print, PRICES, cloud.clock, every_s=0.0)


@pytest.fixture(autouse=True)
def short_user_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real ones take a third of a second."""
    monkeypatch.setattr("vcdl.fleet.bake.user_data", lambda *_: "#cloud-config\n")


@pytest.fixture
def cloud(tmp_path: Path) -> FakeCloud:
    return FakeCloud(
        baking_settings(settings_of(tmp_path, TYPES, "places=[{region: us-east-1}, {region: us-west-2}]"), UBUNTU)
    )


def test_one_instance_of_the_cheapest_type_becomes_an_image_in_each_region_and_ends(cloud: FakeCloud) -> None:
    baking = bake_of(cloud)
    images = baking.run()
    assert [(image.region, image.is_ready) for image in images] == [("us-east-1", True), ("us-west-2", True)]
    (instance,) = cloud.instances.values()
    assert (instance.pool.type, instance.pool.on_demand, instance.pool.region) == ("c6i.xlarge", True, "us-east-1")
    assert not instance.is_live
    cloud.clock.sleep(600)
    assert baking.cost_lines(images) == (
        "baking cost $0.03: c6i.xlarge for 10 min 00 s",
        "images cost at most $2.00 a month, for 40 GB",
    )
    assert bake_of(cloud).run() == images, "they are there"
    assert len(cloud.instances) == 1


def test_the_next_type_is_tried_where_the_cheapest_has_no_capacity(cloud: FakeCloud) -> None:
    cloud.empty = {replace(pool, on_demand=True) for pool in cloud.pools() if pool.type == "c6i.xlarge"}
    bake_of(cloud).run()
    assert [instance.pool.type for instance in cloud.instances.values()] == ["t3.2xlarge"]
    cloud.baked.clear()
    cloud.refuses = ProblemKind.NOT_AUTHORISED, "UnauthorizedOperation"
    with pytest.raises(FleetError, match="no instance to bake: not_authorised: UnauthorizedOperation"):
        bake_of(cloud).run()
    assert len(cloud.asked) == 3, "other types would meet the same"


@pytest.mark.parametrize("step", ["launch", "console", "make_image", "copy_image", "sweep"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_bake_that_was_killed_at_any_step_goes_on(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    real: Callable[..., Any] = getattr(cloud, step)

    def killed(*arguments: Any) -> None:
        if after:
            real(*arguments)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(cloud, "sweep", lambda: ())
        patch.setattr(cloud, step, killed)
        with pytest.raises(Killed):
            bake_of(cloud).run()
    images = bake_of(cloud).run()
    assert {image.region for image in images} == {"us-east-1", "us-west-2"}
    assert len(cloud.asked) == 1
    assert cloud.live == []


def test_an_instance_with_the_set_up_of_an_earlier_version_is_ended_and_another_one_taken(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    baking, new = bake_of(cloud), "0" * 12
    baking._launch()
    today, cloud.said = cloud.said, f"vcdl-setup: ready as an image {new}"
    terminate = cloud.terminate

    def ended(ids: Any) -> None:
        terminate(ids)
        cloud.said = today

    monkeypatch.setattr(cloud, "terminate", ended)
    (image, _) = Bake(cloud.settings, UBUNTU, cloud, print, PRICES, cloud.clock, every_s=0.0).run()
    assert image.setup == setup_hash(cloud.settings, UBUNTU) != new
    assert len(cloud.instances) == 2


def test_a_set_up_that_never_succeeds_ends_with_what_the_console_says(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    baking = bake_of(cloud)
    cloud.said = "vcdl-setup: installing TensorFlow\nERROR: no matching distribution\n"
    monkeypatch.setattr("time.sleep", lambda _s: cloud.clock.sleep(60.0))
    with pytest.raises(FleetError, match=r"was not set up after 45 min 00 s: .*no matching distribution"):
        baking.run()
    assert cloud.live == []
    again = bake_of(cloud)
    cloud.said = ""

    def all_end(_s: float) -> None:
        cloud.clock.sleep(100.0)
        for instance in cloud.live:
            cloud.end(instance.id)

    monkeypatch.setattr("time.sleep", all_end)
    with pytest.raises(FleetError, match="ended before its set-up was done: its console says nothing; bake again"):
        again.run()


def test_an_image_that_the_cloud_could_not_make_is_removed(cloud: FakeCloud) -> None:
    baking = bake_of(cloud)
    setup = setup_hash(cloud.settings, UBUNTU)
    cloud.baked["ami-1"] = BakedImage(
        "ami-1", "us-east-1", setup, UBUNTU, 20, False, "Client.InternalError", ("snap-1",)
    )
    with pytest.raises(FleetError, match=r"could not make image ami-1: Client.*Error; bake again"):
        baking.run()
    assert cloud.baked == {}


def test_what_may_pass_is_waited_for_and_what_is_left_is_said(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([FleetUnavailable("AWS throttles")])
    images = cloud.images

    def at_times() -> Any:
        for away in answers:
            raise away
        return images()

    monkeypatch.setattr(cloud, "images", at_times)
    monkeypatch.setattr(cloud, "sweep", lambda: ("volume vol-1 in us-east-1",))
    with pytest.raises(FleetError, match="something else is left"):
        bake_of(cloud).run()
    assert "AWS throttles" in (said := capsys.readouterr().out)
    assert "still there: volume vol-1 in us-east-1" in said


def test_a_removal_that_fails_says_what_is_left(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    image = bake_of(cloud).run()[0]
    assert remove_image(cloud, image, 0.0) == ()
    cloud.baked[image.id] = image
    monkeypatch.setattr(cloud, "remove", lambda leftovers: frozenset())
    assert remove_image(cloud, image, 0.0) == (f"image {image.id} in us-east-1",)


def test_a_baked_image_in_the_file_is_old_once_the_set_up_is_another(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "image=ami-1")
    today = BakedImage("ami-1", "us-east-1", setup_hash(settings, "ami-0"), "ami-0", 20, True)
    assert old_images(settings, [today]) == ()
    assert old_images(settings, [replace(today, id="ami-2", setup="")]) == ()
    (line,) = old_images(settings, [replace(today, setup="0" * 12)])
    assert line.startswith("image ami-1 was baked with another set-up")


def test_an_image_is_baked_again_from_its_own_base_and_not_from_itself(tmp_path: Path) -> None:
    baked = BakedImage("ami-1", "us-east-1", "x", "ami-0", 20, True)
    assert base_of(settings_of(tmp_path, "image=ami-1"), [baked]) == "ami-0"
    assert base_of(settings_of(tmp_path, "image=ami-9"), [baked]) == "ami-9"
    assert base_of(settings_of(tmp_path), [baked]) == UBUNTU
    again = baking_settings(settings_of(tmp_path, "places=[{region: us-east-1, image: ami-1}]"), "ami-0")
    assert again.image_in("us-east-1") == "ami-0"
    default = baking_settings(settings_of(tmp_path, "image=ami-1"), UBUNTU)
    assert default.image_in("us-east-1") is None


def test_what_bakes_has_no_account_ends_itself_and_is_no_fleets_name(tmp_path: Path) -> None:
    settings = baking_settings(settings_of(tmp_path), UBUNTU)
    text = user_data(settings, "", "a1b2c3d4e5f6")
    document = yaml.safe_load(text)
    assert not any("account" in file["path"] for file in document["write_files"])
    assert document["bootcmd"][-1][0] == "systemd-run"
    assert "--on-active=3600" in document["bootcmd"][-1]
    assert document["runcmd"][1:] == [
        ["systemctl", "set-environment", "VCDL_BAKE=a1b2c3d4e5f6"],
        ["systemctl", "start", "--no-block", "vcdl-setup.service"],
    ]
    with pytest.raises(Exception, match="name"):
        settings_of(tmp_path, f"name={settings.name}")


def test_the_hash_follows_packages_and_base(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    gpus = settings_of(tmp_path, "capacity.unit=gpu", "image=ami-1")
    assert len({setup_hash(settings, UBUNTU), setup_hash(settings, "ami-1"), setup_hash(gpus, "ami-1")}) == 3
