"""Packages of the exporters: node_exporter as in Debian 12 and EPEL 9, dcgm-exporter as in NVIDIA's repositories."""

from __future__ import annotations

from rackready_sim.exporter_image import PROGRAM
from rackready_sim.packages.deb import Deb
from rackready_sim.packages.scripts import service
from rackready_sim.programs.build import launcher

_NODE_UNIT = """[Unit]
Description=Prometheus exporter for machine metrics

[Service]
Restart=on-failure
User=prometheus
EnvironmentFile=/etc/default/prometheus-node-exporter
ExecStart=/usr/bin/prometheus-node-exporter $ARGS
TimeoutStopSec=20s
SendSIGKILL=no

[Install]
WantedBy=multi-user.target
"""
"""What Debian's unit does; EPEL's has the same names (Fedora's spec, 1.5.0)."""
_NODE_FILE = "/etc/default/prometheus-node-exporter"
_NODE_NAMES = {
    False: ("prometheus-node-exporter", "1.5.0-1+b6"),
    True: ("golang-github-prometheus-node-exporter", "1.5.0-1.el9"),
}
_DCGM_UNIT = """[Unit]
Description=NVIDIA DCGM-exporter service
Wants=nvidia-dcgm.service
After=nvidia-dcgm.service

[Service]
User=root
PrivateTmp=false
StandardOutput=append:/var/log/dcgm-exporter.log
StandardError=append:/var/log/dcgm-exporter.log
ExecStart=/usr/bin/dcgm-exporter -f /etc/dcgm-exporter/default-counters.csv
Restart=on-abort

[Install]
WantedBy=multi-user.target
"""
"""What NVIDIA's unit does (NVIDIA/dcgm-exporter @d5e5f51, packaging/config-files/systemd)."""
_DCGM_FILE = "/etc/dcgm-exporter/default-counters.csv"
_DCGM_COUNTERS = "DCGM_FI_DEV_SM_CLOCK, gauge, SM clock frequency (in MHz).\n"
DCGM_VERSION = "4.8.2-1"
_ACCOUNT = (
    "getent passwd prometheus >/dev/null || useradd --system --no-create-home --home-dir /var/lib/prometheus "
    "--shell /usr/sbin/nologin prometheus || true\n"
)


def exporter_packages(*, rpm: bool) -> list[Deb]:
    """Return both exporters. Debian's package starts its service, EPEL's does not."""
    name, version = _NODE_NAMES[rpm]
    scripts = service("prometheus-node-exporter.service", enabled=not rpm)
    node = Deb(
        name,
        version,
        "Prometheus exporter for machine metrics",
        {},
        {
            "/usr/lib/systemd/system/prometheus-node-exporter.service": _NODE_UNIT,
            _NODE_FILE: 'ARGS=""\n',
            "/var/lib/prometheus/node-exporter/.keep": "",
        },
        links={"/usr/bin/prometheus-node-exporter": PROGRAM},
        conffiles=(_NODE_FILE,),
        scripts={**scripts, "postinst": _ACCOUNT + scripts["postinst"]},
    )
    dcgm = Deb(
        "datacenter-gpu-manager-exporter",
        DCGM_VERSION,
        "NVIDIA data center GPU manager, exporter for Prometheus",
        {"Depends": "datacenter-gpu-manager-4-core"},
        {
            "/usr/bin/dcgm-exporter": launcher("dcgm.exporter", "run", "sys.argv[1:]"),
            "/usr/lib/systemd/system/nvidia-dcgm-exporter.service": _DCGM_UNIT,
            _DCGM_FILE: _DCGM_COUNTERS,
        },
        conffiles=(_DCGM_FILE,),
        scripts=service("nvidia-dcgm-exporter.service", enabled=False),
    )
    return [node, dcgm]
