"""Virtual media of one BMC: an image that the machine sees as a CD."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import sushy
from sushy import exceptions as faults
from sushy.resources.manager.virtual_media import VirtualMedia

from rackready.drivers.redfish_errors import BmcError

if TYPE_CHECKING:
    from rackready.drivers.redfish import Bmc

_DISCS = (sushy.VirtualMediaType.CD, sushy.VirtualMediaType.DVD)
_LOOK_S = 5.0
"""Seconds between two looks at a slot. starlingx/distcloud (dccommon/rvmc.py) looks every 10 s after an insertion, and
every 5 s after an ejection."""
_LOOKS = 24
"""Looks after the first: two minutes. Our choice for insertions; rvmc.py waits as long for ejections. BMCs accept the
request before they have fetched the image (ansible-collections/community.general, issue 8279)."""


@dataclass(frozen=True)
class _Wait:
    """Looks at a slot until it shows what was asked of it. ``proceed`` is called in between and may raise to stop."""

    bmc: Bmc
    proceed: Callable[[], None]
    pause: Callable[[float], None]

    def until(self, slot: VirtualMedia, image: str, *, inserted: bool) -> bool:
        """Return whether the slot comes to hold the image, or to hold it no more."""
        for left in reversed(range(_LOOKS + 1)):
            self.bmc.ask(partial(slot.refresh, force=True))
            if (bool(slot.inserted) and slot.image == image) is inserted:
                return True
            if left:
                self.proceed()
                self.pause(_LOOK_S)
        return False


def insert(
    bmc: Bmc,
    image: str,
    *,
    ours: str = "",
    proceed: Callable[[], None] = lambda: None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Insert the image at a URL into the first free CD slot that takes it. Raises BmcError when none does.

    An image of somebody else stays where it is. An image that is inserted already is left so, unless the BMC shows an
    ejected one for a while (quirk): then it is ejected and inserted, or the machine would boot with nothing mounted.
    ``ours``: beginning of the URLs of older images, which are ejected first. A BMC has two minutes to show what it
    accepted; ``proceed`` is called while waiting and may raise to stop.
    """
    slots = list(_slots(bmc))
    keeps = bmc.quirks().has("eject-keeps-inserted")
    if not keeps and any(slot.inserted and slot.image == image for slot in slots):
        return
    if ours:
        eject(bmc, ours, proceed=proceed, pause=pause)
        slots = list(_slots(bmc))
    refused = []
    for slot in slots:
        shown = str(slot.image or "")
        if slot.inserted and not (keeps and (shown in {"", image} or (ours and shown.startswith(ours)))):
            refused.append(f"{slot.identity} holds {slot.image}")
            continue
        try:
            if slot.inserted:
                slot.eject_media()
            slot.insert_media(image)
        except (faults.SushyError, AttributeError) as error:  # sushy reads a detail that some refusals lack
            refused.append(f"{slot.identity}: {error}")
            continue
        if _Wait(bmc, proceed, pause).until(slot, image, inserted=True):
            return
        refused.append(f"{slot.identity} accepted it and did not show it within {_LOOK_S * _LOOKS:.0f} s")
    raise BmcError(
        bmc.where,
        f"virtual media {image}",
        expected="a CD slot that takes it",
        actual="; ".join(refused) or "no CD slot",
        next_step="Eject what is inserted, check the BMC's licence for virtual media, or choose another "
        "provisioning.boot.",
    )


def eject(
    bmc: Bmc,
    ours: str,
    *,
    proceed: Callable[[], None] = lambda: None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Eject every image whose URL begins with ``ours``; others stay. Raises BmcError where one stays for two minutes.

    ``proceed`` is called while waiting and may raise to stop. No running system may use it: some BMCs corrupt what a
    system has loaded from it.
    """
    keeps = bmc.quirks().has("eject-keeps-inserted")
    for slot in _slots(bmc):
        image = str(slot.image or "")
        if not image.startswith(ours):
            continue
        bmc.insist(slot.eject_media)
        if not keeps and not _Wait(bmc, proceed, pause).until(slot, image, inserted=False):
            raise BmcError(
                bmc.where,
                f"virtual media {slot.identity}",
                expected="ejected",
                actual=f"accepted, and it held {image} for {_LOOK_S * _LOOKS:.0f} s more",
                next_step="Eject it at the BMC's console, then run again.",
            )


def _slots(bmc: Bmc) -> Iterator[VirtualMedia]:
    """Yield the CD slots: of the system where it has virtual media, else of its managers (before Redfish 2021.1)."""
    system = bmc.ask(bmc.system)
    owners = [system] if "VirtualMedia" in (system.json or {}) else bmc.ask(lambda: system.managers)
    for owner in owners:
        if "VirtualMedia" not in (owner.json or {}):
            continue
        for slot in bmc.ask(partial(_members, owner)):
            if any(kind in slot.media_types for kind in _DISCS):
                yield slot


def _members(owner: Any) -> list[VirtualMedia]:  # noqa: ANN401 - a system or a manager of sushy
    return list(owner.virtual_media.get_members())
