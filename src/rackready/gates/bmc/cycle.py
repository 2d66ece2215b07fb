"""Cycling a node's power, recorded in the ledger so that a run can recover from a killed one.

A node that a killed run left off gets its outlets and its power back before anything else. The new run starts its
cycles from the first: the inventories between them are lost, so the earlier cycles measured nothing (docs/adr/0009).
Right before the power goes off, the scheduler is asked: a node on which jobs run or may start is never touched.

An AC cycle uses the outlets of PDUs where the site names those that feed the node, or else the BMC (FullPowerCycle, or
the action of its vendor).
Outlets go off only after the node is off, one at a time: before the next one goes off, a power supply of the node must
have lost its input to the previous one. Where the BMC does not report that, and for the last outlet, only the BMC's
silence shows that the outlets are the node's own. Whatever goes wrong, the outlets are switched on again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rackready.drivers.redfish import Bmc, PowerAction
from rackready.drivers.redfish_errors import BmcError, BmcLoginError, BmcUnreachableError
from rackready.drivers.redfish_mains import AcCycle, ac_cycle
from rackready.gates.bmc.mains import Feeds, Mains
from rackready.gates.bmc.watch import watch
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError, quoted
from rackready.model.serials import SerialKind
from rackready.model.site import Bmc as BmcSite

T = TypeVar("T")

FORMAT = "rackready/power-cycle/v1"
OPERATION = "power-cycle"
KINDS = ("auto", "ac", "cold", "warm")
_REST_S = 10.0
"""How long the power stays off, s: capacitors discharge, and the BMC notices. Our choice: vendors ask for 10 to 30 s
by hand."""
_AC_S = 900.0
"""How long a BMC that lost its own power may be away, s. Our choice: such BMCs take 2 to 5 minutes to boot."""
_SILENT_S = 60.0
"""How long a BMC may still answer after its mains is off, s. Our choice: supplies hold for tens of milliseconds; the
rest allows for other delays."""
_GONE_S = 180.0
"""How long a BMC may still answer after it was asked to cut its own mains, s. Our choice."""
_AGAIN_S = 5.0
_LOGIN_S = 60.0
"""Time before the second login after a refused one, s. A BMC that boots may answer before its accounts are loaded.
Our choice."""


@dataclass(frozen=True, slots=True)
class Way:
    """The kind of one cycle, and for AC who switches the power: ``pdu`` or ``bmc``, which does it by ``cut``."""

    kind: str
    by: str = ""
    cut: AcCycle | None = None

    def fields(self) -> dict[str, str]:
        """Return the fields for evidence."""
        return {"kind": self.kind, **({"by": self.by} if self.by else {})}

    def __str__(self) -> str:
        """Return the text for messages."""
        return called(self.fields())


def called(fields: Mapping[str, Any]) -> str:
    """Return the name of a cycle's kind for messages: cold, ac by pdu."""
    return str(fields.get("kind")) + (f" by {fields['by']}" if fields.get("by") else "")


@dataclass(frozen=True, slots=True)
class Cycler:
    """Cycles power.

    ``refuse`` returns why a node may not lose its power now, or an empty text. ``serial`` returns the node's serial,
    ``kind`` which number that is.
    """

    ledger: Ledger
    campaign: str
    refuse: Callable[[str], str]
    serial: Callable[[str], str | None]
    rest_s: float = _REST_S
    feeds: Feeds = field(default_factory=Feeds)
    kind: Callable[[str], SerialKind] = lambda _node: "any"

    def cycle(self, node: str, site: BmcSite, kind: str, number: str, *, proceed: Callable[[], None]) -> dict[str, Any]:
        """Do one cycle and return its record.

        Raises RackreadyError. The cycle then stays open in the ledger, unless it was undone.
        """
        if kind not in KINDS:
            raise RackreadyError(node, "power cycle", expected=f"one of {', '.join(KINDS)}", actual=kind)
        self._require_allowed(node)
        begun = time.monotonic()
        with Bmc(node, site) as bmc:
            serial = self._serial(node)
            given_back = self._close_interrupted(node, bmc, serial)
            bmc.require(serial, self.kind(node))
            mains = self.feeds.mains(node)
            way = _choose_way(bmc, kind, int(number), mains)
            result = run_effect(
                self.ledger,
                node,
                OPERATION,
                f"{self.campaign}/{number}/{way.kind}/{time.time_ns()}",
                before=lambda: self._ready(node, bmc, way, mains, proceed, given_back=given_back),
                observe=lambda _stored: Observation.NOT_HAPPENED,
                act=lambda token: self._act(node, bmc, way, mains, token),
            )
        return {
            "format": FORMAT,
            **way.fields(),
            "number": int(number),
            "result": result.outcome,
            **result.result,
            "seconds": round(time.monotonic() - begun, 1),
            "complete": True,
        }

    def give_back(self, node: str, site: BmcSite) -> bool:
        """Restore the power that a killed run took from a node; return False when none did. Raises RackreadyError."""
        with Bmc(node, site) as bmc:
            return self._close_interrupted(node, bmc, self._serial(node))

    def _serial(self, node: str) -> str:
        serial = self.serial(node)
        if serial is None:
            raise RackreadyError(
                node,
                "power cycle",
                expected="its serial in the site file",
                actual="none",
                next_step="Add it, then run the gate again; nothing was done to the node.",
            )
        return serial

    def _require_allowed(self, node: str) -> None:
        why = self.refuse(node)
        if why:
            raise RackreadyError(
                node,
                "power cycle",
                expected="a node on which no jobs run or may start",
                actual=quoted(why),
                next_step="Nothing was done to it: drain it first.",
            )

    def _close_interrupted(self, node: str, bmc: Bmc, serial: str) -> bool:
        """Close what a killed run left open: switch on its outlets, then the node.

        The cycle itself is not repeated under its number.
        """
        last = self.ledger.latest(node, OPERATION)
        if last is None or last.status != "intent":
            return False
        outlets = last.observed.get("outlets") or []
        if outlets:
            self.feeds.left_off(node, outlets).on()
            _ask_until_answered(bmc, bmc.observe)
        bmc.require(serial, self.kind(node))
        if bmc.observe() != "On":
            bmc.power(PowerAction.ON)
        self.ledger.done(last.token, {"interrupted": True, "power": bmc.observe()})
        return True

    def _ready(
        self, node: str, bmc: Bmc, way: Way, mains: Mains, proceed: Callable[[], None], *, given_back: bool
    ) -> dict[str, Any]:
        """Return what a later run must know if this cycle stays unfinished.

        This is the last check before the power goes off. The run may have waited for others until here, so a job may
        have started or a stop may have been requested. Raises BmcError, with nothing done, when an outlet is not on or
        a supply has no input.
        """
        proceed()
        stored: dict[str, Any] = {"power": bmc.observe(), **way.fields()}
        if way.by == "pdu":
            mains.require_on()
            stored["outlets"] = mains.stored()
            if len(mains.outlets) > 1 and (found := watch(node, bmc, mains.names, given_back=given_back)) is not None:
                found.ready()
                mains.watch = found
        self._require_allowed(node)
        return stored

    def _act(self, node: str, bmc: Bmc, way: Way, mains: Mains, token: int) -> dict[str, Any]:
        self.ledger.event(self.campaign, node, "validate", f"power cycle ({way}) begins", level="warn")
        if way.kind == "warm":
            return {"states": [bmc.power(PowerAction.RESET)]}
        if way.by == "pdu":
            return self._by_pdu(node, bmc, mains, token)
        if way.cut is not None:
            return {"states": [*_by_bmc(bmc, way.cut), _power_on_again(bmc)]}
        off = bmc.power(PowerAction.OFF)
        time.sleep(self.rest_s)
        return {"states": [off, bmc.power(PowerAction.ON)]}

    def _by_pdu(self, node: str, bmc: Bmc, mains: Mains, token: int) -> dict[str, Any]:
        """Switch off node and outlets, check that the BMC lost its power, then switch all on in reverse order."""
        try:
            off = bmc.power(PowerAction.OFF)
            mains.require_on()
            unseen = self._why_only_silence(node, mains)
            mains.off()
            _wait_for_silence(node, bmc, mains)
            time.sleep(self.rest_s)
            mains.on()
        except Exception as error:
            raise self._undo(bmc, mains, token, error) from error
        states = [off, "outlets off", "BMC silent", "outlets on", _power_on_again(bmc)]
        proof = (
            {"by": "silence", "why": unseen}
            if mains.watch is None
            else {"by": "inputs", "took": mains.watch.took, "back": mains.watch.back()}
        )
        return {"states": states, "outlets": mains.names, "proof": proof}

    def _why_only_silence(self, node: str, mains: Mains) -> str:
        """Return, and log, why only silence can show that the outlets are the node's own.

        Empty where its supplies can show it. Raises BmcError when a supply has no input.
        """
        why = (
            "its BMC does not report whether its power supplies have input"
            if len(mains.outlets) > 1
            else "it has one outlet"
        )
        if mains.watch is not None:
            if mains.watch.ready():
                return ""
            mains.watch = None
            why = "its BMC reports only while the node is on whether its power supplies have input"
        self.ledger.event(
            self.campaign,
            node,
            "validate",
            f"only the silence of its BMC will show that {', '.join(mains.names)} feed it: {why}",
            level="warn",
        )
        return why

    def _undo(self, bmc: Bmc, mains: Mains, token: int, error: Exception) -> RackreadyError:
        """Switch on what was switched off, and return the error to raise.

        Once undone, the ledger leaves nothing for a later run to switch.
        """
        switched = bool(mains.asked)
        try:
            _switch_on_again(bmc, mains)
        except Exception as worse:  # noqa: BLE001 - whatever it is, the operator must know that the node may be dark
            return _also(
                error,
                f"It could not be undone: {worse} Bring outlets and node to On by hand, or run the gate again: it "
                "tries to undo it.",
            )
        self.ledger.failed(token, f"undone: {error}")
        what = "its outlets and the node are" if switched else "no outlet was switched, the node is"
        return _also(error, f"Undone: {what} on again.")


def _also(error: Exception, more: str) -> RackreadyError:
    """Return the error with a further sentence."""
    if not isinstance(error, RackreadyError):
        return RackreadyError(what=error, next_step=more)
    return RackreadyError.of(message.then(more) for message in error.messages)


def _switch_on_again(bmc: Bmc, mains: Mains) -> None:
    """Switch outlets and node on.

    A PDU whose answer was lost may still switch off late, before or after the node came on. Then everything is switched
    on once more.
    """
    mains.on()
    try:
        _power_on_again(bmc)
    except BmcError:
        if mains.all_on():
            raise
    if not mains.all_on():
        mains.on()
        _power_on_again(bmc)


def _choose_way(bmc: Bmc, kind: str, number: int, mains: Mains) -> Way:
    """Return how to do a cycle. ``auto``: AC where outlets are named or the BMC can, or else cold and warm in turn."""
    if kind in {"auto", "ac"}:
        if mains.outlets:
            return Way("ac", "pdu")
        if (cut := ac_cycle(bmc)) is not None:
            return Way("ac", "bmc", cut)
    if kind == "ac":
        raise BmcError(
            bmc.where,
            "AC power cycle",
            expected="outlets of the node in the site file, reset type FullPowerCycle, or a known action of the vendor",
            actual="none of them",
            next_step="Choose kind auto, cold or warm.",
        )
    return Way(kind) if kind != "auto" else Way("cold" if number % 2 else "warm")


def _by_bmc(bmc: Bmc, cut: AcCycle) -> list[str]:
    """Let a BMC cut the mains, and return the states seen. Raises BmcError when it refuses, or cuts nothing.

    A vendor's action wants the host off, and takes a while until it cuts the BMC: a host that is powered on before that
    would lose its power again.
    """
    if not cut.host_off:
        cut.ask(bmc)
        return ["AC off and on"]
    off = bmc.power(PowerAction.OFF)
    try:
        cut.ask(bmc)
        seen = _went(bmc)
    except BmcError:  # nothing was cut
        bmc.power(PowerAction.ON)
        raise
    return [off, "AC off and on", seen]


def _went(bmc: Bmc) -> str:
    """Wait until a BMC that cuts its own mains stops answering. Raises BmcError when it never does."""
    deadline = time.monotonic() + _GONE_S
    while time.monotonic() < deadline:
        with suppress(BmcError):  # its services end one by one
            try:
                bmc.observe()
            except BmcUnreachableError:
                return "BMC silent"
            except BmcLoginError:  # it may be back already, without its accounts: BMCs lock them after more logins
                return "BMC refused a login"
        time.sleep(1.0)
    step = "Name the node's outlets in the site file, or choose kind cold. The host is powered on again."
    gone, seen = f"no answer within {_GONE_S:.0f} s: it cuts its own mains", "answered all the time: nothing was cut"
    raise BmcError(bmc.where, "AC power cycle by the BMC", expected=gone, actual=seen, next_step=step)


def _wait_for_silence(node: str, bmc: Bmc, mains: Mains) -> None:
    """Wait until a BMC whose mains was switched off stops answering.

    Raises BmcError when it keeps answering: then the outlets feed other machines.
    """
    deadline = time.monotonic() + _SILENT_S
    while True:
        try:
            said = f"power {bmc.observe()}"
        except BmcUnreachableError:
            return
        except BmcLoginError:
            raise  # the BMC answers; do not log in again: BMCs lock accounts
        except BmcError as error:
            said = str(error)
        if time.monotonic() > deadline:
            which = f"They do not all feed {node}, or another outlet feeds it, too"
            if mains.watch is not None:
                which = f"The others were seen to feed {node}; {mains.names[-1]} was not"
            raise BmcError(
                bmc.where,
                f"power cycle by {', '.join(mains.names)}",
                expected="a BMC without power, since these are off",
                actual=f"after {_SILENT_S:.0f} s it still answers ({said})",
                next_step=f"{which}. Check what is plugged in there, and correct the outlets of {node} in the site "
                "file.",
            )
        time.sleep(1.0)


def _power_on_again(bmc: Bmc) -> str:
    """Wait for a BMC that lost its own power, and switch the machine on if its restore policy left it off."""
    return _ask_until_answered(bmc, lambda: bmc.power(PowerAction.ON))


def _ask_until_answered(bmc: Bmc, ask: Callable[[], T]) -> T:
    """Call ``ask`` until a BMC that boots answers.

    Raises its last BmcError. A refused login is tried only once more, much later, since BMCs lock accounts.
    """
    deadline = time.monotonic() + _AC_S
    refused = False
    while True:
        try:
            time.sleep(_AGAIN_S)
            bmc.forget()
            return ask()
        except BmcLoginError:
            if refused:
                raise
            refused = True
            time.sleep(_LOGIN_S)
        except BmcError:
            if time.monotonic() > deadline:
                raise
