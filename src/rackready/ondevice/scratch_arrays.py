"""The md array of a node's scratch disks: what it is, so that the same one can be made again."""

from __future__ import annotations

import re
from typing import Any

from .scratch_drives import Drives, RefusedError

_STRIPED = ("raid0", "raid4", "raid5", "raid6", "raid10")
_PARITY = ("left-asymmetric", "right-asymmetric", "left-symmetric", "right-symmetric", "parity-first", "parity-last")
"""Layouts of RAID5 and RAID6 by their number (torvalds/linux, drivers/md/raid5.h; mdadm, maps.c, r5layout)."""


def array_of(disks: Drives, name: str) -> dict[str, Any]:
    """Return an md array's level, metadata, name, UUID and members in order; empty for another device."""
    if not disks.at(f"sys/block/{name}/md").is_dir():
        return {}
    text = disks.must("mdadm", "--detail", "--export", f"/dev/{name}")
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    roles = {
        int(facts[key]): disks.real(facts[key.replace("_ROLE", "_DEV")])
        for key in facts
        if re.fullmatch(r"MD_DEVICE_\S+_ROLE", key) and facts[key].isdigit()
    }
    spare = [disks.real(facts[key.replace("_ROLE", "_DEV")]) for key in facts if _is_spare(key, facts[key])]
    if spare:
        raise RefusedError(
            f"/dev/{name}: {', '.join(sorted(spare))}: spare or failed in the array, and not erased with it"
        )
    wanted = ("MD_LEVEL", "MD_METADATA", "MD_UUID", "MD_DEVICES")
    if any(key not in facts for key in wanted) or sorted(roles) != list(range(int(facts["MD_DEVICES"]))):
        raise RefusedError(f"/dev/{name}: an array whose members are not all there: mdadm --detail --export says so")
    return {
        "level": facts["MD_LEVEL"],
        "metadata": facts["MD_METADATA"],
        "uuid": facts["MD_UUID"],
        "name": facts.get("MD_NAME", "").rsplit(":", 1)[-1],
        "members": [roles[role] for role in sorted(roles)],
        "striping": striping(disks, name, facts["MD_LEVEL"]),
    }


def striping(disks: Drives, name: str, level: str) -> list[str]:
    """Return the options of mdadm for the chunk size and layout of an array. Raises RefusedError for an unknown one.

    The layout of RAID0 says where old data lies, of which none stays: the kernel shows -1 for it.
    """
    if level not in _STRIPED:
        return []
    out = [f"--chunk={_number(disks, name, 'chunk_size') // 1024}"]
    if level in ("raid5", "raid6", "raid10"):
        layout = _number(disks, name, "layout")
        words = _near_far(layout) if level == "raid10" else dict(enumerate(_PARITY)).get(layout, "")
        if not words:
            raise RefusedError(f"/dev/{name}: a {level} of layout {layout}, which would not be made anew")
        out.append(f"--layout={words}")
    return out


def _number(disks: Drives, name: str, file: str) -> int:
    text = disks.at(f"sys/block/{name}/md/{file}").read_text().strip()
    if not text.isdigit():  # "524288 (65536)" while it is reshaped (drivers/md/md.c, chunk_size_show, layout_show)
        raise RefusedError(f"/dev/{name}: {file} {text!r}: the array is reshaped now")
    return int(text)


def _near_far(layout: int) -> str:
    """Return a layout of RAID10 as mdadm names it, empty for another one (mdadm, util.c, parse_layout_10)."""
    near, far = layout & 0xFF, layout >> 8 & 0xFF
    names = {256 + near: f"n{near}", 1 + (far << 8): f"f{far}", 0x10000 + 1 + (far << 8): f"o{far}"}
    return names.get(layout, "")


def _is_spare(key: str, value: str) -> bool:
    """Return whether a line of `mdadm --detail --export` is about a member without a place (mdadm 4.2, Detail.c)."""
    return re.fullmatch(r"MD_DEVICE_\S+_ROLE", key) is not None and not value.isdigit()
