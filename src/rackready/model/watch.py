"""How nodes in production are watched (`rackready watch`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from rackready.model.base import Model, SecretRef
from rackready.model.monitoring import WebhookUrl

ConditionId = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]+$")]


class TicketWebhook(Model):
    """Receiver of repair tickets: each is posted as JSON when it is opened, and again when it changes."""

    url: WebhookUrl = Field(description="address that takes the POST; no secret in it")
    secret: SecretRef | None = Field(
        None,
        description="key of the header X-Rackready-Signature (HMAC-SHA256 of the body, hexadecimal); "
        "absent: the header is not sent",
    )


class Watch(Model):
    """Rates, limits and receivers of `rackready watch`. The kernel log is pushed by the node and has no rate."""

    port_poll_s: int = Field(5, ge=1, le=300, description="time between two looks at a node's RDMA ports, s")
    gpu_poll_s: int = Field(30, ge=5, le=3600, description="time between two runs of nvidia-smi on a node, s")
    bmc_poll_s: int = Field(
        60, ge=10, le=86400, description="time between two looks at a BMC's event logs, s; see watch.bmc"
    )
    bmc: bool = Field(default=True, description="whether the event logs of BMCs are read")
    silent_s: int = Field(
        45, ge=15, le=600, description="a node that sent nothing for this long is not watched, and connected again, s"
    )
    storm_share: float = Field(
        0.1,
        gt=0,
        le=1,
        description="share of the nodes in production that may be drained within watch.storm_window_s (at least one "
        "node); what goes beyond is an alert, and nothing more is drained until `rackready watch clear-storm`",
    )
    storm_window_s: int = Field(3600, ge=60, le=604800, description="window in which drained nodes count, s")
    never_drain: list[ConditionId] = Field(
        default_factory=list, description="conditions that drain by default and here only open a ticket"
    )
    also_drain: list[ConditionId] = Field(
        default_factory=list, description="conditions that only open a ticket by default and here drain, too"
    )
    requeue: bool = Field(
        default=False,
        description="requeue the jobs of a node after a fault that ended them or spoiled their results; false: they "
        "are left to their end",
    )
    webhook: TicketWebhook | None = Field(None, description="receiver of repair tickets; absent: they stay files")

    @model_validator(mode="after")
    def _not_both(self) -> Watch:
        both = sorted({*self.never_drain} & {*self.also_drain})
        if both:
            message = f"{', '.join(both)} in never_drain and also_drain - Expected: in one of them"
            raise ValueError(message)
        return self
