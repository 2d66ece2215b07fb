"""What a load brings to light: errors that an idle link or module does not make."""

from __future__ import annotations

from .. import paths, rdmatree, store
from . import pcie


def strain() -> None:
    """Add the errors of the hardware state to the counters; a healthy machine has none."""
    state = store.hardware()
    found = state.get("host", {}).get("under_load", {})
    if found.get("aer"):
        with store.change() as runtime:
            for pci, count in found["aer"].items():
                seen = runtime.setdefault("aer", {}).setdefault(pci, {})
                seen["aer_dev_correctable"] = seen.get("aer_dev_correctable", 0) + count
        for pci in found["aer"]:
            for name, text in pcie.aer(pci).items():
                paths.at(f"/sys/bus/pci/devices/{pci}/{name}").write_text(f"{text}\n")
    for nic in state["nics"]:
        if nic["rdma_device"] in found.get("nic", {}):
            rdmatree.add(nic, found["nic"][nic["rdma_device"]])
