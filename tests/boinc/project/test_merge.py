"""A fragment is merged into a project's file, and taken out again."""

from pathlib import Path

import pytest

from tests.boinc.project.made_project import CONFIG_XML, PLAN_CLASSES, PROJECT_XML
from vcdl.boinc.project.edited_files import EDITED, Fragment
from vcdl.boinc.project.xml_document import Element, XmlDocument

CONFIG = Fragment.load_shipped("config.xml", threads=1)
BEFORE = CONFIG_XML.encode()
AFTER = CONFIG.add_to(Path("config.xml"), BEFORE)
PATH = Path("config.xml")


def root(content: bytes | None) -> Element:
    assert content is not None
    return XmlDocument(PATH, content).root


def commands(content: bytes | None) -> list[str]:
    return [cmd.text.strip() for cmd in root(content).iterfind("daemons/daemon/cmd")]


def taken_out(content: bytes) -> bytes:
    left = CONFIG.remove_from(PATH, content, BEFORE)
    assert left is not None
    return left


@pytest.mark.parametrize("name", EDITED)
def test_adding_twice_is_adding_once(name: str) -> None:
    fragment = Fragment.load_shipped(name, threads=1)
    before = {"config.xml": BEFORE, "project.xml": PROJECT_XML, "plan_class_spec.xml": PLAN_CLASSES}.get(name)
    once = fragment.add_to(PATH, before)
    assert fragment.add_to(PATH, once) == once
    assert once != before


@pytest.mark.parametrize("name", EDITED)
def test_what_was_added_is_taken_out_to_the_byte(name: str) -> None:
    fragment = Fragment.load_shipped(name, threads=1)
    before = {"config.xml": BEFORE, "project.xml": PROJECT_XML, "plan_class_spec.xml": PLAN_CLASSES}.get(name)
    assert fragment.remove_from(PATH, fragment.add_to(PATH, before), before) == before


def test_settings_get_our_values_and_others_stay() -> None:
    config = root(AFTER).find("config")
    assert config.findtext("min_sendwork_interval") == "0"
    assert config.findtext("ignore_upload_certificates") == "0"
    assert config.findtext("next_rpc_delay") == "30"
    assert config.findtext("long_name") == "Alpha <& Omega"
    assert b"<locality_scheduling/>" in AFTER
    assert b"<db_passwd></db_passwd>" in AFTER
    assert b"<!-- of fold -->" in AFTER
    assert AFTER.startswith(b'<?xml version="1.0" ?>\n<!-- edited by hand: ask Ada first -->\n<boinc>')


def test_a_limit_that_is_larger_than_ours_stays() -> None:
    generous = BEFORE.replace(b">500<", b">9000<")
    assert root(CONFIG.add_to(PATH, generous)).findtext("config/daily_result_quota") == "9000"


def test_boincs_daemons_are_hastened_and_ours_added() -> None:
    assert commands(AFTER)[:2] == ["feeder -d 3 --sleep_interval 1", "transitioner -d 2 --sleep_interval 1"]
    assert 'script_validator --app fold --init_script "fold_check files"' in commands(AFTER)
    assert "file_deleter -d 3 --sleep_interval 1" in commands(AFTER)
    assert [command.split()[0] for command in commands(AFTER)[-6:]] == [
        "db_purge",
        "vcdl_work_generator",
        "vcdl_assimilator",
        "vcdl_evaluator",
        "vcdl_checker",
        "script_validator",
    ]


def test_an_operator_s_purge_of_all_apps_stays_beside_that_of_ours() -> None:
    own = b"<daemon><cmd>db_purge --min_age_days 30</cmd></daemon>"
    both = CONFIG.add_to(PATH, BEFORE.replace(b"<daemons>", b"<daemons>" + own))
    assert [command.split()[1] for command in commands(both) if command.startswith("db_purge")] == [
        "--min_age_days",
        "--app",
    ]


def test_several_transitioners_are_hastened_and_slowed_down_each() -> None:
    both = BEFORE.replace(
        b"<cmd>transitioner -d 2 --sleep_interval 5</cmd>",
        b"<cmd>transitioner --mod 2 0</cmd></daemon><daemon><cmd>transitioner --mod 2 1 --sleep_interval 9</cmd>",
    )
    added = CONFIG.add_to(PATH, both)
    assert "transitioner --mod 2 0 --sleep_interval 1" in commands(added)
    assert "transitioner --mod 2 1 --sleep_interval 1" in commands(added)
    assert CONFIG.remove_from(PATH, added, both) == both


def test_several_validators_keep_their_share_of_the_rows_at_a_second_install_and_all_go() -> None:
    """As docs/project.md advises: an install that rewrote one of two let both handle the same rows."""
    head, ours, tail = AFTER.partition(b"<cmd>script_validator --app vcdl")
    entry = b"<daemon>" + head.rpartition(b"<daemon>")[2] + ours + tail.partition(b"</daemon>")[0] + b"</daemon>"
    first = entry.replace(b"</cmd>", b" --mod 2 0</cmd>").replace(b"-d 3", b"-d 2")
    second = entry.replace(b"</cmd>", b" --mod 2 1</cmd>").replace(b"vcdl_validator", b"vcdl_validator_2")
    both = AFTER.replace(entry, first + second)
    again = CONFIG.add_to(PATH, both)
    assert again == both.replace(b"-d 2 --sleep_interval 1 --mod", b"-d 3 --sleep_interval 1 --mod")
    assert not any("vcdl" in command for command in commands(taken_out(both)))
    alone = AFTER.replace(entry, first)
    assert b"--mod 2 0" in CONFIG.add_to(PATH, alone), "the other one runs on another machine"


def test_what_an_operator_changed_since_stays_his() -> None:
    edited = AFTER.replace(b"<next_rpc_delay>30<", b"<next_rpc_delay>60<").replace(
        b"<min_sendwork_interval>0<", b"<min_sendwork_interval>2<"
    )
    edited = edited.replace(b"</config>", b"    <ban_os>Plan 9</ban_os>\n    </config>")
    config = root(taken_out(edited)).find("config")
    assert config.findtext("next_rpc_delay") == "60"
    assert config.findtext("min_sendwork_interval") == "2"
    assert config.findtext("ban_os") == "Plan 9"
    assert config.findtext("ignore_upload_certificates") == "1", "as it was before install"
    assert config.find("msg_to_host") is None


def test_a_file_that_others_use_too_outlives_us() -> None:
    limits = Fragment.load_shipped("config_aux.xml", threads=1)
    foreign = limits.content.replace(b"<app_name>vcdl<", b"<app_name>fold<")
    both = limits.add_to(PATH, foreign)
    assert [name.text for name in root(both).iter("app_name")] == ["fold", "vcdl"]
    assert limits.remove_from(PATH, both, None) == foreign
    assert limits.remove_from(PATH, limits.content, None) is None
