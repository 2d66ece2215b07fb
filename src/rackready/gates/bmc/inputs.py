"""Power supplies in a BMC's answer, and whether each has input.

From DMTF's schemas (DSP0268): LineInputStatus of PowerSupply (Normal, LossOfInput, OutOfRange) and InputVoltage of its
Metrics; in the older Power, LineInputVoltage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rackready.gates.bmc.documents import BmcAnswer, Document, numeric, parts, well

ANY = "Chassis/*"
INPUT_WORDS = frozenset({"Normal", "LossOfInput", "OutOfRange"})
NO_INPUT_V = 20.0
"""Below this there is no input, V. Judgement: supplies of servers begin at 36 V (48 V DC) or 90 V (AC), and an open
input may read a few volts."""
_CAPACITY = "PowerCapacityWatts"
_FIGURES = (_CAPACITY, "PowerInputWatts", "PowerOutputWatts", "LastPowerOutputWatts")
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
    listed = _listed(found, chassis)
    out = _modules(listed, found)
    yield from (item for item in listed if not any(item is module for module in out))


def modules(found: BmcAnswer) -> list[Document]:
    """Return what stands among the supplies and is none: modules with fans in the bays of supplies.

    A Supermicro SYS-821GE lists two (NVIDIA/libredfish c094c9e6, tests/mockups/supermicro, Chassis/1/Power: model
    PWS-DF009-2F, Enabled and OK, every figure null). A dead supply is not taken for one: it has the model of the others
    or reports itself bad.
    """
    return _modules(_listed(found, ANY), found)


def silent(supply: Document, among: Sequence[Document], found: BmcAnswer) -> bool:
    """Return whether a supply reports no capacity, no input and no output, while one of the others has a capacity."""
    shown = _metrics(supply, found)
    read = (_reading(shown, key) for key in ("InputPowerWatts", "OutputPowerWatts"))
    figures = (numeric(supply.get(key)) for key in _FIGURES)
    return (
        any(numeric(item.get(_CAPACITY)) for item in among)
        and fed(supply, found) is None
        and all(value is None for value in (*figures, *read))
    )


def _listed(found: BmcAnswer, chassis: str) -> list[Document]:
    of_newer = list(found.at(newer(chassis)[0]))
    return of_newer or [item for document in found.at(older(chassis)) for item in parts(document, "PowerSupplies")]


def _modules(listed: Sequence[Document], found: BmcAnswer) -> list[Document]:
    models = {_model(item) for item in listed if numeric(item.get(_CAPACITY))}
    return [item for item in listed if _model(item) not in {"", *models} and well(item) and silent(item, listed, found)]


def _model(supply: Document) -> str:
    found = supply.get("Model")
    return found if isinstance(found, str) else ""


def volts(supply: Document, found: BmcAnswer) -> float | None:
    """Return the voltage at a supply's input, V, or None."""
    if (told := numeric(supply.get("LineInputVoltage"))) is not None:
        return told
    return _reading(_metrics(supply, found), "InputVoltage")


def _metrics(supply: Document, found: BmcAnswer) -> Document:
    link = supply.get("Metrics")
    return found.documents.get(str(link.get("@odata.id", "")), {}) if isinstance(link, dict) else {}


def _reading(metrics: Document, key: str) -> float | None:
    shown = metrics.get(key)
    return numeric(shown.get("Reading")) if isinstance(shown, dict) else None


def fed(supply: Document, found: BmcAnswer) -> bool | None:
    """Return whether a supply has input, by what is reported about the input; None where nothing is.

    An input outside its range counts as one.
    """
    word, shown = supply.get("LineInputStatus"), volts(supply, found)
    if word == "LossOfInput" or (shown is not None and shown < NO_INPUT_V):
        return False
    return True if word in INPUT_WORDS or shown is not None else None
