"""The key with which a project signs its newest weights (vcdl.wire.newest).

Whoever steals this key can make clients start from other weights, but cannot make them run other programs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import GridError
from vcdl.wire.newest import EXPONENT, PublicKey, append_signature, signed_bytes

_BITS = 3072
"""Bits of the key that signs weights: NIST's strength for use beyond 2030."""


@dataclass(frozen=True)
class WeightsKey:
    """The private key with which a project signs statements about its newest weights."""

    _private: RSAPrivateKey

    @staticmethod
    def file(project: Path) -> Path:
        """Return the path of a project's key."""
        return project / "vcdl" / "weights_key.pem"

    @classmethod
    def generate(cls) -> Self:
        return cls(generate_private_key(EXPONENT, _BITS))

    @classmethod
    def of(cls, project: BoincProject) -> Self | None:
        """Return the project's key; None if none was made.

        Raises:
            GridError: Its file cannot be read.
        """
        path = cls.file(project.path)
        try:
            # Without a password: a daemon cannot be asked for one, and only the project's user can read the file.
            private = serialization.load_pem_private_key(path.read_bytes(), None)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise GridError(f"{path}: {error.strerror or error}; run as the project's user") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise GridError(f"{path} is damaged: remove it, and `vcdl project install` makes another one") from error
        if not isinstance(private, RSAPrivateKey) or private.public_key().public_numbers().e != EXPONENT:
            raise GridError(f"{path} holds another kind of key: remove it, and `vcdl project install` makes one")
        return cls(private)

    @property
    def public(self) -> PublicKey:
        """The public half, which verifies signatures."""
        return PublicKey(self._private.public_key().public_numbers().n)

    def to_pem(self) -> bytes:
        """Return the content of the key's file; equal keys give equal bytes."""
        return self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def sign(self, statement: str) -> str:
        """Return the statement with its signature appended, in the form that clients read."""
        # Use PKCS #1 v1.5: volunteers' Pythons have no package for signatures, and the client verifies it with one
        # `pow` and one comparison (decision 038).
        signature = self._private.sign(signed_bytes(statement), padding.PKCS1v15(), hashes.SHA256())
        return append_signature(statement, signature)
