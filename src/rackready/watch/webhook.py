"""Posts tickets to the site's webhook, signed, and again until it takes them."""

from __future__ import annotations

import hashlib
import hmac
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

from rackready.design.secrets import reveal
from rackready.model.problems import RackreadyError, quoted
from rackready.model.watch import TicketWebhook
from rackready.watch.store import Fault, WatchStore, faults
from rackready.watch.tickets import TicketDesk, digest, ticket_id

SIGNATURE = "X-Rackready-Signature"
_TIMEOUT_S = 10.0
_LAST = "closed "
"""Begins what is recorded of a closed ticket that was posted: it never changes again, so its file is not read again."""
_FIRST_S, _MOST_S = 10.0, 600.0
"""Pause after a refusal: it doubles up to the second, s. Our judgement."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A ticket goes to the address of the site file and to no other."""

    def redirect_request(self, *_args: object, **_more: object) -> None:
        """Follow nothing: the answer counts as a refusal."""


def post(webhook: TicketWebhook, body: bytes) -> str:
    """Post one document; return why it was not taken, "" when it was."""
    headers = {"Content-Type": "application/json"}
    try:
        if webhook.secret is not None:
            headers[SIGNATURE] = hmac.new(reveal(webhook.secret).encode(), body, hashlib.sha256).hexdigest()
        request = urllib.request.Request(webhook.url, data=body, headers=headers, method="POST")  # noqa: S310 - http or https by the model
        with urllib.request.build_opener(_NoRedirects()).open(request, timeout=_TIMEOUT_S) as answer:
            return "" if 200 <= answer.status < 300 else f"HTTP {answer.status}"  # noqa: PLR2004
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except RackreadyError as error:
        return quoted(str(error))
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


@dataclass
class Outbox:
    """The tickets that the webhook has not taken yet."""

    webhook: TicketWebhook | None
    store: WatchStore
    desk: TicketDesk
    tell: Callable[[str, str, str], None]
    clock: Callable[[], float] = time.monotonic
    _pause_s: float = 0.0
    _next: float = 0.0
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
        """Post what waits, in order, to the first refusal. Return how many tickets still wait."""
        found = self.waiting()
        if self.webhook is None or not found or self.clock() < self._next:
            return len(found)
        for done, (fault, body) in enumerate(found):
            if why := post(self.webhook, body):
                self._refused(why, len(found) - done)
                return len(found) - done
            self.store.put(fault.id, posted=digest(body))
            self.tell("posted", fault.node, f"ticket {ticket_id(fault)} posted")
        self._pause_s, self._next, self._told = 0.0, 0.0, ""
        return 0

    def _refused(self, why: str, left: int) -> None:
        self._pause_s = min(_MOST_S, self._pause_s * 2 or _FIRST_S)
        self._next = self.clock() + self._pause_s
        if why != self._told:
            self._told = why
            self.tell("waits", "", f"{left} tickets wait for the webhook - Expected: HTTP 2xx Actual: {why}")
