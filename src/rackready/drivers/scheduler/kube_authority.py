"""CAs of clusters, compared by the hash of their public key, as kubeadm pins them (caCertHashes)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rackready.drivers.scheduler.base import SchedulerError


def pins_of(pem: bytes) -> frozenset[str]:
    """Return the pin of every certificate in PEM text, empty for text without a readable one.

    SHA-256 over the DER form of the public key (kubeadm 1.35.0, cmd/kubeadm/app/util/pubkeypin).
    """
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return frozenset()
    keys = [item.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) for item in found]
    return frozenset(f"sha256:{hashlib.sha256(key).hexdigest()}" for key in keys)


def pins_of_kubeconfig(path: Path, context: str) -> frozenset[str]:
    """Return the pins of the CA of a context, empty for one that verifies by the system's CAs or cannot be read."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        named = {item["name"]: item["context"]["cluster"] for item in document["contexts"]}
        cluster = {item["name"]: item["cluster"] for item in document["clusters"]}[named[context]]
        if "certificate-authority-data" in cluster:
            return pins_of(base64.b64decode(cluster["certificate-authority-data"]))
        return pins_of((path.parent / cluster["certificate-authority"]).read_bytes())
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, KeyError, ValueError):
        return frozenset()


def discovery(path: Path) -> tuple[str, frozenset[str]]:
    """Return the text of a discovery file, and the pins of its CA. Raises SchedulerError for one no node can use.

    kubeadm reads its only cluster (cmd/kubeadm/app/discovery/file). A CA by path would be looked for on the node.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document: Any = yaml.safe_load(text)
        clusters = [item["cluster"] for item in document["clusters"]]
        pins = [pins_of(base64.b64decode(item.get("certificate-authority-data", ""))) for item in clusters]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, KeyError, AttributeError, binascii.Error) as error:
        actual = getattr(error, "strerror", None) or f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise _unusable(path, actual) from error
    if len(pins) != 1 or not pins[0]:
        raise _unusable(path, f"{len(clusters)} clusters, {sum(map(bool, pins))} of them with such a certificate")
    return text, pins[0]


def _unusable(path: Path, actual: str) -> SchedulerError:
    return SchedulerError(
        f"discovery file {path}",
        expected="a kubeconfig of one cluster with certificate-authority-data",
        actual=actual,
        next_step="Correct handover.join.kubeadm.discovery_file.",
    )
