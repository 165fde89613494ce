"""Passwords in URLs, masked in whatever is printed or written for others to read."""

import re

MASK = "***"

# A file name made of a URL has one slash. Up to the line's last @: a password that is not written in %XX may hold any character.
_PASSWORD = re.compile(r"((?://|:/)[^\s:@]*:).*@")


def without_passwords(text: str) -> str:
    """The text with the password of a URL (`//user:…@`) masked; of a line that has several, all from the first to the last."""
    return _PASSWORD.sub(rf"\1{MASK}@", text)
