"""Power supplies as a BMC tells them, and whether each has input.

What is used of DMTF's schemas (DSP0268): LineInputStatus of PowerSupply (Normal, LossOfInput, OutOfRange) and
InputVoltage of its Metrics; of the older Power, LineInputVoltage.
"""

from __future__ import annotations

from collections.abc import Iterator

from rackready.gates.bmc.documents import Document, Told, numeric, parts

ANY = "Chassis/*"
INPUT_WORDS = frozenset({"Normal", "LossOfInput", "OutOfRange"})
NO_INPUT_V = 20.0
"""Below this there is no input, V. Judgement: supplies of servers begin at 36 V (48 V DC) or 90 V (AC), and an open input may read a few volts."""
FEED = "Check its power cord, the PDU outlet and the breaker of that feed; if they are good, replace the supply."


def newer(chassis: str = ANY) -> tuple[str, str]:
    """Return the trails to the supplies of the newer schema, and to their metrics. ``chassis``: the trail to those that may have supplies."""
    return f"{chassis}/PowerSubsystem/PowerSupplies/*", f"{chassis}/PowerSubsystem/PowerSupplies/*/Metrics"


def older(chassis: str = ANY) -> str:
    """Return the trail to the older resource, which lists supplies in itself."""
    return f"{chassis}/Power"


def supplies(found: Told, chassis: str = ANY) -> Iterator[Document]:
    """Every supply once: of the newer schema, and only without those of the older one."""
    of_newer = list(found.at(newer(chassis)[0]))
    yield from of_newer or (item for document in found.at(older(chassis)) for item in parts(document, "PowerSupplies"))


def volts(supply: Document, found: Told) -> float | None:
    """Return the voltage at a supply's input, V; None where none is told."""
    if (told := numeric(supply.get("LineInputVoltage"))) is not None:
        return told
    address = str((supply.get("Metrics") or {}).get("@odata.id", "")) if isinstance(supply.get("Metrics"), dict) else ""
    shown = found.documents.get(address, {}).get("InputVoltage")
    return numeric(shown.get("Reading")) if isinstance(shown, dict) else None


def fed(supply: Document, found: Told) -> bool | None:
    """Whether a supply has input, by what is told of the input itself; None where nothing is. An input out of its range is one."""
    word, shown = supply.get("LineInputStatus"), volts(supply, found)
    if word == "LossOfInput" or (shown is not None and shown < NO_INPUT_V):
        return False
    return True if word in INPUT_WORDS or shown is not None else None
