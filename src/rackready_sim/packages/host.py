"""Packages of the host's tools, named and versioned as in Debian 12, and NVIDIA's firmware tools."""

from __future__ import annotations

from rackready_sim.packages.deb import Deb
from rackready_sim.packages.scripts import service
from rackready_sim.programs.build import launcher

_CHRONY_UNIT = """[Unit]
Description=chrony, an NTP client/server
Documentation=man:chronyd(8) man:chronyc(1) man:chrony.conf(5)
Conflicts=openntpd.service ntp.service ntpsec.service
After=network.target

[Service]
ExecStart=/usr/sbin/chronyd -n

[Install]
Alias=chronyd.service
WantedBy=multi-user.target
"""
_CHRONY_CONF = """confdir /etc/chrony/conf.d
pool 2.debian.pool.ntp.org iburst
sourcedir /etc/chrony/sources.d
driftfile /var/lib/chrony/chrony.drift
makestep 1 3
"""
_CHRONY_FILE = "/etc/chrony/chrony.conf"


def host_packages(mft: str) -> list[Deb]:
    """Return the tools that host gates run, beyond those of the operating system's base."""
    chrony = Deb(
        "chrony",
        "4.3-2+deb12u3",
        "Versatile implementation of the Network Time Protocol",
        {"Provides": "time-daemon", "Conflicts": "time-daemon", "Replaces": "time-daemon"},
        {
            "/usr/bin/chronyc": launcher("host.chrony", "chronyc"),
            "/usr/sbin/chronyd": launcher("host.chrony", "chronyd"),
            "/usr/lib/systemd/system/chrony.service": _CHRONY_UNIT,
            _CHRONY_FILE: _CHRONY_CONF,
        },
        conffiles=(_CHRONY_FILE,),
        scripts=service("chrony.service", enabled=True),
    )
    return [
        chrony,
        Deb("dmidecode", "3.4-1", "SMBIOS/DMI table decoder", {}, {"/usr/sbin/dmidecode": launcher("host.dmidecode")}),
        Deb(
            "smartmontools",
            "7.3-1+b1",
            "control and monitor storage systems using S.M.A.R.T.",
            {},
            {"/usr/sbin/smartctl": launcher("host.smartctl")},
        ),
        Deb("fio", "3.33-3", "flexible I/O tester", {}, {"/usr/bin/fio": launcher("host.tools", "fio")}),
        Deb("mft", mft, "NVIDIA firmware tools", {}, {"/usr/bin/mlxlink": launcher("host.mlxlink")}),
    ]
