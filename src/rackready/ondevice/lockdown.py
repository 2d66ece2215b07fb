"""Kernel lockdown, as with Secure Boot: what the kernel refuses to root, too.

It refuses writes to PCI configuration space and maps of a card's memory (Linux drivers/pci/pci-sysfs.c,
pci_write_config and pci_mmap_resource: LOCKDOWN_PCI_ACCESS), and so setpci's writes and the firmware tools of a card
(Mellanox/mstflint issue 416: "direct PCI access"). Signed modules reach the card for them: mstflint's kernel/README.txt
for mstflint; for MFT, whose source is closed, this is inferred.
"""

from __future__ import annotations

import re
from pathlib import Path


def lockdown(root: Path) -> str:
    """Return the mode in force, integrity or confidentiality; "" where the kernel is not locked down.

    The file has it in brackets (Linux security/lockdown/lockdown.c, lockdown_read).
    """
    try:
        text = (root / "sys/kernel/security/lockdown").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"\[(integrity|confidentiality)\]", text)
    return found.group(1) if found is not None else ""
