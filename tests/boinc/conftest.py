"""A real BOINC project, where there is one."""

from collections.abc import Iterator

import pytest

from tests.boinc.real_project import RealProject


@pytest.fixture
def real() -> Iterator[RealProject]:
    """It has VCDL in it, and its daemons run."""
    with RealProject.installed() as project:
        yield project
