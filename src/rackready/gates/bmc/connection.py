"""Connection to BMCs, and the requests that gates may make.

``GET trail ...`` gathers documents; ``CYCLE kind n`` cycles the power. No answer holds credentials: they stay in the
driver, and what a BMC reports about passwords is left out.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from rackready.drivers import redfish_read
from rackready.drivers.process import check_stop
from rackready.drivers.redfish import Bmc
from rackready.drivers.remote import Answer
from rackready.gates.bmc.cycle import Cycler
from rackready.model.problems import RackreadyError
from rackready.model.site import Bmc as BmcSite
from rackready.model.site import Site

_log = logging.getLogger(__name__)


class Bmcs:
    """The BMCs of a site's nodes and devices. Thread-safe; one request at a time per BMC."""

    def __init__(self, sites: Mapping[str, BmcSite], cycler: Cycler | None = None) -> None:
        self._sites = dict(sites)
        self._cycler = cycler
        self._asked = {name: threading.Lock() for name in self._sites}

    def run(self, node: str, argv: Sequence[str], *, timeout_s: float) -> Answer:
        """Run the request in ``argv`` and return a JSON document.

        A BMC's failure is in the answer, never an exception. The time limit starts when this BMC is free. Raises
        Interrupted when the operator stops the run.
        """
        site = self._sites.get(node)
        if site is None:
            return Answer(
                None,
                "",
                "",
                0.0,
                failure=f"{node}: bmc - Expected: address and password in the site file Actual: not given.",
            )
        with self._asked[node]:
            answer = self._ask(node, site, argv, timeout_s)
        _log.debug(
            "%s BMC: %s: %s in %.1f s",
            node,
            " ".join(argv),
            answer.failure or f"{len(answer.stdout)} characters",
            answer.seconds,
        )
        return answer

    def _ask(self, node: str, site: BmcSite, argv: Sequence[str], timeout_s: float) -> Answer:
        begun = time.monotonic()

        def proceed() -> None:
            check_stop()
            if time.monotonic() - begun > timeout_s:
                raise _LateError(node, f"the BMC did not answer everything within {timeout_s:.0f} s")

        try:
            text = self._do(node, site, argv, proceed)
        except _LateError:
            return Answer(None, "", "", time.monotonic() - begun, timed_out=True)
        except RackreadyError as error:
            return Answer(None, "", "", time.monotonic() - begun, failure=str(error))
        return Answer(0, text, "", time.monotonic() - begun)

    def _do(self, node: str, site: BmcSite, argv: Sequence[str], proceed: Callable[[], None]) -> str:
        verb, *rest = argv
        if verb == "GET":
            with Bmc(node, site) as bmc:
                return json.dumps(redfish_read.read(bmc, rest, proceed).document(), sort_keys=True)
        if verb == "CYCLE" and self._cycler is not None:
            return json.dumps(self._cycler.cycle(node, site, *rest, proceed=proceed), sort_keys=True)
        raise RackreadyError(
            node,
            "a request to the BMC",
            expected="GET, or CYCLE where power may be cycled",
            actual=verb,
            next_step="Report a bug.",
        )


class _LateError(RackreadyError):
    """The time limit of a request is over."""


def sites_of(site: Site) -> dict[str, BmcSite]:
    """Return the BMC of every node and device of a site that has a known one."""
    found = {node.name: known for node in site.nodes() if (known := node.bmc.known()) is not None}
    return found | {device.name: device.bmc for device in site.devices if device.bmc is not None}
