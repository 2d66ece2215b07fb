"""A pinned certificate decides alone: the machine's certificate store is not read, and a CA still counts."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

import pytest

from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcTlsError
from tests.unit.sim.bmc_service import NODE, served
from tests.unit.sim.site_ca import make


def test_a_pinned_server_is_asked_without_the_certificate_store_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_context: ssl.SSLContext, *_purpose: object) -> NoReturn:
        pytest.fail("the certificate store of the machine was read")

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", read)
    with served(tmp_path) as service, Bmc(NODE, service.site(ca=None, fingerprint=service.shown())) as bmc:
        assert bmc.identify().serial == "SERIAL-3"


def test_a_ca_counts_beside_the_pin(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        pinned = service.site(fingerprint=service.shown())
        with Bmc(NODE, pinned) as bmc:
            assert bmc.identify().serial == "SERIAL-3"
        other = pinned.model_copy(update={"ca": make(tmp_path / "other").file})
        with Bmc(NODE, other) as bmc, pytest.raises(BmcTlsError, match="unable to get local issuer certificate"):
            bmc.identify()
