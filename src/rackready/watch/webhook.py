"""Posts tickets to the site's webhook, signed, and again until it takes them."""

from __future__ import annotations

import hashlib
import hmac
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException

from rackready.design.secrets import reveal
from rackready.ledger.watch_tables import faults
from rackready.model.problems import RackreadyError, quoted
from rackready.model.watch import TicketWebhook
from rackready.watch.store import Fault, WatchStore
from rackready.watch.tickets import TicketDesk, digest, ticket_id

SIGNATURE = "X-Rackready-Signature"
_TIMEOUT_S = 10.0
_LAST = "closed "
"""Begins what is recorded of a closed ticket that was posted: it never changes again, so its file is not read again."""
_FIRST_S, _MOST_S = 10.0, 600.0
"""Pause after a refusal: it doubles up to the second, s. Our judgement."""
_OF_ALL = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
"""Answers of 4xx that are about the sender or the moment, not about the document (RFC 9110, 15.5; RFC 6585, 4)."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A ticket goes to the address of the site file and to no other."""

    def redirect_request(self, *_args: object, **_more: object) -> None:
        """Follow nothing: the answer counts as a refusal."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a document was not taken. ``code``: of the HTTP answer; 0 without one."""

    why: str
    code: int = 0

    @property
    def of_ticket(self) -> bool:
        """Whether it is about this document alone."""
        return HTTPStatus.BAD_REQUEST <= self.code < HTTPStatus.INTERNAL_SERVER_ERROR and self.code not in _OF_ALL


def post(webhook: TicketWebhook, body: bytes) -> Refusal | None:
    """Post one document; return why it was not taken, None when it was."""
    headers = {"Content-Type": "application/json"}
    try:
        if webhook.secret is not None:
            headers[SIGNATURE] = hmac.new(reveal(webhook.secret).encode(), body, hashlib.sha256).hexdigest()
        request = urllib.request.Request(webhook.url, data=body, headers=headers, method="POST")  # noqa: S310 - http or https by the model
        with urllib.request.build_opener(_NoRedirects()).open(request, timeout=_TIMEOUT_S) as answer:
            taken = HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES
            return None if taken else Refusal(f"HTTP {answer.status}", answer.status)
    except urllib.error.HTTPError as error:
        return Refusal(f"HTTP {error.code}", error.code)
    except RackreadyError as error:
        return Refusal(quoted(str(error)))
    except HTTPException as error:  # an answer that is no HTTP, or ends too early
        return Refusal(f"no answer in HTTP ({type(error).__name__})")
    except (OSError, ValueError) as error:
        return Refusal(str(getattr(error, "reason", error)))


@dataclass
class _Pause:
    """A pause between two tries."""

    ends: float = 0.0
    _length_s: float = 0.0

    def grow(self, now: float) -> None:
        """Begin the next one, twice as long as the one before."""
        self._length_s = min(_MOST_S, self._length_s * 2 or _FIRST_S)
        self.ends = now + self._length_s


@dataclass
class Outbox:
    """The tickets that the webhook has not taken yet."""

    webhook: TicketWebhook | None
    store: WatchStore
    desk: TicketDesk
    tell: Callable[[str, str, str], None]
    clock: Callable[[], float] = time.monotonic
    left: int = 0
    """Tickets that waited at the last delivery."""
    _pause: _Pause = field(default_factory=_Pause)
    _paused: dict[str, _Pause] = field(default_factory=dict)
    """Digest of a ticket that the webhook refuses -> its own pause. A ticket that changed is posted at once."""
    _told: str = field(default="")

    def waiting(self) -> list[tuple[Fault, bytes]]:
        """Return the tickets that differ from what was posted last."""
        if self.webhook is None:
            return []
        found = []
        for fault in self.store.faults(faults.c.ticket != "", faults.c.posted.not_like(f"{_LAST}%")):
            body = self.desk.read(fault)
            if body and digest(body) == fault.posted and fault.ticket == "closed":
                self.store.put(fault.id, posted=f"{_LAST}{fault.posted}")
            elif body and digest(body) != fault.posted:
                found.append((fault, body))
        return found

    def deliver(self) -> int:
        """Post what waits, in order, to the first refusal that is not about one ticket. Return how many still wait.

        A ticket that it refuses for itself waits alone: the others must not wait for it.
        """
        found = [(fault, body, digest(body)) for fault, body in self.waiting()]
        self.left = len(found)
        if self.webhook is None or self.clock() < self._pause.ends:
            return self.left
        self._paused = {name: self._paused[name] for _, _, name in found if name in self._paused}
        for fault, body, name in found:
            if name in self._paused and self.clock() < self._paused[name].ends:
                continue
            refusal = post(self.webhook, body)
            if refusal is not None and not refusal.of_ticket:
                self._refused(refusal.why)
                return self.left
            if refusal is not None:
                self._refused_alone(fault, name, refusal.why)
                continue
            self.store.put(fault.id, posted=name)
            self.left -= 1
            self.tell("posted", fault.node, f"ticket {ticket_id(fault)} posted")
        self._pause, self._told = _Pause(), ""
        return self.left

    def _refused(self, why: str) -> None:
        self._pause.grow(self.clock())
        if why != self._told:
            self._told = why
            self.tell("waits", "", f"{self.left} tickets wait for the webhook - Expected: HTTP 2xx Actual: {why}")

    def _refused_alone(self, fault: Fault, name: str, why: str) -> None:
        if name not in self._paused:
            text = f"ticket {ticket_id(fault)} waits - Expected: HTTP 2xx of the webhook Actual: {why}."
            self.tell("waits", fault.node, f"{text} Find out why it refuses this ticket; the others are posted.")
        self._paused.setdefault(name, _Pause()).grow(self.clock())
