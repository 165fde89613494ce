"""Links, pipes and folders that others put where a file or a folder is expected lead nowhere."""

import os
from pathlib import Path

import pytest

from vcdl.files.shared import NotRegular, discard, held, regular


def test_a_held_folder_is_the_one_that_was_opened(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    with held(tmp_path, "a", "b") as folder:
        (tmp_path / "a").rename(tmp_path / "away")
        (tmp_path / "a").symlink_to(tmp_path / "other")
        (folder / "file").write_text("x")
        with pytest.raises(FileNotFoundError) as caught:
            (folder / "none").read_text()
    assert (tmp_path / "away" / "b" / "file").read_text() == "x"
    assert list((tmp_path / "other").iterdir()) == []
    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError, match=r"is no folder.*/a'"), held(tmp_path, "a"):
        pass
    assert len(os.listdir("/proc/self/fd")) == open_before
    with pytest.raises(FileNotFoundError) as caught, held(tmp_path, "away", "b") as folder:
        (folder / "none").read_text()
    assert caught.value.filename == str(tmp_path / "away" / "b" / "none")


def test_nothing_but_a_regular_file_is_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "folder", "pipe"):
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
            with pytest.raises(NotRegular, match="no regular file"):
                regular(tmp_path / name, flags)
    with pytest.raises(NotRegular):
        regular("/dev/zero", os.O_RDONLY)
    with open(tmp_path / "file", opener=regular) as file:
        assert file.read() == "x"
    for name in ("file", "link", "folder", "pipe", "none"):
        discard(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
