"""The keys of an environment's certificates: the one that signs, and those that verify."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from rackready import files
from rackready.handover.agent import AgentKeySigner
from rackready.handover.dsse import SignatureError, Signer, key_id, load_key, public_pem
from rackready.model.certificates import Certificates, public_bytes
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir

_DEFAULT = Certificates()


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of an environment."""

    paths: EnvPaths
    chosen: Certificates = _DEFAULT

    @property
    def folder(self) -> Path:
        """Return the folder of certificates: one file per node."""
        return private_dir(self.paths.state / "certificates")

    @property
    def file(self) -> Path:
        """Return the file of the key that signs, unless an ssh-agent has it."""
        return self.paths.state / "secrets/signing"

    def signer(self) -> Signer:
        """Return the key that signs; in a file, it is made at first use. Raises SignatureError.

        Its public half is written beside the certificates.
        """
        key = self._signer()
        files.settle(self.folder / "signing.pub.pem", public_pem(key.public))
        return key

    def _signer(self) -> Signer:
        if self.chosen.agent_key is not None:
            return AgentKeySigner(_public(self.chosen.agent_key))
        private_dir(self.file.parent)
        key = load_key(self.file)
        if key.id in map(key_id, self.retired()):
            raise SignatureError(
                self.file,
                "signing key",
                expected="one that is not retired",
                actual=f"{key.id}, which is in certificates.retired_keys",
                next_step="Move it away: the next certificate makes a new one.",
            )
        return key

    def present(self) -> Ed25519PublicKey | None:
        """Return the public half of the key that signs, None while there is none. Raises SignatureError."""
        if self.chosen.agent_key is not None:
            return _public(self.chosen.agent_key)
        return load_key(self.file).public if self.file.exists() else None

    def retired(self) -> tuple[Ed25519PublicKey, ...]:
        """Return the keys that verify and do not sign."""
        return tuple(map(_public, self.chosen.retired_keys))

    def trusted(self) -> tuple[Ed25519PublicKey, ...]:
        """Return the keys that verify, the present one first. Raises SignatureError."""
        present = self.present()
        return ((present,) if present else ()) + self.retired()


def keys_of(site: Site, paths: EnvPaths) -> Keys:
    """Return the keys of a site's certificates."""
    return Keys(paths, site.certificates)


def _public(line: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public_bytes(line))
