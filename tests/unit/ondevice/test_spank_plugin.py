"""The release that a SPANK plugin was built for, from files made after elf(5).

The real pyxis 0.24.0, built against Debian's Slurm 22.05.8, was read by hand: 22.05.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from rackready.ondevice import spank_plugin
from rackready.ondevice.spank_plugin import NotAPluginError, release

ADDRESS = 0x7000
"""Address of the constant; it lies elsewhere in the file."""


def plugin(number: int, name: bytes = b"plugin_version") -> bytes:
    """Return a shared object with two symbols and one loaded segment."""
    names = b"\0plugin_name\0" + name + b"\0"
    symbols = struct.pack("<IBBHQQ", 1, 0, 0, 0, ADDRESS - 4, 0) + struct.pack("<IBBHQQ", 13, 0, 0, 0, ADDRESS, 4)
    value_at, names_at = 64 + 56, 64 + 56 + 8
    symbols_at = names_at + len(names)
    sections_at = symbols_at + len(symbols)
    segment = struct.pack("<IIQQQQQQ", 1, 4, value_at - 4, ADDRESS - 4, ADDRESS - 4, 8, 8, 8)
    tables = [
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, symbols_at, len(symbols), 2, 0, 8, 24),
        struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, names_at, len(names), 0, 0, 1, 0),
    ]
    head = b"\x7fELF\x02\x01" + bytes(10)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, sections_at, 0, 64, 56, 1, 64, 3, 2)
    return head + segment + struct.pack("<II", number, 0) + names + symbols + b"".join(tables)


@pytest.mark.parametrize(
    ("number", "wanted"), [((22 << 16) + (5 << 8) + 8, "22.05"), ((24 << 16) + (11 << 8) + 5, "24.11")]
)
def test_year_and_month_are_those_of_the_constant(number: int, wanted: str) -> None:
    assert release(plugin(number)) == wanted


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"#!/bin/sh\n", "no ELF file of 64 bits, little endian"),
        (plugin(1, b"plugin_versions"), "no symbol plugin_version: not a plugin of Slurm"),
        (
            plugin(1).replace(struct.pack("<Q", ADDRESS - 4), struct.pack("<Q", 1)),
            "plugin_version has no value in the file",
        ),
    ],
)
def test_another_file_is_said(body: bytes, words: str) -> None:
    with pytest.raises(NotAPluginError) as caught:
        release(body)
    assert str(caught.value) == words


def test_the_program_prints_it_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spank_pyxis.so"
    path.write_bytes(plugin((22 << 16) + (5 << 8)))
    monkeypatch.setattr(sys, "argv", ["spank_plugin.py", str(path)])
    assert (spank_plugin.main(), capsys.readouterr().out) == (0, "22.05\n")
    path.write_bytes(plugin(1)[:200])
    assert spank_plugin.main() == 1
    path.unlink()
    assert spank_plugin.main() == 1
