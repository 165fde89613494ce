"""Memory that is free: the machine's, or what is left of the control groups that the process is in."""

from pathlib import Path

import pytest

from vcdl.client.memory import available_memory_bytes

MACHINE = 8 << 30


def system(root: Path, groups: str, files: dict[str, str]) -> Path:
    """The files by which Linux tells, below a folder."""
    told = {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {MACHINE >> 10} kB\n", "proc/self/cgroup": groups, **files}
    for name, content in told.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_without_a_limit_it_is_the_machine_s(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/job/memory.max": "max\n", "sys/fs/cgroup/job/memory.current": "1000\n"}
    assert available_memory_bytes(system(tmp_path, "0::/job\n", files)) == MACHINE


@pytest.mark.parametrize("group", ["", "job/", "job/inner/"], ids=["of a container", "its own", "one inside"])
def test_a_group_s_limit_holds_for_what_is_in_it(tmp_path: Path, group: str) -> None:
    place = f"sys/fs/cgroup/{group}"
    files = {
        f"{place}memory.max": "1000000\n",
        f"{place}memory.current": "700000\n",
        f"{place}memory.stat": "anon 5\ninactive_file 100000\nactive_file 7\n",
    }
    assert available_memory_bytes(system(tmp_path, "0::/job/inner\n", files)) == 400_000


def test_the_groups_of_version_1_likewise(tmp_path: Path) -> None:
    place = "sys/fs/cgroup/memory/job/"
    files = {
        f"{place}memory.limit_in_bytes": "1000000\n",
        f"{place}memory.usage_in_bytes": "1200000\n",
        f"{place}memory.stat": "cache 1\ntotal_inactive_file 100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
    }
    groups = "9:name=systemd:/\n4:memory:/job\n3:cpu,cpuacct:/other\n0::/\n"
    assert available_memory_bytes(system(tmp_path, groups, files)) == 0
