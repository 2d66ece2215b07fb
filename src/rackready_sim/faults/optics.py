"""Faults of the links and optical modules of NICs."""

from __future__ import annotations

from rackready_sim.faults.base import NIC, Fault, State, part

_LINKS = "node/host/sanity/links"
_OPTICS = "node/host/validation/optics"


def _module_other(state: State, nic: int, serial: str) -> None:
    part(state, "nics", nic, "rail")["module"]["serial"] = serial


def _flaps(state: State, nic: int, count: int) -> None:
    part(state, "nics", nic, "rail")["module"]["flaps"] = count


def _ber(state: State, nic: int, rate: str) -> None:
    part(state, "nics", nic, "rail")["module"]["effective_ber"] = rate


def _light(state: State, nic: int, lane: int, dbm: float) -> None:
    part(state, "nics", nic, "rail")["module"]["rx_dbm"][lane] = dbm


def _hot(state: State, nic: int, celsius: int) -> None:
    part(state, "nics", nic, "rail")["module"]["temperature_c"] = celsius


def _fec(state: State, nic: int, mode: str) -> None:
    part(state, "nics", nic, "rail")["module"]["fec"] = mode


def _wrong_part(state: State, nic: int, number: str) -> None:
    part(state, "nics", nic, "rail")["module"]["part"] = number


FAULTS = (
    Fault(
        "module-other",
        "optics",
        "an optical module was swapped for another of the same kind",
        _module_other,
        {**NIC, "serial": "MT2421FT0BAD"},
    ),
    Fault(
        "link-flaps",
        "link",
        "a link went down and came back several times",
        _flaps,
        {"nic": 1, "count": 6},
        _LINKS,
        at_boot=True,
    ),
    Fault(
        "link-ber", "optics", "a link has many bit errors after correction", _ber, {"nic": 1, "rate": "3E-9"}, _OPTICS
    ),
    Fault(
        "optics-light",
        "optics",
        "a lane gets too little light, dBm",
        _light,
        {"nic": 1, "lane": 2, "dbm": -11.4},
        _OPTICS,
    ),
    Fault("optics-hot", "optics", "a module is too hot, degrees Celsius", _hot, {"nic": 1, "celsius": 84}, _OPTICS),
    Fault(
        "fec-wrong",
        "link",
        "a link runs another error correction than its siblings",
        _fec,
        {"nic": 1, "mode": "No FEC"},
        _OPTICS,
    ),
    Fault(
        "cable-wrong-part",
        "optics",
        "another module or cable than the others have",
        _wrong_part,
        {"nic": 1, "number": "MCP4Y10-N003"},
        _OPTICS,
    ),
)
