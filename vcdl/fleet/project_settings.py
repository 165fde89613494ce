"""The section `project` of a fleet file: which BOINC project the instances work for, and where its account key is."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import model_validator

from vcdl.errors import FleetError
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.reading import Problem, ProblemsError
from vcdl.yaml_schema.section import Section

_Variable = Annotated[str, kinds.text("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")]


class ProjectSettings(Section):
    """The BOINC project that the instances work for. The account key itself is neither in the file nor in a log."""

    url: Annotated[str, kinds.text(r"https?://[^\s\"'<>\\]{1,250}", "the project's URL, http://… or https://…")]
    account_key_file: Annotated[Path, kinds.any_path()] | None = None
    """File that contains only the account key; BOINC's weak key is enough."""
    account_key_env: _Variable | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "ProjectSettings":
        if (self.account_key_file is None) == (self.account_key_env is None):
            raise ValueError("expected exactly one of account_key_file, account_key_env")
        return self

    @model_validator(mode="after")
    def _is_secret(self) -> "ProjectSettings":
        host = urlsplit(self.url).hostname or ""
        if self.url.startswith("http:") and not _is_local(host):
            raise ProblemsError([Problem(("url",), "sends the account key in the clear: expected https://…")])
        return self

    def account_key(self, environment: Mapping[str, str]) -> str:
        """Return the account key. Raises FleetError, which never shows the key, if it is missing or malformed."""
        if self.account_key_file is not None:
            return _key_in(self.account_key_file)
        name = self.account_key_env or ""
        return _check_key(environment.get(name, "").strip(), f"the environment variable {name}")


def _is_local(host: str) -> bool:
    """Return whether a host is this machine or in a private network."""
    try:
        return host == "localhost" or ip_address(host).is_private
    except ValueError:
        return False


def _key_in(file: Path) -> str:
    """Return the account key in a file.

    Raises:
        FleetError: The key is missing, malformed or open to others; the message never shows it.
    """
    try:
        # Anybody who reads the key can attach hosts to the account.
        if file.stat().st_mode & 0o077:
            raise FleetError(f"other users can read the account key in {file}: chmod 600 {file}")
        return _check_key(file.read_text(encoding="ascii").strip(), str(file))
    except (OSError, UnicodeDecodeError) as error:
        # Report only the kind of error and no cause: a UnicodeDecodeError shows the offending bytes, which may belong
        # to the key.
        what = type(error).__name__
        raise FleetError(f"the account key cannot be read from {file}: {what}; write it there") from None


def _check_key(key: str, where: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_]{1,128}", key):
        raise FleetError(
            f"{where} contains no account key (letters, digits, _): copy it from the project's web page, Account keys"
        )
    return key
