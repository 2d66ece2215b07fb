"""Reader of `mlxlink -d DEVICE -m -c --json` (MFT): link, bit error rates and module of one port.

Values per lane are {"values": [...]} or one text separated by commas. Values that the module monitors are followed by
its limits: "45 [-10..80]".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rackready import printed_json
from rackready.format_error import FormatError

_NUMBER = re.compile(r"^[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$")
_LIMITS = re.compile(r"^(?P<values>.*?)\s*\[(?P<low>[+-]?[\d.]+)\.\.(?P<high>[+-]?[\d.]+)\]$")
_NONE = frozenset({"", "N/A", "NA"})
_WIDTH = re.compile(r"^\d+x$")
_COPPER, _ACTIVE = frozenset({"Passive copper cable", "Twisted Pair"}), "Active cable"
"""Kinds of cables in mlxlink (Mellanox/mstflint, mlxlink): "Active cable (active copper / optics)" may be either."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Values of a module, per lane (temperature: one), with its limits; None without limits ("[0..0]" means none)."""

    values: tuple[float, ...]
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Port:
    """One port. Bit error rates are per received bit; a reading that the tool does not report is None."""

    state: str
    speed: str
    lanes: int | None
    """Width of the link; None if the tool reports none (a link that is down)."""
    fec: str
    raw_ber: float | None
    effective_ber: float | None
    link_downed: int | None
    recommendation: str
    part: str
    serial: str
    firmware: str
    copper: bool
    """The cable is copper, which has no light and mostly no sensor."""
    watches: bool
    """Light, temperature and supply must be reported: always by optics, by an optical cable only with DDM."""
    temperature: Watched | None
    rx_power: Watched | None
    """dBm per lane."""
    tx_power: Watched | None
    voltage: Watched | None
    """Voltage of the module's supply, mV."""
    bias: Watched | None
    """Laser current, mA per lane."""


def parse(text: str) -> Port:
    """Return one port. Raise FormatError: empty, cut off, or the tool's own error."""
    found = printed_json.load(text)
    try:
        status = found["status"]
        if status["code"] != 0:
            raise FormatError(f"mlxlink: status {status['code']}: {status['message']}")
        return _port(found["result"]["output"])
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"mlxlink without {error}") from error


def _port(output: dict[str, Any]) -> Port:
    link, counters, module = output["Operational Info"], output["Physical Counters and BER Info"], output["Module Info"]
    downed = _number(counters.get("Link Down Counter"))
    return Port(
        state=str(link["State"]),
        speed=str(link["Speed"]),
        lanes=_lanes(link.get("Width")),
        fec=str(link["FEC"]),
        raw_ber=_rate(counters["Raw Physical BER"]),
        effective_ber=_rate(counters["Effective Physical BER"]),
        link_downed=None if downed is None else int(downed),
        recommendation=str(output["Troubleshooting Info"]["Recommendation"]),
        part=_word(module["Vendor Part Number"]),
        serial=_word(module["Vendor Serial Number"]),
        firmware=_word(module.get("FW Version")),
        copper=_copper(module),
        watches=not _copper(module)
        and (
            not _word(module.get("Cable Type")).startswith(_ACTIVE)
            or module.get("Digital Diagnostic Monitoring") == "Yes"
        ),
        temperature=_watched(_in(module, "Temperature", "C")),
        rx_power=_watched(_in(module, "Rx Power Current", "dBm")),
        tx_power=_watched(_in(module, "Tx Power Current", "dBm")),
        voltage=_watched(_in(module, "Voltage", "mV")),
        bias=_watched(_in(module, "Bias Current", "mA")),
    )


def _copper(module: dict[str, Any]) -> bool:
    """Return whether a cable is copper; for an active cable only its technology shows it."""
    kind, technology = _word(module.get("Cable Type")), _word(module.get("Cable Technology"))
    return kind in _COPPER or (kind.startswith(_ACTIVE) and technology.startswith("Copper"))


def _lanes(value: object) -> int | None:
    """Return the number of lanes of a width, e.g. "4x"."""
    text = _word(value)
    if not text:
        return None
    if not _WIDTH.match(text):
        raise FormatError(f"{text!r} where a width should be")
    return int(text[:-1])


def _in(module: dict[str, Any], name: str, unit: str) -> object:
    """Return a module's value in one unit. Raise FormatError if it reports the value in another unit."""
    found = [key for key in module if key.startswith(f"{name} [") and key != f"{name} [{unit}]"]
    if found:
        raise FormatError(f"{found[0]} where {name} [{unit}] should be")
    return module.get(f"{name} [{unit}]")


def _word(value: object) -> str:
    text = str(value or "").strip()
    return "" if text in _NONE else text


def _number(value: object) -> float | None:
    """Return a number. The tool prints "15E-255" if there was no error."""
    text = _word(value)
    if not text:
        return None
    if not _NUMBER.match(text):
        raise FormatError(f"{text!r} where a number should be")
    return float(text)


def _rate(value: object) -> float | None:
    """Return an error rate. Raise FormatError if it is below 0 or above 1."""
    found = _number(value)
    if found is not None and not 0 <= found <= 1:
        raise FormatError(f"{value!r} where a bit error rate should be")
    return found


def _watched(value: object) -> Watched | None:
    if isinstance(value, dict):
        value = ",".join(str(item) for item in value["values"])
    text = _word(value)
    if not text:
        return None
    match = _LIMITS.match(text)
    lanes = [_number(item) for item in (match["values"] if match else text).split(",")]
    if any(lane is None for lane in lanes):
        raise FormatError(f"{text!r} where a number for every lane should be")
    values = tuple(lane for lane in lanes if lane is not None)
    low, high = (float(match["low"]), float(match["high"])) if match else (0.0, 0.0)
    # "[0..0]" stands for no limits.
    return Watched(values, low, high) if low < high else Watched(values, None, None)
