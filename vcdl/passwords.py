"""Mask passwords in URLs wherever text is printed or written for others to read."""

import re

MASK = "***"

# A file name made from a URL has one slash. The match ends at the line's last @: an unescaped password may hold any
# character.
_PASSWORD = re.compile(r"((?://|:/)[^\s:@]*:).*@")


def without_passwords(text: str) -> str:
    """The text with passwords of URLs (`//user:…@`) masked; in a line with several, everything from the first
    to the last.
    """
    return _PASSWORD.sub(rf"\1{MASK}@", text)
