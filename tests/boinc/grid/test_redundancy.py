"""A share of the workunits goes to two hosts: drawn so that no client foretells it, and told to BOINC."""

import xml.etree.ElementTree as ElementTree

import pytest

from tests.boinc.grid.world import World
from vcdl.boinc.grid.create_work import INPUT_TEMPLATE
from vcdl.boinc.grid.redundancy import for_two, is_made_twice
from vcdl.boinc.grid.staging import TEMPLATE_FOR_TWO
from vcdl.files.shipped import shipped

NAMES = [f"mnist_e{epoch:04d}_s{shard:03d}_a0_v000000" for epoch in range(40) for shard in range(100)]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
def test_the_drawn_ones_are_the_share_that_was_asked_for(share: float) -> None:
    drawn = sum(is_made_twice(name, share, "mnist-17") for name in NAMES)
    assert abs(drawn / len(NAMES) - share) <= 4 * (share * (1 - share) / len(NAMES)) ** 0.5


def test_the_draw_is_repeatable_and_another_run_s_says_nothing_of_it() -> None:
    mine, again, other = ({n for n in NAMES if is_made_twice(n, 0.5, key)} for key in ("a-1", "a-1", "a-2"))
    assert mine == again
    assert 0.4 < len(mine & other) / len(mine) < 0.6


def test_a_larger_share_keeps_the_ones_that_were_drawn() -> None:
    few, many = ({name for name in NAMES if is_made_twice(name, share, "a-1")} for share in (0.1, 0.4))
    assert few < many


def test_only_the_numbers_of_the_template_change() -> None:
    once = ElementTree.fromstring((shipped("templates") / INPUT_TEMPLATE).read_text())
    twice = ElementTree.fromstring(for_two((shipped("templates") / INPUT_TEMPLATE).read_text()))
    both = zip(once.iter(), twice.iter(), strict=True)
    changed = {new.tag: int(new.text or "") for old, new in both if old.text != new.text}
    assert changed["min_quorum"] == changed["target_nresults"] == 2
    assert changed["max_success_results"] >= 3, "a third host decides between two that differ"
    assert changed["max_error_results"] < changed["max_total_results"]
    assert changed["max_success_results"] < changed["max_total_results"]


def test_a_template_without_a_number_is_a_bug() -> None:
    with pytest.raises(ValueError, match="0 times <min_quorum>"):
        for_two("<workunit></workunit>")


@pytest.mark.boinc
def test_boinc_s_rows_say_which_workunits_need_two_results(world: World) -> None:
    grid = world.grid(redundancy=0.5)
    items = [world.staged(epoch=epoch) for epoch in range(1, 13)]
    grid.submit(items)
    world.transition()
    numbers = set()
    for item in items:
        name, row = item.workunit.name, world.row(item.workunit.name)
        results = world.rows("SELECT id FROM result WHERE workunitid = %s", row["id"])
        wanted = 2 if is_made_twice(name, 0.5, world.draw_key) else 1
        assert (row["min_quorum"], row["target_nresults"], len(results)) == (wanted, wanted, wanted)
        numbers.add(wanted)
    assert numbers == {1, 2}


@pytest.mark.boinc
def test_the_template_is_there_only_where_it_is_used_and_goes_with_the_last_job(world: World) -> None:
    world.grid().submit([world.staged()])
    template = world.project.templates / TEMPLATE_FOR_TWO
    assert not template.exists()
    grid = world.grid("other", redundancy=0.1)
    grid.submit([world.staged(job="other")])
    assert template.exists()
    for each in (grid, world.grid()):
        each.clear(forget_on_clients=False)
    assert not list(world.project.templates.glob("vcdl_in*"))
