"""HTTP with the controller: bounded in size and time, whole files or none."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import IO, TypeVar

from .problem import PullProblem

_STEP = "On the controller, look whether `rackready release serve` runs and its port is open to this node."
_CHUNK = 1 << 20
_TRIES_S, _LONGEST_PAUSE_S, _OUTAGES = 120.0, 15.0, 3
"""How long a transfer is tried again from its failure on, the longest pause, and how many failures of one that lasted
longer than a minute begin that time anew. Our choice: a restart of the server or its machine's network is over by then,
and what failed ends an order."""
_READ_S, _PATIENCE_S = 30.0, 60.0
_REFUSED = frozenset({400, 403, 404, 405, 411, 413})
"""Answers to a report that is wrong in itself: sending it again would not help."""
_SLOWEST = 100_000
"""Bytes a second: a transfer that is slower than this and lasts longer than a minute is ended."""
Result = TypeVar("Result")
_FAULTS = (OSError, http.client.HTTPException, ValueError)
"""What urllib raises: urllib.error.URLError is an OSError."""


def get(url: str, node: str, largest: int) -> bytes | None:
    """Return what is at an address, None where the server has nothing. Raises PullProblem."""
    return _tried(lambda: _got(url, node, largest))


class _PassingProblem(PullProblem):
    """No whole answer: another try may get one."""


def _tried(do: Callable[[], Result]) -> Result:
    """Return what a transfer returns; try again where there was no answer, or a broken one.

    The pauses differ from node to node: a server that comes back is not asked by all of them at once.
    """
    until, pause_s, outages = 0.0, 1.0, 0
    while True:
        began = time.monotonic()
        try:
            return do()
        except _PassingProblem:
            now = time.monotonic()
            if not outages or (now - began > _PATIENCE_S and outages < _OUTAGES):  # it came along until just now
                until, pause_s, outages = now + _TRIES_S, 1.0, outages + 1
            wait_s = pause_s * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
            if now + wait_s > until:
                raise
        time.sleep(wait_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """End what is at work after that time by a TimeoutError: a time-out of a socket begins anew with each byte."""

    def over(_number: int, _frame: object) -> None:
        raise TimeoutError(f"no whole answer within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _time_for(size: int) -> float:
    return _PATIENCE_S + size / _SLOWEST


def _got(url: str, node: str, largest: int) -> bytes | None:
    try:
        with _within(_time_for(largest)), _open(url) as answer:
            data: bytes = answer.read(largest + 1)
            promised = _promised(answer)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.NOT_FOUND:
            return None
        raise _answered(url, node, error.code) from error
    except _FAULTS as error:
        raise _unreachable(url, node, _words(error)) from error
    if len(data) > largest:
        raise PullProblem("too-large", f"{node}: {url}", f"at most {largest} bytes", "more", _STEP)
    _check_whole(url, node, len(data), promised)
    return data


def _promised(answer: http.client.HTTPResponse) -> int:
    """Return how many bytes the server said that its answer has, 0 where it does not say."""
    said = answer.headers.get("Content-Length", "")
    return int(said) if said.isdecimal() else 0


def _check_whole(url: str, node: str, count: int, promised: int) -> None:
    """Check that the connection did not end before the answer: http.client takes such an answer for a short one."""
    if count < promised:
        raise _unreachable(url, node, f"the connection ended after {count} of {promised} bytes")


def clock_offset_s(url: str, node: str) -> int:
    """Return by how many seconds the server's clock is ahead of this node's (header Date, whole seconds).

    Roles compare the two clocks, and here both would be the node's. Raises PullProblem where the server tells no time.
    """
    return _tried(lambda: _offset(url, node))


def _offset(url: str, node: str) -> int:
    try:
        with _within(_PATIENCE_S), _open(f"{url}/health") as answer:
            said = answer.headers.get("Date", "")
    except urllib.error.HTTPError as error:  # a plain web server has no such page, and tells its time all the same
        said = error.headers.get("Date", "")
    except _FAULTS as error:
        raise _unreachable(url, node, _words(error)) from error
    now = time.time()
    try:
        return round(parsedate_to_datetime(said).timestamp() - now)
    except (TypeError, ValueError) as error:
        step = "Serve the releases with `rackready release serve`, or a web server that sends its time."
        raise PullProblem("clock", f"{node}: {url}", "the time of the server (Date)", said or "none", step) from error


def get_object(url: str, node: str, sha256: str, size: int, target: Path) -> None:
    """Fetch one object into a file: whole, of the stated size and hash, or not at all. Raises PullProblem, OSError."""
    where, part = f"{node}: object {sha256[:12]}", target.with_name(f".{target.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            found, count = _tried(lambda: _copied(f"{url}/objects/sha256/{sha256}", node, size, out))
            out.flush()
            os.fsync(out.fileno())
        if count != size or found != sha256:
            said = f"more than {size} bytes" if count > size else f"{count} bytes, SHA-256 {found[:12]}"
            step = "Run the phase again on the controller: it writes the release again."
            raise PullProblem("object-damaged", where, f"{size} bytes, SHA-256 {sha256[:12]}", said, step)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _copied(url: str, node: str, size: int, out: IO[bytes]) -> tuple[str, int]:
    """Copy an answer, one byte more than it may have at most; return hash and count."""
    digest, count, began = hashlib.sha256(), 0, time.monotonic()
    out.seek(0)
    out.truncate()
    try:
        with _within(_time_for(size)), _open(url) as answer:
            promised = _promised(answer)
            while count <= size:
                data = answer.read1(min(_CHUNK, size + 1 - count))  # read() would wait for the whole chunk
                if not data:
                    break
                _check_pace(url, node, count, time.monotonic() - began)
                digest.update(data)
                count += len(data)
                _write(out, data)
    except urllib.error.HTTPError as error:
        raise _answered(url, node, error.code) from error
    except _DiskError as error:
        raise error.error from None
    except _FAULTS as error:
        raise _unreachable(url, node, _words(error)) from error
    _check_whole(url, node, count, min(promised, size))
    return digest.hexdigest(), count


class _DiskError(Exception):
    """A fault of the disk, which must not be taken for one of the network."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _write(out: IO[bytes], data: bytes) -> None:
    try:
        out.write(data)
    except OSError as error:
        raise _DiskError(error) from error


def _check_pace(url: str, node: str, count: int, seconds: float) -> None:
    if seconds > _PATIENCE_S and count < seconds * _SLOWEST:
        raise _unreachable(url, node, f"{count} bytes in {seconds:.0f} s")


def put(url: str, node: str, body: bytes) -> None:
    """Send a report. Raises PullProblem with the server's words."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=body, method="PUT", headers=headers)  # noqa: S310 - _open speaks http alone
    try:
        with _within(_time_for(len(body))), _open(request) as answer:
            answer.read(4096)
    except urllib.error.HTTPError as error:
        said = error.read(2000).decode(errors="replace").strip() or f"HTTP {error.code}"
        code = "report-refused" if error.code in _REFUSED else "unreachable"
        raise PullProblem(
            code, f"{node}: {url}", "the report is accepted", f"HTTP {error.code}: {said}", _STEP
        ) from error
    except _FAULTS as error:
        raise _unreachable(url, node, _words(error)) from error


def _open(request: str | urllib.request.Request) -> http.client.HTTPResponse:
    """Open an address without a proxy, which could be none of the node's own, and without following elsewhere."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    answer: http.client.HTTPResponse = opener.open(request, timeout=_READ_S)
    return answer


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        """Follow nothing: the answer of the named server counts."""


def _words(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return f"{reason}" or type(error).__name__


def _unreachable(url: str, node: str, said: str) -> PullProblem:
    return _PassingProblem("unreachable", f"{node}: {url}", "an answer of the controller", said, _STEP)


def _answered(url: str, node: str, status: int) -> PullProblem:
    """Return the problem of an answer that is none of what was asked for. One below 500 is the same the next time."""
    kind = PullProblem if status < http.HTTPStatus.INTERNAL_SERVER_ERROR else _PassingProblem
    return kind("unreachable", f"{node}: {url}", "an answer of the controller", f"HTTP {status}", _STEP)
