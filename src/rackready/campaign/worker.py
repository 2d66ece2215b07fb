"""A worker: takes batches of the present campaign from the queue, one at a time, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rackready import __version__
from rackready.campaign.abi import CAMPAIGN_ABI
from rackready.campaign.work_batch import GIVEN_BACK
from rackready.design.names import listed
from rackready.design.pinned import digest, pin, pinned_file, read_pinned
from rackready.design.secrets import reveal
from rackready.design.site import load_site
from rackready.drivers.marked_processes import VARIABLE, claim_mark, end_all, marked, project_mark
from rackready.drivers.process import gone, session_members
from rackready.drivers.ssh.target import read_private_key
from rackready.drivers.stop_flag import StopFlag
from rackready.ledger.error import ControllerBusyError
from rackready.ledger.node_sets import refresh
from rackready.ledger.postgres_lock import LEASE
from rackready.ledger.store import Ledger, LedgerError
from rackready.ledger.work import Claim, Offer, WorkQueue, fits
from rackready.ledger.work_tables import CLAIM
from rackready.ledger.work_workers import Roll
from rackready.model.database import WorkerUse
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir

BATCH = (sys.executable, "-m", "rackready.campaign.work_batch")
"""The command of a batch's process."""

Tell = Callable[..., None]
"""Takes a kind of event, its text, and what else it has."""

_POLL_S = 0.5
_AWAY_S = 2.0
"""How long it waits while the database does not answer."""
_BEATS = 6
_SAFE = 0.8
"""Part of a lease after which the worker ends a batch of which it does not know that it still has it."""
_AGAIN_S = 10.0
"""How often the files of a site that is not the campaign's are read again, and the rest after a batch that died."""


@dataclass
class _Held:
    """What is known of a claim while its batch runs. ``sure``: when it was surely held."""

    sure: float = field(default_factory=time.monotonic)
    over: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)


@dataclass
class Worker:
    """One worker process."""

    paths: EnvPaths
    name: str
    labels: Mapping[str, str]
    tell: Tell
    stop: StopFlag
    """Give the batch back, and end."""
    kill: StopFlag
    """End the batch's processes at once."""
    command: Sequence[str] = BATCH
    _sites: set[str] = field(default_factory=set)
    _tried: dict[str, float] = field(default_factory=dict)
    _refuses: str = ""
    _found: str = "not read yet"
    _lacks: str = ""
    """Why it could not log in to nodes of the site; it would fail every batch that it takes."""
    _beat_at: float = 0.0
    _rests_until: float = 0.0
    """A worker whose batch died takes none for a while: the fault may be its own, and another worker can try."""
    _tidied_at: float = 0.0

    def run(self) -> None:
        """Take batches until it is stopped. Raises RackreadyError: no workers in this environment, a name in use."""
        use = self._use()
        private_dir(self.paths.state)
        with Ledger.open(self.paths.database) as ledger:
            queue, roll = WorkQueue.open(ledger, use), Roll(ledger, self.name, use.lease_s)
            roll.sign_on(__version__, CAMPAIGN_ABI, self.labels)
            self.tell("ready", f"waits for batches of {', '.join(use.phases)}", labels=dict(self.labels))
            away = False
            while not self.stop.is_set():
                try:
                    self._once(queue, roll)
                    if away:
                        self.tell("database", "answers again")
                    away = False
                except LedgerError as error:
                    if not away:
                        self.tell("database", f"does not answer, is asked again: {error}")
                    away = True
                    self.stop.wait(_AWAY_S)
            with suppress(LedgerError):
                queue.children_ended(gone(queue.open_children()))
                roll.sign_off()
            self.tell("stopped", "takes no more batches")

    def _use(self) -> WorkerUse:
        with Ledger.open(self.paths.database) as ledger:
            use = ledger.backend.workers
        if use is not None:
            return use
        settings = self.paths.database.settings
        raise RackreadyError(
            settings,
            "no workers are used",
            expected="workers, with a PostgreSQL server",
            actual="no such key" if settings.exists() else "no such file: the records are in a SQLite file",
            next_step="Write it as in docs/howto/workers.md.",
        )

    def _once(self, queue: WorkQueue, roll: Roll) -> None:
        self._beat(queue, roll)
        self._tidy(queue)
        offers = queue.offers()
        self._look_at(offers)
        queue.sweep()
        able = time.monotonic() >= self._rests_until and any(self._able(offer) for offer in offers)
        sites = frozenset(self._sites)
        claim = queue.claim(self.name, self.labels, sites, __version__, CAMPAIGN_ABI) if able else None
        if claim is None:
            self.stop.wait(_POLL_S)
        else:
            self._work(queue, roll, claim)

    def _able(self, offer: Offer) -> bool:
        return not self._why_not(offer) and fits(offer, self.labels)

    def _beat(self, queue: WorkQueue, roll: Roll) -> None:
        if time.monotonic() - self._beat_at > queue.use.lease_s / _BEATS:
            roll.beat(self._refuses)
            self._beat_at = time.monotonic()

    def _tidy(self, queue: WorkQueue) -> None:
        """Record the end of what killed batches had started here. Until then a controller that stops waits for it."""
        if time.monotonic() - self._tidied_at > queue.use.lease_s / _BEATS:
            queue.children_ended(gone(queue.open_children()))
            self._tidied_at = time.monotonic()

    def _look_at(self, offers: Sequence[Offer]) -> None:
        """Compare version and site with what the batches need, and tell once why they are refused."""
        why = ""
        for offer in offers:
            if offer.site not in self._sites:
                self._find_site(offer)
            why = why or self._why_not(offer)
        if why != self._refuses:
            self._refuses = why
            self._beat_at = 0.0
            if why:
                self.tell("refuses", why)

    def _why_not(self, offer: Offer) -> str:
        if (offer.version, offer.abi) != (__version__, CAMPAIGN_ABI):
            return (
                f"version of campaign {offer.campaign} - Expected: rackready {offer.version} (ABI {offer.abi}) "
                f"Actual: {__version__} (ABI {CAMPAIGN_ABI}). Install the controller's version here."
            )
        return "" if offer.site in self._sites else self._lacks or self._other_site(offer)

    def _other_site(self, offer: Offer) -> str:
        return (
            f"site of campaign {offer.campaign} - Expected: SHA-256 {offer.site[:12]} Actual: {self._found}. "
            f"Bring {self.paths.inventory} to the controller's version; the checkout must be at the same path."
        )

    def _find_site(self, offer: Offer) -> None:
        """Have the site of a campaign: a stored one, else that of the files when it is the same."""
        if time.monotonic() < self._tried.get(offer.site, 0.0):
            return
        self._tried[offer.site] = time.monotonic() + _AGAIN_S
        stored = pinned_file(self.paths, offer.site)
        self._lacks = ""
        try:
            if stored.exists():
                self._have(offer.site, read_pinned(stored))
                return
            refresh(self.paths)
            site = load_site(self.paths.env, root=self.paths.root)
            self._found = digest(site)[:12]
            if digest(site) == offer.site:
                pin(self.paths, site)
                self._have(offer.site, site)
        except LedgerError:
            raise
        except (RackreadyError, OSError) as error:
            self._found = f"it cannot be read ({str(error).splitlines()[0].removesuffix('.')})"

    def _have(self, site_digest: str, site: Site) -> None:
        """Take batches of a site from now on, if its logins to nodes can be used here."""
        try:
            read_private_key(f"worker {self.name}", site.access.private_key)
            if site.access.sudo_password is not None:
                reveal(site.access.sudo_password)
        except RackreadyError as error:
            step = "Put it there, as it is on the controller: this worker takes part within 10 s."
            said = [replace(one, next_step=step) if isinstance(one, Message) else one for one in error.messages]
            self._lacks = str(RackreadyError.of(said))
        else:
            self._sites.add(site_digest)

    def _work(self, queue: WorkQueue, roll: Roll, claim: Claim) -> None:
        """Run a batch in a process of its own, and clean up after it."""
        offer = claim.offer
        about = {"campaign": offer.campaign, "phase": offer.phase, "nodes": list(offer.nodes), "token": claim.token}
        self.tell("takes", f"{offer.phase} of {listed(offer.nodes)}", **about)
        mark = claim_mark(project_mark(self.paths.database.file), claim.token)
        child = self._started(claim, mark)

        def end() -> None:
            end_all(lambda: [*session_members(child.pid), *marked(mark)])

        try:
            self._follow(queue, roll, claim, child)
        finally:
            end()
            child.wait()
        how = "given back" if child.returncode == GIVEN_BACK else "died"
        if not queue.release(claim.token, how, blame=how == "died"):
            how = queue.end_of(claim.token)
        elif how == "died":
            self._rests_until = time.monotonic() + _AGAIN_S
        self.tell(how, f"{offer.phase} of {listed(offer.nodes)}", **about)

    def _started(self, claim: Claim, mark: str) -> subprocess.Popen[bytes]:
        job = {
            "root": str(self.paths.root),
            "env": self.paths.env,
            "token": claim.token,
            "request": dict(claim.offer.request),
            "phase": claim.offer.phase,
            "nodes": list(claim.offer.nodes),
            "pins": dict(claim.offer.pins),
        }
        env = os.environ | {LEASE: str(claim.controller), CLAIM: str(claim.token), VARIABLE: mark}
        child = subprocess.Popen(
            self.command, cwd=self.paths.root, env=env, stdin=subprocess.PIPE, stdout=sys.stderr, start_new_session=True
        )
        if child.stdin is not None:
            with suppress(BrokenPipeError):
                child.stdin.write(f"{json.dumps(job)}\n".encode())
                child.stdin.flush()  # it stays open: its end is the end of this worker
        return child

    def _follow(self, queue: WorkQueue, roll: Roll, claim: Claim, child: subprocess.Popen[bytes]) -> None:
        """Wait for the end of the batch's process; return early when the claim is, or may be, over.

        A thread of its own asks the database, which may not answer for longer than a lease: time decides here.
        """
        lease_s, asked = queue.use.lease_s, False
        held = _Held()
        threading.Thread(target=self._ask, args=(queue, roll, claim, held), daemon=True).start()
        try:
            while child.poll() is None:
                if self.stop.is_set() and not asked:
                    asked = True
                    child.send_signal(signal.SIGINT)
                unsure_s = time.monotonic() - held.sure
                if self.kill.is_set() or held.over.is_set() or unsure_s > lease_s * _SAFE:
                    return
                time.sleep(_POLL_S / 5)
        finally:
            held.left.set()

    def _ask(self, queue: WorkQueue, roll: Roll, claim: Claim, held: _Held) -> None:
        """Ask whether the claim is held, again and again, until nobody wants to know."""
        while not held.left.wait(queue.use.lease_s / _BEATS):
            at = time.monotonic()
            try:
                if queue.holds(claim.token):
                    held.sure = at
                else:
                    held.over.set()
                self._beat(queue, roll)
            except (LedgerError, ControllerBusyError):
                pass  # the database is away: time decides; a name that another worker took counts after the batch
