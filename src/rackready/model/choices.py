"""Words that the site file and the command line both take. Without the models themselves: the command line is to start quickly."""

from __future__ import annotations

from typing import Literal

FabricKind = Literal["roce", "infiniband"]
"""Link layer of the compute fabric."""
NcclNet = Literal["ib", "ibext", "ofi"]
"""Network plugin that NCCL must be seen to use."""
