"""Wheels in a folder in place of a package index."""

from pathlib import Path

import pytest

from tests.boinc.runtime.fake_parts import make_wheels


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock of the small packages, which uv finds."""
    path = make_wheels(tmp_path / "index")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(path.parent))
    return path
