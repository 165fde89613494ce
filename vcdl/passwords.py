"""Keep passwords out of what is printed or written for others to read: mask those in URLs, or take them out."""

import re

MASK = "***"

# A file name made from a URL has one slash. The match ends at the line's last @: an unescaped password may hold any
# character.
_PASSWORD = re.compile(r"((?://|:/)[^\s:@]*:).*@")
_AUTHORITY_END = re.compile("[/?#]")


def without_passwords(text: str) -> str:
    """The text with passwords of URLs (`//user:…@`) masked; in a line with several, everything from the first
    to the last.
    """
    return _PASSWORD.sub(rf"\1{MASK}@", text)


def split_password(url: str) -> tuple[str, str]:
    """A URL `SCHEME://[USER[:PASSWORD]@]HOST…` without its password, and the password as it is written there."""
    scheme, separator, rest = url.partition("://")
    authority = _AUTHORITY_END.split(rest, maxsplit=1)[0]
    login, _, host = authority.rpartition("@")
    user, _, password = login.partition(":")
    if not password:
        return url, ""
    return f"{scheme}{separator}{f'{user}@' if user else ''}{host}{rest[len(authority) :]}", password
