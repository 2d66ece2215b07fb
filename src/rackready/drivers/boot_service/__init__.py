"""The boot service: dnsmasq (DHCP, TFTP) and nginx (HTTP, HTTPS) on the controller, for nodes that are provisioned.

It answers only armed nodes. Every file that it reads is below one private folder; no process of ours runs.
"""

from rackready.drivers.boot_service.nodes import ArmedNode, BootServiceError
from rackready.drivers.boot_service.reports import Report, ReportedDisk, Reports
from rackready.drivers.boot_service.service import BootService

__all__ = ["ArmedNode", "BootService", "BootServiceError", "Report", "ReportedDisk", "Reports"]
