"""A bucket of an object store with the S3 API: objects are read, made once, replaced and moved.

The client is obstore (docs/adr/0033-raw-outputs-in-an-object-store.md), an extra: ``rackready[s3]``. It would take
settings that we do not give from ``AWS_...`` variables. So everything that decides where outputs go, and as who, is
given here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from rackready.design.secrets import reveal
from rackready.drivers.object_store_error import (
    ObjectStoreError,
    StoreAwayError,
    StoreSilentError,
    code_of,
    in_words,
)
from rackready.model.object_store import ObjectStore
from rackready.paths import is_checkout

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Credential, S3Store

_TIMEOUT, _CONNECT = timedelta(seconds=30), timedelta(seconds=5)
_RETRY: RetryConfig = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=3), "base": 2},
}
"""Of a request that was refused or got a 5xx. Judgement: a restart of the store's gateway takes seconds."""
_WRITES = 2
"""Tries of a write without an answer, which the client does not repeat. It is the same object each time."""
_AWAY_S = 10.0
"""How long a store that did not answer is not asked again for an object, s: a report reads them by the thousand."""

_T = TypeVar("_T")


class Bucket:
    """The client of one bucket. Safe to use from several threads."""

    def __init__(self, settings: ObjectStore) -> None:
        """Read the keys. Raises SecretUnreadableError, and ObjectStoreError without the client or for a wrong CA."""
        self.settings = settings
        self._secrets = (reveal(settings.secret_key), reveal(settings.access_key))
        self._store = _opened(settings, self._secrets)
        self._away: tuple[float, ObjectStoreError] | None = None

    def get(self, key: str) -> bytes | None:
        """Return an object, None when there is none. Raises ObjectStoreError."""
        away = self._away
        if away is not None and time.monotonic() < away[0]:
            raise type(away[1]).of(away[1].messages) from away[1]
        try:
            return self._absent_is_none(lambda: bytes(self._store.get(key).bytes()))
        except StoreAwayError as error:
            self._away = (time.monotonic() + _AWAY_S, error)
            raise

    def create(self, key: str, data: bytes) -> bool:
        """Make an object, whole or not at all, and return whether there was none before. Raises ObjectStoreError."""
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - an extra

        def write() -> bool:
            try:
                self._store.put(key, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

        for _ in range(_WRITES - 1):
            try:
                return self._said(write)
            except StoreSilentError:
                continue
        return self._said(write)

    def move(self, key: str, to: str) -> None:
        """Give an object another key. Raises ObjectStoreError."""
        self._said(lambda: self._store.rename(key, to))

    def require_rights(self, key: str, data: bytes) -> None:
        """Check that objects can be read and written, without a change: a condition of the write does not hold.

        Raises ObjectStoreError. A store that ignores conditions makes the object.
        """
        from obstore.exceptions import PreconditionError  # noqa: PLC0415 - an extra

        def write() -> None:
            try:
                self._store.put(key, data, mode={"e_tag": '"0"'}, use_multipart=False)
            except PreconditionError as error:
                if code_of(str(error)) not in {"PreconditionFailed", "NoSuchKey"}:
                    raise

        self._absent_is_none(lambda: bytes(self._store.get(key).bytes()))
        self._absent_is_none(write)

    def _absent_is_none(self, action: Callable[[], _T]) -> _T | None:
        """Return what an action returns, None when there is no such object: 404 with another code is no absence."""

        def read() -> _T | None:
            try:
                return action()
            except FileNotFoundError as error:
                if code_of(str(error)) != "NoSuchKey":
                    raise
                return None

        return self._said(read)

    def _said(self, action: Callable[[], _T]) -> _T:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra

        try:
            return action()
        except (BaseError, OSError, ValueError) as error:
            # Not chained: the client's text has what was signed, and the id of the key.
            raise in_words(self.settings, str(error), self._secrets) from None


_buckets: dict[tuple[int, ObjectStore], Bucket] = {}
_lock = threading.Lock()


def bucket_of(settings: ObjectStore) -> Bucket:
    """Return the client of a bucket that this process shares. Raises as ``Bucket``."""
    key = (os.getpid(), settings)
    with _lock:
        if key not in _buckets:
            _buckets[key] = Bucket(settings)
        return _buckets[key]


def _opened(settings: ObjectStore, secrets: tuple[str, str]) -> S3Store:
    try:
        from obstore.store import S3Store  # noqa: PLC0415 - an extra
    except ImportError as error:
        way = "make setup" if is_checkout() else "pip install 'rackready[s3]'"
        raise ObjectStoreError(
            settings, expected="the Python package obstore", actual="none", next_step=f"Run `{way}`."
        ) from error

    def credentials() -> S3Credential:
        return {"access_key_id": secrets[1], "secret_access_key": secrets[0], "token": None, "expires_at": None}

    try:
        return S3Store(
            settings.bucket,
            prefix=settings.prefix,
            endpoint=settings.endpoint,
            aws_endpoint_url_s3=settings.endpoint,
            region=settings.region,
            virtual_hosted_style_request=False,
            skip_signature=False,
            unsigned_payload=False,
            s3_express=False,
            conditional_put="etag",
            disable_bulk_delete=True,
            client_options=_client(settings),
            retry_config=_RETRY,
            credential_provider=credentials,
        )
    except (ValueError, OSError) as error:
        what = error.strerror if isinstance(error, OSError) else "no certificate in it"
        if settings.ca is None:
            raise in_words(settings, str(error), secrets) from None
        raise ObjectStoreError(
            settings.ca, expected="a CA certificate (PEM)", actual=what, next_step="Put it there, or correct ca."
        ) from None


def _client(settings: ObjectStore) -> ClientConfig:
    made: ClientConfig = {
        "allow_http": settings.endpoint.startswith("http://"),
        "allow_invalid_certificates": False,
        "connect_timeout": _CONNECT,
        "timeout": _TIMEOUT,
    }
    if settings.ca is not None:
        made["root_certificate"] = settings.ca.read_bytes()
    return made
