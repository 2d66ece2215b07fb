"""Refusal of a text that a reader does not understand, and what several texts have in common."""

from __future__ import annotations

from rackready.model.problems import RackreadyError

LANE_GBPS = {
    "SDR": 2.5,
    "DDR": 5.0,
    "QDR": 10.0,
    "FDR10": 10.0,
    "FDR": 14.0,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""Data rate of one lane by the name of its speed, Gb/s, as links are sold: 4xNDR is 400.

InfiniBand Architecture Specification vol. 2; names as rdma-core infiniband-diags/ibnetdiscover.c prints them.
"""

SIGNAL_GBPS = {
    "2.5": "SDR",
    "5.0": "DDR",
    "10.0": "QDR",
    "14.0625": "FDR",
    "25.78125": "EDR",
    "53.125": "HDR",
    "106.25": "NDR",
    "212.5": "XDR",
}
"""Signal rate of one lane, Gb/s as text -> name of the speed: rdma-core libibmad/dump.c."""


class IbTextError(RackreadyError):
    """The text of an InfiniBand tool, or a file for opensm, has a shape that rackready does not know."""


def unknown(tool: str, number: int, line: str, expected: str) -> IbTextError:
    """Return the refusal of one line, counted from 1; 0 for the text as a whole."""
    return IbTextError(
        f"output of {tool}{f', line {number}' if number else ''}",
        expected=expected,
        actual=repr(line) if line else "nothing",
        next_step="Read it again with the same tool; if it stays, report this text with the version of the tool.",
    )


def guid_of(text: str) -> int:
    """Return the number of a GUID in hexadecimal digits, with or without 0x. Raises ValueError."""
    return int(text, 16)


def guid_text(guid: int) -> str:
    """Return a GUID as the tools take it: ``0x0002c90300a1b2c3``."""
    return f"0x{guid:016x}"
