"""Reader of GPUs in MIG mode and their instances, from two short outputs of nvidia-smi."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackready.format_error import FormatError

_MODE = re.compile(r"^(?P<index>\d+), *(?P<mode>Enabled|Disabled|\[N/A\]|N/A|\[Not Supported\])$")
_GPU = re.compile(r"^GPU (?P<index>\d+): .+ \(UUID: GPU-[\w-]+\)$")
_INSTANCE = re.compile(r"^\s+MIG \S+\s+Device\s+(?P<number>\d+): \(UUID: (?P<uuid>MIG-\S+)\)$")
"""NVIDIA MIG user guide, "Getting started with MIG", and "Device Enumeration"."""


@dataclass(frozen=True)
class MigDevice:
    """One MIG device: its GPU's index, its own number on that GPU, its UUID."""

    gpu: str
    number: str
    uuid: str


def enabled(text: str) -> set[str]:
    """Return the indices of GPUs with MIG mode on (`--query-gpu=index,mig.mode.current --format=csv,noheader`).

    Raises FormatError: empty, or an unknown line.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise FormatError("empty output")
    found = set()
    for line in lines:
        match = _MODE.match(line)
        if match is None:
            raise FormatError(f"no GPU's index and MIG mode: {line[:80]!r}")
        if match["mode"] == "Enabled":
            found.add(match["index"])
    return found


def devices(text: str) -> list[MigDevice]:
    """Return the MIG devices in `nvidia-smi -L`.

    Raises FormatError: an unknown line, or a device without a GPU.
    """
    found: list[MigDevice] = []
    gpu = None
    for line in text.splitlines():
        instance = _INSTANCE.match(line)
        if head := _GPU.match(line):
            gpu = head["index"]
        elif instance and gpu is not None:
            found.append(MigDevice(gpu, instance["number"], instance["uuid"]))
        elif line.strip():
            raise FormatError(f"no GPU and no MIG device: {line.strip()[:80]!r}")
    return found
