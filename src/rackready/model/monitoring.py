"""Where a site is monitored: ports of its exporters, and the receivers of alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Discriminator, Field, StringConstraints, Tag

from rackready.model.base import Model

HostPort = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*:[0-9]{1,5}$")]
"""Name or IPv4 address, and a port."""
WebhookUrl = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9][^\s\"'\\]*$")]
SecretPath = Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9._/-]+$")]
Port = Annotated[int, Field(ge=1, le=65535)]


class WebhookFile(Model):
    """A file on Alertmanager's machine that holds an address: one with a secret in it."""

    url_file: SecretPath = Field(
        description="path on Alertmanager's machine, which reads the address from it; Alertmanager 0.26 or newer"
    )


def _form(value: object) -> str:
    return "file" if isinstance(value, Mapping | WebhookFile) else "url"


Webhook = Annotated[Annotated[WebhookUrl, Tag("url")] | Annotated[WebhookFile, Tag("file")], Discriminator(_form)]
"""An address, or the file that holds it."""


class Webhooks(Model):
    """Addresses that Alertmanager posts alerts to. Without one, alerts of that severity stay in Alertmanager.

    An address written here lands in a file that everybody may read: one with a secret goes into a file of its own.
    """

    critical: Webhook | None = Field(None, description="for alerts that need somebody now: an address, or `url_file`")
    warning: Webhook | None = Field(None, description="for alerts that need somebody today: an address, or `url_file`")
    info: Webhook | None = Field(None, description="for alerts that only explain others: an address, or `url_file`")


class Monitoring(Model):
    """How the site is monitored."""

    manage_exporters: bool = Field(
        False,  # noqa: FBT003 - a default
        description="whether role `monitoring` installs node_exporter and dcgm-exporter on nodes; false: the site does",
    )
    node_port: Port = Field(9100, description="TCP port of node_exporter on every node")
    dcgm_port: Port = Field(9400, description="TCP port of dcgm-exporter on every node")
    switch_port: Port | None = Field(
        None, description="TCP port of node_exporter on every switch; null: switches are not scraped"
    )
    metrics_target: HostPort | None = Field(
        None,
        description="host:port of the node_exporter that serves the file of `rackready export metrics`, on the machine "
        "that runs rackready; null: alerts about missing GPUs, planned rails and node "
        "states cannot fire, and nodes that are not there yet count as unreachable",
    )
    alertmanagers: list[HostPort] = Field(default_factory=list, description="host:port of each Alertmanager")
    webhooks: Webhooks = Field(default_factory=Webhooks, description="receivers of alerts, by severity")
    scrape_interval_s: int = Field(30, ge=5, le=60, description="time between two scrapes, s")
