"""The boot service over HTTPS: its own authority, pinned by hash, and the node's token. Everything is tried again."""

from __future__ import annotations

import hashlib
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any

from .cmdline import Options
from .errors import ImagingError
from .host import say

CHUNK = 1 << 20
_TIMEOUT_S = 30.0
_DELAYS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0, 30.0, 30.0, 30.0, 30.0)
"""Four minutes in all: a restart of the service, or of a switch on the way."""
_FINAL = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
}
"""Answers that stay the same when asked again."""
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME (openssl/x509_vfy.h): a new or long stored server has no clock, and the pinned authority is
made for this service alone."""


class Service:
    """Requests with the node's token. ``sleep``: for tests."""

    def __init__(self, options: Options, sleep: Callable[[float], None] = time.sleep) -> None:
        self._options = options
        self._sleep = sleep
        self._opener = urllib.request.OpenerDirector()

    def trust(self) -> None:
        """Fetch the authority by HTTP and trust it if its hash is the one of the command line.

        Raises ImagingError otherwise.
        """
        plain = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        pem = self._again(
            lambda: _body(plain.open(urllib.request.Request(self._options.ca), timeout=_TIMEOUT_S)),  # noqa: S310
            self._options.ca,
        ).decode("ascii", errors="replace")
        try:
            actual = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
        except ValueError:
            actual = "no certificate"
        if actual != self._options.ca_sha256:
            raise ImagingError(
                "authority",
                f"{self._options.ca}",
                expected=f"SHA-256 {self._options.ca_sha256}",
                actual=actual,
                next_step="Another machine answers on the provisioning network, or the service was recreated.",
            )
        context = ssl.create_default_context(cadata=pem)
        context.verify_flags |= _NO_CHECK_TIME
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def get_json(self, url: str) -> Any:  # noqa: ANN401 - JSON
        """Return a document. Raises ImagingError when the service does not give it."""
        body = self._again(lambda: _body(self._open("GET", url)), url)
        try:
            return json.loads(body)
        except ValueError as error:
            raise ImagingError("plan", f"{url}", expected="JSON", actual=f"{error}") from error

    def put_json(self, url: str, document: object, *, tries: int = 3) -> None:
        """Store a document. Raises ImagingError when the service does not take it."""
        data = (json.dumps(document, indent=1) + "\n").encode()
        self._again(lambda: _body(self._open("PUT", url, data)), url, _DELAYS_S[: tries - 1])

    def stream(self, url: str, size: int) -> Iterator[bytes]:
        """Yield a file in pieces. After a lost connection it continues where it stopped.

        Raises ImagingError when it ends early again and again, or has another size.
        """
        position, failures = 0, 0
        while position < size:
            before = position
            try:
                for piece in self._pieces(url, position):
                    position += len(piece)
                    yield piece
            except (OSError, HTTPException) as error:
                _raise_if_final(error, url)
                said = str(error) or type(error).__name__
            else:
                said = f"end at byte {position} of {size}"
            if position >= size:
                break
            failures = failures + 1 if position == before else 1
            if failures > len(_DELAYS_S):
                raise ImagingError("network", f"{url}", expected=f"{size} bytes", actual=f"{said}")
            say(f"{url}: {said}; again")
            self._sleep(_DELAYS_S[failures - 1])
        if position > size:
            raise ImagingError("image-hash", f"{url}", expected=f"{size} bytes", actual="more")

    def _pieces(self, url: str, position: int) -> Iterator[bytes]:
        with self._open("GET", url, start=position) as answer:
            if position and answer.status != HTTPStatus.PARTIAL_CONTENT:
                raise ImagingError("network", f"{url}", expected="206 for a range", actual=f"{answer.status}")
            while piece := answer.read(CHUNK):
                yield piece

    def _open(self, method: str, url: str, data: bytes | None = None, start: int = 0) -> HTTPResponse:
        headers = {"Authorization": f"Bearer {self._options.token}"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        if start:
            headers["Range"] = f"bytes={start}-"
        request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310 - https by parse
        answer: HTTPResponse = self._opener.open(request, timeout=_TIMEOUT_S)
        return answer

    def _again(self, ask: Callable[[], bytes], url: str, delays: tuple[float, ...] = _DELAYS_S) -> bytes:
        said = ""
        for delay in (*delays, None):
            try:
                return ask()
            except (OSError, HTTPException) as error:
                _raise_if_final(error, url)
                said = str(error) or type(error).__name__
            if delay is not None:
                say(f"{url}: {said}; again in {delay:.0f} s")
                self._sleep(delay)
        raise ImagingError("network", f"{url}", expected="an answer", actual=f"{said}")


def _body(answer: HTTPResponse) -> bytes:
    with answer:
        return answer.read()


def _raise_if_final(error: Exception, url: str) -> None:
    if isinstance(error, urllib.error.HTTPError) and error.code in _FINAL:
        raise ImagingError("network", f"{url}", expected="200", actual=f"{error.code} {error.reason}") from error
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        raise ImagingError(
            "authority", f"{url}", expected="a certificate of the pinned authority", actual=f"{reason}"
        ) from error
