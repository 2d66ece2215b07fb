"""Depth of a queue at which switches mark packets (ECN, RFC 3168), by the speed of the port."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rackready.model.network import EcnThresholds as Written


@dataclass(frozen=True, slots=True)
class EcnThresholds:
    """Bytes in a port's queue: above ``low`` a share of packets is marked, above ``high`` all are.

    ``speed``: Gb/s of the entry of ``fabric.qos.ecn``; None: the switch system has these by itself, nobody writes them.
    """

    low: int
    high: int
    speed: int | None = None

    def __str__(self) -> str:
        """Return both in words."""
        return f"{self.low} to {self.high} bytes"

    def covers(self, low: int, high: int) -> bool:
        """Whether a switch that reports these values has these thresholds, as far as its chip can.

        Spectrum-4 programs 159,744 for 150,000 bytes, 6.5 % more (NVIDIA's guide to RoCE on switches, 5.15); reports
        are rounded to two decimals of a unit.
        """
        return all(abs(seen - wanted) <= wanted * _TOLERANCE for seen, wanted in ((low, self.low), (high, self.high)))


_TOLERANCE = 0.07
"""Share of a threshold, see ``covers``."""

_SONIC_400G = EcnThresholds(1_048_576, 2_097_152)
"""Thresholds at 400 Gb/s: SONiC's own (sonic-buildimage @086b03bd70 qos_config.j2, AZURE_LOSSLESS).

Other rates have them in proportion. A queue's delay is its depth divided by the rate: Huawei sizes the upper threshold
as two to three times the bandwidth-delay product at 20 us (EDOC1100155250, "Configuring Static ECN": 500 to 750 KB at
100 Gb/s); these are 2.1 times, 512 KiB at 100 Gb/s.
"""


def sonic(rate: int, written: Iterable[EcnThresholds]) -> EcnThresholds:
    """Return the thresholds of a SONiC port of ``rate`` Gb/s: the site's, else SONiC's own in proportion."""
    own = EcnThresholds(_SONIC_400G.low * rate // 400, _SONIC_400G.high * rate // 400)
    return at_speed(rate, written) or own


def at_speed(rate: int, written: Iterable[EcnThresholds]) -> EcnThresholds | None:
    """Return the site's thresholds for ports of ``rate`` Gb/s; None where it has none."""
    return next((one for one in written if one.speed == rate), None)


def of_site(written: Iterable[Written]) -> tuple[EcnThresholds, ...]:
    """Return the entries of ``fabric.qos.ecn`` by speed."""
    return tuple(EcnThresholds(one.low, one.high, one.speed) for one in sorted(written, key=lambda one: one.speed))
