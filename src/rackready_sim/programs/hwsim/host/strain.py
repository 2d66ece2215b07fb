"""Errors that appear only under load, not on an idle link or module."""

from __future__ import annotations

from typing import Any

from .. import paths, rdmatree, store
from . import pcie


def strain() -> None:
    """Add the errors that PCIe links make while GPUs are busy; none on a healthy machine."""
    found = store.hardware().get("host", {}).get("under_load", {})
    if found.get("aer"):
        with store.change() as runtime:
            for pci, count in found["aer"].items():
                seen = runtime.setdefault("aer", {}).setdefault(pci, {})
                seen["aer_dev_correctable"] = seen.get("aer_dev_correctable", 0) + count
        for pci in found["aer"]:
            for name, text in pcie.aer(pci).items():
                paths.at(f"/sys/bus/pci/devices/{pci}/{name}").write_text(f"{text}\n")


def port(nic: dict[str, Any]) -> None:
    """Add the errors that this port makes when it carries data."""
    found = store.hardware().get("host", {}).get("under_load", {}).get("nic", {})
    rdmatree.add(nic, found.get(nic["rdma_device"], {}))
