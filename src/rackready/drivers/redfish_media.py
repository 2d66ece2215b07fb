"""Virtual media of one BMC: an image that the machine sees as a CD."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import sushy
from sushy import exceptions as faults
from sushy.resources.manager.virtual_media import VirtualMedia

from rackready.drivers.redfish_errors import BmcError

if TYPE_CHECKING:
    from rackready.drivers.redfish import Bmc

_DISCS = (sushy.VirtualMediaType.CD, sushy.VirtualMediaType.DVD)


def insert(bmc: Bmc, image: str, *, ours: str = "") -> None:
    """Insert the image at a URL into the first free CD slot that takes it. Raises BmcError when none does.

    An image of somebody else stays where it is. An image that is inserted already is left so, unless the BMC shows an
    ejected one for a while (quirk): then it is ejected and inserted, or the machine would boot with nothing mounted.
    ``ours``: beginning of the URLs of older images, which are ejected first.
    """
    slots = list(_slots(bmc))
    keeps = bmc.quirks().has("eject-keeps-inserted")
    if not keeps and any(slot.inserted and slot.image == image for slot in slots):
        return
    if ours:
        eject(bmc, ours)
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
        bmc.ask(partial(slot.refresh, force=True))
        if slot.inserted and slot.image == image:
            return
        refused.append(f"{slot.identity} accepted and ignored it")
    raise BmcError(
        bmc.where,
        f"virtual media {image}",
        expected="a CD slot that takes it",
        actual="; ".join(refused) or "no CD slot",
        next_step="Eject what is inserted, check the BMC's licence for virtual media, or choose another "
        "provisioning.boot.",
    )


def eject(bmc: Bmc, ours: str) -> None:
    """Eject every image whose URL begins with ``ours``; others stay. Raises BmcError where one stays.

    No running system may use it: some BMCs corrupt what a system has loaded from it.
    """
    keeps = bmc.quirks().has("eject-keeps-inserted")
    for slot in _slots(bmc):
        image = str(slot.image or "")
        if not image.startswith(ours):
            continue
        bmc.insist(slot.eject_media)
        bmc.ask(partial(slot.refresh, force=True))
        if slot.inserted and slot.image == image and not keeps:
            raise BmcError(
                bmc.where,
                f"virtual media {slot.identity}",
                expected="ejected",
                actual=f"accepted and ignored: it holds {image}",
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
