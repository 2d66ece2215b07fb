"""Reader of `nvidia-smi --query-gpu=index,uuid --format=csv,noheader`: GPUs of the driver or of a container."""

from __future__ import annotations

import re

from rackready.format_error import FormatError

_ROW = re.compile(r"^(?P<index>\d+), *(?P<uuid>GPU-[\w-]+)$")
_NONE = re.compile(
    r"^(?:No devices (?:were )?found\b|Failed to initialize NVML: |NVIDIA-SMI has failed because |NVIDIA-SMI "
    r"couldn't find libnvidia-ml\.so ).*$",
    re.MULTILINE,
)
"""Messages of nvidia-smi instead of a list: no GPU, or no driver."""


def parse(text: str) -> dict[str, str]:
    """Return index -> UUID. Raise FormatError: empty, an unknown line, or a GPU twice."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise FormatError("empty output")
    found: dict[str, str] = {}
    for line in lines:
        match = _ROW.match(line)
        if match is None:
            raise FormatError(f"no GPU's index and UUID: {line[:80]!r}")
        if match["index"] in found or match["uuid"] in found.values():
            raise FormatError(f"a GPU twice: {line[:80]!r}")
        found[match["index"]] = match["uuid"]
    return found


def refusal(text: str) -> str | None:
    """Return nvidia-smi's line about a missing GPU or driver; None if there is none."""
    match = _NONE.search(text)
    return match[0].strip()[:200] if match else None
