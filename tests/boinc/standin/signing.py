"""BOINC's signatures: PKCS #1 v1.5 padding around an MD5 in hexadecimal, with RSA of 1024 bits, all of it
printed in hexadecimal.

The client checks each file of an app version, the upload handler the certificate of each upload. Keys are made
for a test and thrown away with it.
"""

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

_BITS = 1024
_BYTES = _BITS // 8
_EXPONENT = 65537


@dataclass(frozen=True)
class SigningKey:
    """A private key."""

    modulus: int
    exponent: int

    @classmethod
    def generate(cls) -> Self:
        while True:
            p, q = _prime(_BITS // 2), _prime(_BITS // 2)
            if (p * q).bit_length() == _BITS and (p - 1) % _EXPONENT and (q - 1) % _EXPONENT and p != q:
                return cls(p * q, pow(_EXPONENT, -1, (p - 1) * (q - 1)))

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(**json.loads(path.read_text()))

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    def publish(self, path: Path) -> None:
        """Write the public key, as BOINC's programs read it."""
        path.write_text(self.public_text)

    @property
    def public_text(self) -> str:
        """The public key, as BOINC writes it."""
        return f"{_BITS}\n" + _hexadecimal(self.modulus.to_bytes(_BYTES, "big") + _EXPONENT.to_bytes(_BYTES, "big"))

    def sign(self, content: bytes) -> str:
        """The signature of a file or a text, as BOINC writes it."""
        number = pow(int.from_bytes(_padded(content), "big"), self.exponent, self.modulus)
        return _hexadecimal(number.to_bytes(_BYTES, "big"))

    def signed(self, content: bytes, signature: str) -> bool:
        """Whether the signature was made with this key, for this content."""
        number = int("".join(signature.split()).rstrip(".") or "0", 16)
        return pow(number, _EXPONENT, self.modulus) == int.from_bytes(_padded(content), "big")


def _padded(content: bytes) -> bytes:
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest().encode()
    return b"\0\1" + b"\xff" * (_BYTES - 3 - len(digest)) + b"\0" + digest


def _hexadecimal(content: bytes) -> str:
    text = content.hex()
    return "\n".join(text[start : start + 64] for start in range(0, len(text), 64)) + "\n.\n"


def _prime(bits: int) -> int:
    while True:
        candidate = secrets.randbits(bits) | (3 << (bits - 2)) | 1
        if all(candidate % small for small in (3, 5, 7, 11, 13, 17, 19, 23)) and _is_probably_prime(candidate):
            return candidate


def _is_probably_prime(number: int, rounds: int = 20) -> bool:
    """Miller and Rabin's test."""
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    odd = (number - 1) >> twos
    for _ in range(rounds):
        power = pow(secrets.randbelow(number - 3) + 2, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True
