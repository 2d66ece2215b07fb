"""Values that the site file and the command line share. Importing no model keeps the command line fast."""

from __future__ import annotations

from typing import Literal

FabricKind = Literal["roce", "infiniband"]
"""Link layer of the compute fabric."""
AddressManager = Literal["auto", "none", "netplan", "networkd", "networkmanager", "ifupdown"]
"""Program that sets the addresses of compute interfaces on nodes."""
NcclNet = Literal["ib", "ibext", "ofi"]
"""Network plugin that NCCL must use."""
