"""The keys of an environment's certificates: the one that signs, and those that verify."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from rackready import files
from rackready.handover.dsse import Signer, load_key, public_pem
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of an environment."""

    paths: EnvPaths

    @property
    def folder(self) -> Path:
        """Return the folder of certificates: one file per node."""
        return private_dir(self.paths.state / "certificates")

    def signer(self) -> Signer:
        """Return the key that signs, made at first use. Its public half is written beside the certificates."""
        key: Signer = load_key(private_dir(self.paths.state / "secrets") / "signing")
        files.settle(self.folder / "signing.pub.pem", public_pem(key.public))
        return key

    def trusted(self) -> tuple[Ed25519PublicKey, ...]:
        """Return the public keys that verify, the present one first. Raises SignatureError."""
        return (self.signer().public,)


def keys_of(site: Site, paths: EnvPaths) -> Keys:
    """Return the keys of a site's certificates."""
    del site
    return Keys(paths)
