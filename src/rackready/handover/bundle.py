"""Sigstore bundles v0.3: a certificate's envelope as cosign reads it, without a transparency log."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rackready.handover.certificate import CertificateError
from rackready.handover.dsse import key_id, verify
from rackready.handover.keys import Keys

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
"""sigstore/protobuf-specs, sigstore_bundle.proto: version 0.3 is the newest; cosign 3 writes and reads it."""
_FAMILY = "application/vnd.dev.sigstore.bundle"


def bundle(envelope: Mapping[str, Any], keys: Keys, node: str) -> dict[str, Any]:
    """Return the bundle of an envelope, with one signature: a bundle has no more. Raises SignatureError.

    The signature is named as cosign names the key; envelopes of older releases have another name, which is not signed.
    """
    found = verify(envelope, keys.trusted(), node)
    name = key_id(found.key)
    signature = {"sig": base64.b64encode(found.signature).decode(), "keyid": name}
    return {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": name}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": envelope["payload"],
            "payloadType": envelope["payloadType"],
            "signatures": [signature],
        },
    }


def envelope_in(path: Path) -> Any:  # noqa: ANN401 - JSON of unknown shape
    """Return the envelope in a file: a bundle, or an envelope itself. Raises CertificateError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CertificateError(
            path, expected="a certificate: a Sigstore bundle or a DSSE envelope (JSON)", actual=_why(error)
        ) from error
    if not isinstance(document, dict) or "mediaType" not in document:
        return document
    kind = document["mediaType"]
    if not str(kind).startswith(_FAMILY) or "dsseEnvelope" not in document:
        raise CertificateError(path, expected=f"a bundle ({MEDIA_TYPE}) with a dsseEnvelope", actual=kind)
    return document["dsseEnvelope"]


def _why(error: Exception) -> object:
    return error.strerror if isinstance(error, OSError) else error
