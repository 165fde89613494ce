import xml.etree.ElementTree as ElementTree

import pytest

from tests.boinc.grid.world import UPLOAD_BYTES, World
from vcdl.boinc.grid.frozen_input import with_frozen
from vcdl.files.shipped import shipped_folder
from vcdl.wire.workunit import INPUT_FILES, OUTPUT_FILE

TEMPLATES = shipped_folder("templates")


def test_inputs_have_the_names_that_clients_know_and_are_real_files() -> None:
    root = ElementTree.parse(TEMPLATES / "vcdl_in.xml").getroot()
    references = root.findall("workunit/file_ref")
    assert tuple(each.findtext("open_name") for each in references) == INPUT_FILES
    assert all(each.find("copy_file") is not None for each in references)


def test_clients_keep_what_is_shared_and_boinc_deletes_the_description_only() -> None:
    infos = ElementTree.parse(TEMPLATES / "vcdl_in.xml").getroot().findall("file_info")
    flags = {name: {tag.tag for tag in info} for name, info in zip(INPUT_FILES, infos, strict=True)}
    assert flags == {
        "workunit.json": set(),
        "model.json": {"sticky", "no_delete", "gzip"},
        "params.h5": {"no_delete"},
        "shard.npz": {"sticky", "no_delete"},
    }


def test_a_job_with_frozen_weights_has_one_more_file_that_clients_keep() -> None:
    given = (TEMPLATES / "vcdl_in.xml").read_text(encoding="utf-8")
    plain, root = ElementTree.fromstring(given), ElementTree.fromstring(with_frozen(given))
    names = [each.findtext("open_name") for each in root.findall("workunit/file_ref")]
    assert names == [*INPUT_FILES, "frozen.h5"]
    infos, references = root.findall("file_info"), root.findall("workunit/file_ref")
    assert {tag.tag for tag in infos.pop()} == {"sticky", "no_delete"}
    assert references.pop().find("copy_file") is not None
    assert [ElementTree.tostring(each) for each in infos] == [
        ElementTree.tostring(i) for i in plain.findall("file_info")
    ]
    with pytest.raises(ValueError, match="0 times"):
        with_frozen("<workunit></workunit>")


def test_one_result_is_enough_and_boinc_tries_again_by_itself() -> None:
    workunit = ElementTree.parse(TEMPLATES / "vcdl_in.xml").getroot().find("workunit")
    assert workunit is not None
    numbers = {tag.tag: int(tag.text or "") for tag in workunit if tag.tag != "file_ref"}
    assert numbers["min_quorum"] == numbers["target_nresults"] == 1
    assert numbers["target_nresults"] <= numbers["max_success_results"] <= numbers["max_total_results"]
    assert 1 < numbers["max_error_results"] <= numbers["max_total_results"]


@pytest.mark.boinc
def test_the_result_template_of_a_job_limits_its_uploads(world: World) -> None:
    (name,) = world.submitted()
    row = world.row(name)
    text = (world.project.path / row["result_template_file"]).read_text()
    assert f"<max_nbytes>{UPLOAD_BYTES}</max_nbytes>" in text
    assert "@" not in text
    assert "<result>\n" in text
    assert f"<open_name>{OUTPUT_FILE}</open_name>" in text
    assert "<report_immediately/>" in text


@pytest.mark.boinc
def test_its_name_fits_into_boincs_column_whatever_the_job_is_called(world: World) -> None:
    job = "j" * 63
    world.grid(job).submit([world.staged(job=job)])
    assert len(world.row(world.staged(job=job).workunit.name)["result_template_file"]) <= 63
