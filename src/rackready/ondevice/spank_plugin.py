"""The Slurm release that a SPANK plugin was built for: `spank_plugin.py PATH` prints it, e.g. 22.05.

Slurm loads a plugin only if its constant plugin_version has slurmd's own year and month (Slurm, slurm/spank.h and
src/common/plugin.c). The plugin itself cannot be loaded here: its functions come from the program that loads it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

SYMBOL = b"plugin_version"
_MAGIC = b"\x7fELF\x02\x01"
"""ELF of 64 bits, little endian: x86-64 and Arm (elf(5))."""
_DYNSYM, _LOAD = 11, 1


class NotAPluginError(Exception):
    """The file is not a SPANK plugin; the argument says why."""


def main() -> int:
    """Print the release, or say why there is none and return 1."""
    try:
        sys.stdout.write(release(Path(sys.argv[1]).read_bytes()) + "\n")
    except (NotAPluginError, OSError, struct.error) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def release(body: bytes) -> str:
    """Return year and month of the release in a plugin's constant. Raises NotAPluginError."""
    if not body.startswith(_MAGIC):
        raise NotAPluginError("no ELF file of 64 bits, little endian")
    (number,) = struct.unpack_from("<I", body, _offset(body, _address(body)))
    return f"{number >> 16}.{number >> 8 & 0xFF:02d}"


def _address(body: bytes) -> int:
    """Return the address of the constant, from the table of dynamic symbols."""
    sections = list(
        _table(body, "<IIQQQQIIQQ", *struct.unpack_from("<Q", body, 40), *struct.unpack_from("<HH", body, 58))
    )
    for _, kind, _, _, start, size, link, _, _, entry in sections:
        if kind != _DYNSYM:
            continue
        names = sections[link][4]
        for at in range(start, start + size, entry):
            name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", body, at)
            if body[names + name : names + name + len(SYMBOL) + 1] == SYMBOL + b"\0":
                return int(value)
    raise NotAPluginError("no symbol plugin_version: not a plugin of Slurm")


def _offset(body: bytes, address: int) -> int:
    """Return where the byte of an address lies in the file."""
    place, size, count = *struct.unpack_from("<Q", body, 32), *struct.unpack_from("<HH", body, 54)
    for kind, _, start, begin, _, length, _, _ in _table(body, "<IIQQQQQQ", place, size, count):
        if kind == _LOAD and begin <= address < begin + length:
            return int(start + address - begin)
    raise NotAPluginError("plugin_version has no value in the file")


def _table(body: bytes, form: str, place: int, size: int, count: int) -> Iterator[tuple[int, ...]]:
    for index in range(count):
        yield struct.unpack_from(form, body, place + index * size)


if __name__ == "__main__":
    sys.exit(main())
