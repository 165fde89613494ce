"""Encode and verify the signed statement of a job's newest weights. Standard library only.

A client that gets a statement or weights with a wrong signature or checksum ignores them, and starts from the weights
that came with its workunit.

The signature is RSA with PKCS #1 v1.5 and SHA-256. The verifier builds the only valid padding and compares all of it,
so it parses no padding.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Self

from vcdl.errors import WorkunitError

EXPONENT = 65537
"""The usual public exponent of RSA: verification is fast, and small exponents have attacks."""
LEAST_BITS = 2048
"""Shortest modulus that is accepted: the minimum of NIST SP 800-131A for new signatures."""
NEWEST_FILE, VERSION_FILE = "newest.h5", "newest_version"
"""Files that a task keeps with its inputs when it starts from the newest weights."""
MOST_BYTES = 4096
"""Longest signed statement, in bytes: a longer answer of a server is not read."""
_CONTEXT = b"vcdl newest weights 1\n"
"""Text that is signed before the statement, so that no signature made for another purpose is valid for weights."""
_SHA256_INFO = bytes.fromhex("3031300d060960864801650304020105000420")
"""The beginning of a DigestInfo for SHA-256 (RFC 8017, 9.2)."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WEB = ("http://", "https://")


@dataclass(frozen=True)
class PublicKey:
    """The public part of the project's key for signing weights. Clients get it with the app version."""

    modulus: int

    def to_json(self) -> str:
        return json.dumps({"modulus": f"{self.modulus:x}"})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Decode a key. Raises WorkunitError."""
        try:
            modulus = int(json.loads(text)["modulus"], 16)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WorkunitError(f"the project's key for weights is damaged ({error!r})") from error
        if modulus.bit_length() < LEAST_BITS:
            raise WorkunitError(f"the project's key for weights is shorter than {LEAST_BITS} bits")
        return cls(modulus)

    def verifies(self, statement: str, signature: bytes) -> bool:
        """Return whether the project signed the statement."""
        size = (self.modulus.bit_length() + 7) // 8
        number = int.from_bytes(signature, "big")
        # A number above the modulus would be a second valid form of the same signature.
        if len(signature) != size or number >= self.modulus:
            return False
        digest = _SHA256_INFO + hashlib.sha256(signed_bytes(statement)).digest()
        padded = b"\0\1" + b"\xff" * (size - 3 - len(digest)) + b"\0" + digest
        return pow(number, EXPONENT, self.modulus) == int.from_bytes(padded, "big")


def signed_bytes(statement: str) -> bytes:
    """Return the bytes that are signed for a statement."""
    return _CONTEXT + statement.encode()


@dataclass(frozen=True)
class Newest:
    """The statement: version, place and digest of a job's newest weights."""

    job: str
    layout: str
    """Fingerprint of the model's layout."""
    version: int
    url: str
    size_bytes: int
    sha256: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def append_signature(statement: str, signature: bytes) -> str:
    """Return the content of the file that is published: a statement with its signature, as JSON."""
    return json.dumps({"statement": statement, "signature": signature.hex()}) + "\n"


def read_signed(content: bytes, key: PublicKey) -> Newest:
    """Return the statement in a published file. Raises WorkunitError for one that the project has not signed."""
    try:
        raw = json.loads(content)
        statement, signature = raw["statement"], bytes.fromhex(raw["signature"])
        if not isinstance(statement, str) or not key.verifies(statement, signature):
            raise WorkunitError("the statement of the newest weights is not signed by the project")
        return _newest(json.loads(statement))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WorkunitError(f"the statement of the newest weights is damaged ({error!r})"[:300]) from error


def _newest(raw: dict[str, Any]) -> Newest:
    """Return a decoded statement as an object; raise TypeError or ValueError if a field is wrong."""
    newest = Newest(**raw)
    texts = (newest.job, newest.layout, newest.url, newest.sha256)
    counts = (newest.version, newest.size_bytes)
    # Check the types although the statement is signed: a server of another version may have made it.
    if not all(type(text) is str for text in texts) or not all(type(n) is int and n >= 0 for n in counts):
        raise TypeError("a field is of the wrong kind")
    if not newest.url.startswith(_WEB) or not _SHA256.fullmatch(newest.sha256):
        raise ValueError("no address, or no checksum")
    return newest


def is_web_address(url: str) -> bool:
    """Return whether a client may fetch from this address."""
    return url.startswith(_WEB)
