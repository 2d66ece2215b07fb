"""The keys of the nodes' certificates: which one signs, and which still verify."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from rackready.model.base import Model

_HEAD = b"\0\0\0\x0bssh-ed25519\0\0\0\x20"
"""Begin of the key's blob: the name of its type and the length of the key (RFC 4253, 6.6; RFC 8709, 4)."""
_KEY_BYTES = 32


def public_bytes(line: str) -> bytes:
    """Return the 32 bytes of an Ed25519 public key in OpenSSH's form. Raises ValueError."""
    words = line.split()
    try:
        blob = base64.b64decode(words[1], validate=True) if words[:1] == ["ssh-ed25519"] else b""
    except (IndexError, binascii.Error):
        blob = b""
    if not blob.startswith(_HEAD) or len(blob) != len(_HEAD) + _KEY_BYTES:
        message = (
            "is no Ed25519 public key - Expected: ssh-ed25519 AAAA..., as `rackready certificate keys` prints it "
            f"Actual: {line[:40]!r}"
        )
        raise ValueError(message)
    return blob[len(_HEAD) :]


def _checked(line: str) -> str:
    public_bytes(line)
    return " ".join(line.split())


PublicKeyLine = Annotated[str, AfterValidator(_checked)]
"""An Ed25519 public key in OpenSSH's form: ssh-ed25519 AAAA... comment."""


class Certificates(Model):
    """Keys of the nodes' certificates (docs/howto/certificates.md)."""

    agent_key: PublicKeyLine | None = Field(
        None,
        description="public key of the key that signs, in the ssh-agent of SSH_AUTH_SOCK; absent: the key in the file "
        ".rackready/ENV/secrets/signing signs",
    )
    retired_keys: list[PublicKeyLine] = Field(
        default_factory=list,
        description="public keys that no longer sign; certificates that they signed still count",
    )

    @model_validator(mode="after")
    def _one_role_each(self) -> Self:
        retired = {public_bytes(line) for line in self.retired_keys}
        if self.agent_key is not None and public_bytes(self.agent_key) in retired:
            message = "agent_key is one of retired_keys - Expected: a retired key signs nothing. Remove it from one."
            raise ValueError(message)
        return self
