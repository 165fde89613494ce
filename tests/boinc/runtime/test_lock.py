"""The locks that come with VCDL name a backend's packages for each platform and Python."""

import pytest

from vcdl.boinc.runtime.lock import BACKENDS, NOT_ON_CLIENTS, lock_of, pinned
from vcdl.boinc.runtime.platforms import PLATFORMS, Platform


@pytest.mark.parametrize("minor", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_platform_gets_one_version_of_each_package(backend: str, platform: Platform, minor: str) -> None:
    packages = pinned(lock_of(backend, gpu=False), platform, minor)
    names = [package.name for package in packages]
    assert len(set(names)) == len(names)
    assert {"keras", "h5py", "numpy"} < set(names)
    assert not NOT_ON_CLIENTS & set(names)
    assert any(name.startswith(backend) for name in names)
    assert all(package.hashes and package.version for package in packages)


def test_cuda_comes_with_the_locks_for_gpus_only() -> None:
    for backend in BACKENDS:
        cpu, gpu = ({each.name for each in pinned(lock_of(backend, of), PLATFORMS[0], "3.12")} for of in (False, True))
        assert any(name.startswith("nvidia-") for name in gpu)
        assert not any(name.startswith("nvidia-") for name in cpu)
