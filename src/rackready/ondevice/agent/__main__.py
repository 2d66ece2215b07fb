"""One boot of the agent: network, plan, work, report, and the end of the machine's stay in the ramdisk."""

from __future__ import annotations

import os
import sys
import time
import traceback

from . import cmdline, network, plan
from .errors import ImagingError
from .host import Host, say
from .job import ImagingRun
from .report import Reporter
from .service import Service

_READ_S = 5.0
"""Time that the last lines stay on a console before the machine goes, in seconds."""


def main() -> str:
    """Do the work of this boot and return what follows: ``reboot`` or ``poweroff``."""
    host = Host()
    try:
        options = cmdline.parse(host.read("/proc/cmdline"))
        network.bring_up(host, options.mac)
        service = Service(options)
        service.trust()
    except ImagingError as error:
        say(f"refused: {error.code}: {error.message}")  # nobody to report to
        return "poweroff"
    boot = host.read("/proc/sys/kernel/random/boot_id").replace("-", "")[:8]
    reporter = Reporter(service.put_json, options.plan, boot)
    reporter.node = options.plan.rsplit("/", 2)[-2]
    return _planned(host, service, options, reporter)


def _planned(host: Host, service: Service, options: cmdline.Options, reporter: Reporter) -> str:
    job: ImagingRun | None = None
    try:
        document = service.get_json(options.plan)
        reporter.digest = str(document.get("digest", "")) if isinstance(document, dict) else ""
        checked = plan.parse(document)
        reporter.node = checked.node
        reporter.send("started", f"image {checked.image.name}")
        job = ImagingRun(host, checked, service.stream, reporter)
        message = job.run()
    except ImagingError as error:
        _ended_badly(job, reporter, error.code, error.message)
        return "poweroff"
    except Exception as error:  # noqa: BLE001 - a defect: the operator gets it as a report, not as a silent node
        traceback.print_exc()
        _ended_badly(job, reporter, "defect", f"defect in the agent: {type(error).__name__}: {error}")
        return "poweroff"
    reporter.send("done", message, percent=100)
    return "reboot"


def _ended_badly(job: ImagingRun | None, reporter: Reporter, code: str, message: str) -> None:
    if job is None or not job.touched:
        reporter.send("refused", message, code=code)
        return
    left = job.fail_safe()
    reporter.send("failed", f"{message}{f' Not made safe: {left}.' if left else ''}", code=code)


def _leave(how: str) -> None:
    say(how)
    os.sync()
    sys.stdout.flush()
    time.sleep(_READ_S if how == "poweroff" else 1.0)
    Host().must("busybox", how, "-f")


if __name__ == "__main__":
    _leave(main())
