"""Verify BOINC's signatures of app versions and of upload certificates.

After the upload key was renewed, the uploads of tasks sent before are refused, by no fault of their hosts. After the
code signing key was renewed, clients refuse files that the old key signed.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_FILE = re.compile(
    r"<name>(?P<name>[^<]*)</name>.*?<max_nbytes>(?P<most>[^<]*)</max_nbytes>.*?"
    r"<xml_signature>(?P<signature>[0-9a-fA-F\s]*)\.?\s*</xml_signature>",
    re.DOTALL,
)
"""A file in result.xml_doc_in: name, size limit and signature."""


@dataclass(frozen=True)
class BoincKey:
    """The public half of one of a project's RSA keys, in the form in which BOINC stores it."""

    modulus: int
    exponent: int

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the key in a file; None if it cannot be read or is not a key."""
        try:
            # BOINC's format of a public key (lib/crypt): the number of bits, then modulus and exponent as hexadecimal
            # digits of that many bits each, over several lines that end with a dot.
            bits, *lines = path.read_text().split()
            number = bytes.fromhex("".join(lines).rstrip("."))
            size = int(bits) // 8
        except (OSError, ValueError):
            return None
        return cls(int.from_bytes(number[:size]), int.from_bytes(number[size:]))

    def verifies(self, content: bytes, signature: str) -> bool:
        """Return whether this key made a hexadecimal signature of the content."""
        # BOINC signs the hexadecimal MD5 sum, padded by PKCS #1 without the ASN.1 prefix of the hash. So comparing the
        # end of the opened number with a zero byte and the digest is enough: it only decides whom to blame for a lost
        # upload.
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest().encode()
        number = int("".join(signature.split()).rstrip(".") or "0", 16)
        opened = pow(number, self.exponent, self.modulus)
        return opened.to_bytes(self.modulus.bit_length() // 8 + 1).endswith(b"\0" + digest)

    def has_certified(self, description: bytes | str) -> bool:
        """Return whether this key signed the certificate in a task's description; True without a certificate."""
        text = description.decode(errors="replace") if isinstance(description, bytes) else description
        found = _FILE.search(text)
        # Without a signature the project requires no upload certificates, so nothing can be outdated.
        if found is None:
            return True
        # The signature covers these two elements, with the size formatted as by BOINC's `%.0f`, not the text as it
        # stands.
        content = f"<name>{found['name'].strip()}</name><max_nbytes>{float(found['most']):.0f}</max_nbytes>"
        return self.verifies(content.encode(), found["signature"])
