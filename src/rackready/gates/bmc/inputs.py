"""Power supplies in a BMC's answer, and whether each has input.

From DMTF's schemas (DSP0268): LineInputStatus of PowerSupply (Normal, LossOfInput, OutOfRange) and InputVoltage of its
Metrics; in the older Power, LineInputVoltage.
"""

from __future__ import annotations

from collections.abc import Iterator

from rackready.gates.bmc.documents import BmcAnswer, Document, numeric, parts

ANY = "Chassis/*"
INPUT_WORDS = frozenset({"Normal", "LossOfInput", "OutOfRange"})
NO_INPUT_V = 20.0
"""Below this there is no input, V. Judgement: supplies of servers begin at 36 V (48 V DC) or 90 V (AC), and an open
input may read a few volts."""
FEED = "Check its power cord, the PDU outlet and the breaker of that feed; if they are good, replace the supply."


def newer(chassis: str = ANY) -> tuple[str, str]:
    """Return the trails to supplies of the newer schema and to their metrics.

    ``chassis``: trail to the chassis to search.
    """
    return f"{chassis}/PowerSubsystem/PowerSupplies/*", f"{chassis}/PowerSubsystem/PowerSupplies/*/Metrics"


def older(chassis: str = ANY) -> str:
    """Return the trail to the older resource, which lists the supplies itself."""
    return f"{chassis}/Power"


def supplies(found: BmcAnswer, chassis: str = ANY) -> Iterator[Document]:
    """Yield every supply once: those of the newer schema, or without any, those of the older one."""
    of_newer = list(found.at(newer(chassis)[0]))
    yield from of_newer or (item for document in found.at(older(chassis)) for item in parts(document, "PowerSupplies"))


def volts(supply: Document, found: BmcAnswer) -> float | None:
    """Return the voltage at a supply's input, V, or None."""
    if (told := numeric(supply.get("LineInputVoltage"))) is not None:
        return told
    address = str((supply.get("Metrics") or {}).get("@odata.id", "")) if isinstance(supply.get("Metrics"), dict) else ""
    shown = found.documents.get(address, {}).get("InputVoltage")
    return numeric(shown.get("Reading")) if isinstance(shown, dict) else None


def fed(supply: Document, found: BmcAnswer) -> bool | None:
    """Return whether a supply has input, by what is reported about the input; None where nothing is.

    An input outside its range counts as one.
    """
    word, shown = supply.get("LineInputStatus"), volts(supply, found)
    if word == "LossOfInput" or (shown is not None and shown < NO_INPUT_V):
        return False
    return True if word in INPUT_WORDS or shown is not None else None
