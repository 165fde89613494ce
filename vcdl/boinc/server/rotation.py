"""Change keys while clients have the old ones: BOINC's code signing key, and a self-signed certificate.

    keys/code_sign_private, code_sign_public          the pair in use
    keys/old_key_N, signature_N, signature_stripped_N an older public key, and the one in use signed with it
    keys/retired/NN/                                  the older pairs, so that the next key is signed with each of them
    keys/next/                                        a change in progress, which continues after a kill

A client accepts a new key only with a signature by the key that it has. The scheduler sends it the key in use, never
one in between. So a client that missed two changes needs the newest key signed with its own. See decision 096.
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.project import files
from vcdl.boinc.server import system
from vcdl.boinc.server.project_steps import (
    doctor_step,
    enable_apache_site,
    install_step,
    make_certificate,
    restart_units,
    trust,
)
from vcdl.boinc.server.settings import SELF_SIGNED, ServerSettings
from vcdl.boinc.server.steps import ServerStep, always
from vcdl.errors import ServerError

_PRIVATE, _PUBLIC = "code_sign_private", "code_sign_public"
_BITS = 1024
"""Bits of the key; BOINC's programs have no space for more."""
_OLD = re.compile(r"(old_key|signature|signature_stripped)_\d+")


@dataclass(frozen=True)
class SigningKeys:
    """A folder with a project's code signing keys, in which the keys are changed in steps.

    `make_ready` prepares the next pair without touching the one in use, `put_in_use` activates it, and `end` retires
    the former pair. After a kill each step can be repeated. Calls raise ServerError.
    """

    folder: Path
    program: Path
    """Path of BOINC's program crypt_prog."""
    user: str

    @property
    def next(self) -> Path:
        return self.folder / "next"

    @property
    def retired(self) -> Path:
        return self.folder / "retired"

    def is_ready(self) -> bool:
        """Return whether the next pair is complete; its public key is written last."""
        return (self.next / _PUBLIC).is_file()

    def make_ready(self) -> None:
        """Generate the next pair, and sign its public key with the key in use and with each retired one.

        Nothing in use is changed.
        """
        if not system.is_private(self.folder / _PRIVATE):
            raise ServerError(
                f"{self.folder / _PRIVATE} is missing, or others may read it; change a key that is kept on a machine "
                "without network there, with --keys and --boinc"
            )
        self._remove(self.next)
        retired = self.next / "retired"
        self._folder(retired)
        # Number the oldest first and the pair in use last, so that the numbers of files stay the same in the next
        # change.
        pairs = [*sorted(self.retired.glob("*")), self.folder]
        for number, pair in enumerate(pairs):
            self._folder(retired / f"{number:02d}")
            for name in (_PRIVATE, _PUBLIC):
                self._write(retired / f"{number:02d}" / name, (pair / name).read_text())
        self._crypt("-genkey", str(_BITS), self.next / _PRIVATE, self.next / "public")
        (self.next / _PRIVATE).chmod(files.SECRET_MODE)
        public = (self.next / "public").read_text()
        self._write(self.next / "stripped", public.strip())  # as clients from 7.0 on know it
        for number in range(len(pairs)):
            private, old = (retired / f"{number:02d}" / name for name in (_PRIVATE, _PUBLIC))
            self._write(self.next / f"old_key_{number}", old.read_text())
            for kind, what in (("signature", "public"), ("signature_stripped", "stripped")):
                self._write(self.next / f"{kind}_{number}", self._crypt("-sign", self.next / what, private))
        # Rename it last, because `is_ready` checks for this file.
        os.replace(self.next / "public", self.next / _PUBLIC)

    def is_in_use(self) -> bool:
        return self.is_ready() and files.read(self.folder / _PUBLIC) == files.read(self.next / _PUBLIC)

    def put_in_use(self) -> None:
        """Copy the prepared pair and its signatures over those in use.

        Its signatures are written first: without them the scheduler would ask clients to attach again.
        """
        found = sorted(path.name for path in self.next.iterdir() if _OLD.fullmatch(path.name))
        for name in found:
            self._write(self.folder / name, (self.next / name).read_text())
        for path in self.folder.iterdir():
            if _OLD.fullmatch(path.name) and path.name not in found:  # its private half did not sign the new key
                path.unlink()
        for name in (_PRIVATE, _PUBLIC):
            self._write(self.folder / name, (self.next / name).read_text())

    def end(self) -> None:
        """Move the former pair to keys/retired; the change is complete."""
        # It is missing after a kill between the rename and the removal below.
        if (self.next / "retired").is_dir():
            self._remove(self.retired)
            os.rename(self.next / "retired", self.retired)
        self._remove(self.next)

    def forget(self) -> int:
        """Shred the retired private keys and delete their folder; return the number of keys.

        Hosts that still have one of these keys cannot accept the next key.
        """
        found = sorted(self.retired.glob(f"*/{_PRIVATE}"))
        for path in found:
            system.run("shred", "--remove", path, user=self.user)
        self._remove(self.retired)
        return len(found)

    def _crypt(self, *arguments: str | Path) -> str:
        return system.run(self.program, *arguments, user=self.user)

    def _folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        for each in (path, *path.parents):
            if each == self.folder:
                break
            system.own(each, self.user, 0o700)

    def _write(self, path: Path, text: str) -> None:
        """Write a file, closed to others if it is a private key; the web server's user reads the others."""
        secret = path.name == _PRIVATE
        files.write(path, text.encode(), files.SECRET_MODE if secret else 0o644)
        system.own(path, self.user, files.SECRET_MODE if secret else 0o644)

    def _remove(self, folder: Path) -> None:
        for path in folder.rglob(_PRIVATE):
            system.run("shred", "--remove", path, user=self.user)
        shutil.rmtree(folder, ignore_errors=True)


def keys_of(settings: ServerSettings) -> SigningKeys:
    """Return the keys of a project on this machine."""
    return SigningKeys(settings.project / "keys", settings.project / "bin" / "crypt_prog", settings.user)


def signing_steps(settings: ServerSettings) -> Iterator[ServerStep]:
    """Yield the steps that rotate the code signing key.

    The project is stopped meanwhile, because a client with the new key accepts no file that the old one signed. Install
    publishes the client's files with new signatures.
    """
    keys = keys_of(settings)
    yield ServerStep("new code signing key, signed with each older one", keys.is_ready, keys.make_ready)
    stopped = always("project stopped", lambda: system.run("systemctl", "stop", f"{settings.name}.service"))
    yield stopped
    yield ServerStep("new key in use", keys.is_in_use, keys.put_in_use)
    yield install_step(settings)
    yield always("daemons and service started again", lambda: restart_units(settings))
    yield doctor_step(settings)
    yield always(f"older keys in {keys.retired}, for the next change", keys.end)


def change_here(keys: SigningKeys) -> None:
    """Change the keys in a folder that no project uses, all steps at once.

    Raises:
        ServerError: A key cannot be made or signed.
    """
    if not keys.is_ready():
        keys.make_ready()
    keys.put_in_use()
    keys.end()


def not_asked_since(settings: ServerSettings) -> int:
    """Count the hosts of the last 30 days that still have an older key."""
    made_s = (settings.project / "keys" / _PUBLIC).stat().st_mtime
    asked = f"rpc_time < {int(made_s)} AND rpc_time > UNIX_TIMESTAMP() - 30 * 86400"
    return int(system.sql(f"SELECT COUNT(*) FROM host WHERE {asked}", settings.name).strip() or 0)


def next_certificate(settings: ServerSettings) -> Path | None:
    """Rotate a certificate in two phases: the first call makes the new one next to the old, the second activates it.

    Returns:
        The new certificate's file while clients must be given it; None once it is in use.

    Raises:
        ServerError: The certificate is not self-signed.
    """
    if settings.tls != SELF_SIGNED:
        raise ServerError(
            "--tls changes self-signed certificates only: certbot renews those of Let's Encrypt; for your "
            "own certificate, replace the files and run `systemctl reload apache2`"
        )
    certificate, key = settings.certificate
    after, after_key = (path.with_name(f"{path.name}.next") for path in (certificate, key))
    if not after.exists():
        make_certificate(settings, after, after_key)
        return after
    # Replace the key first: after a kill in between, the next call replaces the certificate.
    if after_key.exists():
        os.replace(after_key, key)
    os.replace(after, certificate)
    trust(settings)
    enable_apache_site(settings)
    return None
