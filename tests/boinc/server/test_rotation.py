"""A new code signing key: signed with each older one, and whole after a kill at any act. crypt_prog is a stand-in that
signs with a digest of key and content; the real one runs in test_whole.py and test_real_keys.py.
"""

import getpass
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vcdl.boinc.project import files
from vcdl.boinc.server import system
from vcdl.boinc.server.rotation import SigningKeys, change_here
from vcdl.errors import ServerError

pytestmark = pytest.mark.process

CRYPT = """\
#!/bin/sh
case $1 in
-genkey) head -c 9 /dev/urandom | od -An -tx1 | tr -d ' ' > "$3"; sed s/^/public-of-/ "$3" > "$4" ;;
-sign) cat "$2" "$3" | sha256sum ;;
esac
"""


@pytest.fixture
def keys(tmp_path: Path) -> SigningKeys:
    program = tmp_path / "crypt_prog"
    program.write_text(CRYPT)
    program.chmod(0o755)
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "code_sign_private").write_text("first\n")
    (folder / "code_sign_private").chmod(0o600)
    (folder / "code_sign_public").write_text("public-of-first\n")
    return SigningKeys(folder, program, getpass.getuser())


def signed(keys: SigningKeys, content: str, private: str) -> str:
    path = keys.folder.parent / "x"
    path.write_text(content)
    (keys.folder.parent / "key").write_text(private)
    return system.run(keys.program, "-sign", path, keys.folder.parent / "key", user=keys.user)


def check_each_old_key_has_signed_the_new_one(keys: SigningKeys, olds: list[str]) -> None:
    public = (keys.folder / "code_sign_public").read_text()
    assert public == f"public-of-{(keys.folder / 'code_sign_private').read_text()}"
    found = {path.read_text().strip(): path.name.rpartition("_")[2] for path in keys.folder.glob("old_key_*")}
    assert sorted(found.values()) == [str(number) for number in range(len(olds))]
    for old in olds:
        private = old.removeprefix("public-of-")
        signature = (keys.folder / f"signature_stripped_{found[old.strip()]}").read_text()
        assert signature == signed(keys, public.strip(), private)
        assert (keys.folder / f"signature_{found[old.strip()]}").read_text() == signed(keys, public, private)


def test_a_client_that_slept_through_two_changes_can_take_the_newest_key(keys: SigningKeys) -> None:
    olds = []
    for _ in range(3):
        olds.append((keys.folder / "code_sign_public").read_text())
        change_here(keys)
        check_each_old_key_has_signed_the_new_one(keys, olds)
    assert not keys.next.exists()
    private = [path for path in keys.folder.rglob("*") if path.name == "code_sign_private"]
    assert [system.is_private(path) for path in private] == [True] * 4
    assert keys.forget() == 3
    last = (keys.folder / "code_sign_public").read_text()
    change_here(keys)
    check_each_old_key_has_signed_the_new_one(keys, [last])


@pytest.mark.parametrize("act", [1, 5, 11, 14, 18, 19])
def test_a_change_that_was_killed_goes_on_and_is_one_change(
    keys: SigningKeys, monkeypatch: pytest.MonkeyPatch, act: int
) -> None:
    olds = [(keys.folder / "code_sign_public").read_text()]
    change_here(keys)
    olds.append((keys.folder / "code_sign_public").read_text())
    acts = 0

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def called(*arguments: object, **named: object) -> object:
            nonlocal acts
            acts += 1
            if acts == act + 1:
                raise KeyboardInterrupt
            return call(*arguments, **named)

        return called

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", counted(files.write))
        patch.setattr(os, "rename", counted(os.rename))
        with pytest.raises(KeyboardInterrupt):
            change_here(keys)
    if (now := (keys.folder / "code_sign_public").read_text()) not in olds:  # half in use: clients are told no nonsense
        check_each_old_key_has_signed_the_new_one(keys, olds)
    assert now == olds[-1] or (keys.next / "code_sign_public").read_text() == now
    change_here(keys)
    check_each_old_key_has_signed_the_new_one(keys, olds)


def test_each_command_is_that_of_the_keys_user_who_need_not_be_root(
    keys: SigningKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    users: list[str] = []
    run = system.run

    def noted(*command: str | Path, user: str = "root") -> str:
        users.append(user)
        return run(*command)

    theirs = replace(keys, user="theirs")
    monkeypatch.setattr(system, "run", noted)
    monkeypatch.setattr(system, "own", lambda *_: None)
    change_here(theirs)
    theirs.forget()
    assert set(users) == {"theirs"}


def test_a_key_kept_elsewhere_is_named(keys: SigningKeys) -> None:
    (keys.folder / "code_sign_private").unlink()
    with pytest.raises(ServerError, match="code_sign_private is missing"):
        change_here(keys)
