"""Errors of an object store in words: the cause in its answer or in the client's error, and the next step."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from rackready.model.object_store import ObjectStore
from rackready.model.problems import RackreadyError

LOG = "Look at the store's log, then run again."
REACH = "Start the store, or correct raw_outputs.s3.endpoint in database.yml, then run again."
_CA = "Correct raw_outputs.s3.ca or endpoint in database.yml, or the store's own certificate."
_GRANT = (
    "Grant the key s3:ListBucket of that bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject below {prefix}."
)
"""Without the right to list, AWS answers AccessDenied for an object that does not exist."""
_KEYS = frozenset({"InvalidAccessKeyId", "XAdminUserNotFound", "InvalidToken", "ExpiredToken", "NotSignedUp"})
_SILENT = "no answer in time"
_MOST = 200
"""Characters of a store's own message that are shown."""

_WORDS = (
    ("UnknownIssuer", "one of an unknown CA"),
    ("CaUsedAsEndEntity", "a CA's own, used as the server's"),
    ("NotValidForName", "one for another name"),
    ("Expired", "one that has expired"),
    ("NotValidYet", "one that is not valid yet"),
)
"""Words in the client's error -> the certificate that the store showed."""

_LINKS = (
    ("InvalidContentType", "no TLS on that port", "Write http:// in raw_outputs.s3.endpoint, or correct its port."),
    ("ConnectionRefused", "connection refused", REACH),
    ("dns error", "its name is not known", REACH),
    ("NetworkUnreachable", "no route to it", REACH),
    ("HostUnreachable", "no route to it", REACH),
    ("TimedOut", _SILENT, REACH),
    ("Timeout", _SILENT, REACH),
    ("IncompleteMessage", "the connection was closed without an answer (a port with TLS closes plain HTTP)", REACH),
    ("ConnectionReset", "the connection was reset", REACH),
    ("BrokenPipe", "the connection was closed", REACH),
    ("tunnel", "the proxy refused the connection", "Correct HTTPS_PROXY, or add the store to NO_PROXY."),
)
"""Words in the client's error -> the cause, and the next step."""


class ObjectStoreError(RackreadyError):
    """An object store cannot be used."""


class StoreAwayError(ObjectStoreError):
    """The object store does not answer, or answers that it cannot work now (5xx)."""


class StoreSilentError(StoreAwayError):
    """The object store did not answer in time: whether it did what was asked is not known."""


def code_of(text: str) -> str:
    """Return the code in the store's own answer (S3: <Error><Code>), "" when there is none."""
    found = re.search(r"<Code>([A-Za-z0-9.]+)</Code>", text)
    return found[1] if found else ""


def in_words(store: ObjectStore, text: str, secrets: tuple[str, ...]) -> ObjectStoreError:
    """Return the error of a store, from the text of the client's error; no secret is in it."""
    code, status = code_of(text), re.search(r"non-2xx status code: (\d{3}[^:\n]*)", text)
    if code:
        error = _answered(store, code, text, secrets)
    elif status:
        error = ObjectStoreError(
            store, expected="an answer of the S3 API", actual=f"HTTP {status[1].strip()}, without a code", next_step=LOG
        )
    else:
        return _not_reached(store, text, secrets)
    if status and status[1].startswith("5") and code != "NotImplemented":
        return StoreAwayError.of(error.messages)  # the client has tried for seconds: others need not try at once
    return error


def _answered(store: ObjectStore, code: str, text: str, secrets: tuple[str, ...]) -> ObjectStoreError:
    said = f"{code} ({_message(text, secrets)})"
    key, secret = f"the access key in {store.access_key}", f"the secret key in {store.secret_key}"
    known: dict[str, tuple[str, str, str]] = {
        "SignatureDoesNotMatch": ("the secret key of that access key", said, f"Correct {secret}, or {key}."),
        "AccessDenied": ("a key that may read and write there", said, _GRANT.format(prefix=store.prefix)),
        "NoSuchBucket": (
            "that bucket",
            code,
            f"Make bucket {store.bucket}, or correct raw_outputs.s3.bucket in database.yml.",
        ),
        "RequestTimeTooSkewed": (
            "clocks that agree within 15 min",
            _clocks(text),
            "Set the clock that is wrong (NTP).",
        ),
        "AuthorizationHeaderMalformed": (
            f"region {_tag(text, 'Region') or 'of the store'}",
            f"region {store.region}",
            "Correct raw_outputs.s3.region in database.yml.",
        ),
        "NotImplemented": (
            "a store with conditional writes (If-None-Match)",
            said,
            "Upgrade the store, or use a folder that all machines share.",
        ),
    }
    known |= dict.fromkeys(_KEYS, ("an access key that the store knows", said, f"Correct {key}."))
    known |= dict.fromkeys(
        ("PermanentRedirect", "IllegalLocationConstraintException"), known["AuthorizationHeaderMalformed"]
    )
    expected, actual, step = known.get(code, ("an object read or written", said, LOG))
    return ObjectStoreError(store, expected=expected, actual=actual, next_step=step)


def _not_reached(store: ObjectStore, text: str, secrets: tuple[str, ...]) -> ObjectStoreError:
    if "InvalidCertificate" in text:
        shown = next((words for name, words in _WORDS if name in text), "one that cannot be verified")
        trusted = f"a certificate signed by {store.ca or 'a CA of this system'}, for the name in endpoint"
        return ObjectStoreError(store, expected=trusted, actual=shown, next_step=_CA)
    for word, cause, step in _LINKS:
        if word in text:
            kind = StoreSilentError if cause == _SILENT else StoreAwayError
            return kind(store, expected="a store that answers", actual=cause, next_step=step)
    first = text.partition("\n")[0].rpartition("HTTP error: ")[2] or "no text"
    return StoreAwayError(
        store, expected="a store that answers", actual=_hidden(first[:_MOST], secrets), next_step=REACH
    )


def _message(text: str, secrets: tuple[str, ...]) -> str:
    return _hidden(_tag(text, "Message")[:_MOST].rstrip(".") or "no message", secrets)


def _hidden(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _tag(text: str, name: str) -> str:
    found = re.search(rf"<{name}>([^<]*)</{name}>", text)
    return " ".join(found[1].split()) if found else ""


def _clocks(text: str) -> str:
    theirs = _tag(text, "ServerTime") or "another time"
    return f"the store's clock {theirs}, this machine's {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
