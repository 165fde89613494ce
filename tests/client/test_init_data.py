"""init_data.xml is read as BOINC writes it; what is damaged is refused by name, and the account key is nowhere."""

from pathlib import Path

import pytest

from tests.client.boinc_side import ACCOUNT_KEY, init_data
from vcdl.client.init_data import InitData
from vcdl.client.slot import SlotError


def read(slot: Path, text: str) -> InitData:
    (slot / "init_data.xml").write_text(text, encoding="utf-8")
    return InitData.read(slot)


def test_a_gpu_task_is_told_everything(tmp_path: Path) -> None:
    text = init_data(
        Path("/srv/R&D/projects/x"), client_pid=4711, wu_cpu_time="12.500000", checkpoint_period="90.000000",
        gpu_type="NVIDIA", gpu_device_num=1, ncpus="0.250000", rsc_memory_bound="2000000000.000000",
    )  # fmt: skip
    assert read(tmp_path, text) == InitData(
        project=Path("/srv/R&D/projects/x"),
        client_pid=4711,
        cpu_s=12.5,
        checkpoint_period_s=90.0,
        cpus=0.25,
        memory_bytes=2e9,
        gpu_type="NVIDIA",
        gpu_device=1,
    )


def test_what_an_older_client_leaves_out_has_boincs_default(tmp_path: Path) -> None:
    data = read(tmp_path, "<app_init_data>\n<project_dir>/p</project_dir>\n</app_init_data>\n")
    assert data == InitData(Path("/p"))
    assert (data.gpu_device, data.client_pid) == (-1, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("client_pid", "-1"), ("client_pid", "1.5"), ("wu_cpu_time", "nan"), ("wu_cpu_time", "-3"),
        ("checkpoint_period", "inf"), ("ncpus", "many"), ("gpu_device_num", "-2"), ("rsc_memory_bound", ""),
    ],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_refused_by_name(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SlotError, match=f"{name} is '{value}'") as caught:
        read(tmp_path, init_data(tmp_path, **{name: value}))
    assert ACCOUNT_KEY not in str(caught.value)


def test_a_file_that_says_two_things_is_refused(tmp_path: Path) -> None:
    text = init_data(tmp_path).replace("<slot>0</slot>", "<slot>0</slot>\n<ncpus>2.0</ncpus>")
    with pytest.raises(SlotError, match="two different values of ncpus"):
        read(tmp_path, text)
