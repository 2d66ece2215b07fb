"""Values that the site file and the command line share. Importing no model keeps the command line fast."""

from __future__ import annotations

from typing import Literal

FabricKind = Literal["roce", "infiniband"]
"""Link layer of the compute fabric."""
NcclNet = Literal["ib", "ibext", "ofi"]
"""Network plugin that NCCL must use."""
