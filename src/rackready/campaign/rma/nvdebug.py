"""NVIDIA's nvdebug, run on this machine against the node's BMC. Its password is in a private file, never in `ps`.

NVIDIA, nvdebug guide (docs.nvidia.com/multi-node-nvlink-systems/nvdebug-guide): --config, --dutconfig, --outdir, and
the keys of both files. With LogSanitization it takes addresses and passwords out of its own logs. Whether the passwords
that we know are out is looked at.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import yaml

from rackready.campaign.rma.archived import secret_in
from rackready.campaign.rma.gathering import Collector, Desk, NotGatheredError, Took
from rackready.campaign.rma.scrubbed import NotWholeError, scrub_file
from rackready.design.secrets import reveal
from rackready.drivers.process import run_child
from rackready.model.rma import NvDebug
from rackready.paths import private_dir

NAME = "nvdebug"
_SHOWN = 200


def gather(desk: Desk, folder: Path, deadline: float) -> Took:
    """Run nvdebug and gather its archive. The host is left out: nvidia-bug-report looks at that."""
    wanted = desk.site.rma.nvdebug
    if wanted is None:
        raise NotGatheredError("the site names none (rma.nvdebug)")
    bmc = desk.declared.bmc.known()
    if bmc is None:
        raise NotGatheredError("address and password of the BMC are not in the site file")
    program, secret = Path(wanted.program), private_dir(folder / ".config")
    if not os.access(program, os.X_OK):
        raise NotGatheredError(program, expected="a program", actual="none that can be run")
    runtime = {"PLATFORM": wanted.platform, "TargetBaseboard": wanted.baseboard, "LogSanitization": True}
    target = {
        "NodeType": "Compute",
        "BMC_IP": str(bmc.address),
        "BMC_USERNAME": bmc.username,
        "BMC_PASSWORD": reveal(bmc.password),
        "RF_DEFAULT_PREFIX": "/redfish/v1",
        "RF_AUTH": True,
        "IP_NETWORK": "ipv4",
    }
    log = folder / "nvdebug.out"
    try:
        _write(secret / "config.yaml", {**runtime, "SKIP_BMC_SSH_LOGS": True, "SKIP_HOST_LOGS": True})
        _write(secret / "dut_config.yaml", {"DUT_Defaults": target, desk.node: target})
        argv = [str(program), "--config", str(secret / "config.yaml"), "--dutconfig", str(secret / "dut_config.yaml")]
        done = run_child(
            [*argv, "--outdir", str(folder)],
            log=log,
            cwd=folder,
            timeout_s=max(1.0, min(wanted.timeout_s, deadline - time.monotonic())),
            ledger=desk.ledger,
            what=f"nvdebug of {desk.node}",
        )
    finally:
        shutil.rmtree(secret, ignore_errors=True)
    scrub_file(log, desk.secrets(), most=desk.most)
    archives = sorted(path.name for path in folder.rglob("*") if path.suffix in {".zip", ".tgz", ".gz", ".txz"})
    if done.timed_out or not archives:
        said = log.read_text(encoding="utf-8", errors="replace").strip()[-_SHOWN:]
        how = f"no end within {done.seconds:.0f} s" if done.timed_out else f"exit code {done.returncode}, no archive"
        raise NotGatheredError(f"{how}: {' '.join(said.split())}")
    code = [f"exit code {done.returncode}"] if done.returncode else []
    return Took("; ".join([*code, *_looked_through(desk, folder, log)]), {"exit_code": done.returncode})


def _looked_through(desk: Desk, folder: Path, log: Path) -> list[str]:
    """Return a text for each file that cannot be looked through. Raises NotGatheredError where a password is in one.

    nvdebug's archive keeps every byte, so a password that its own sanitization left is not taken out.
    """
    notes, secrets = [], desk.secrets()
    for path in sorted(folder.rglob("*")):
        if path == log or path.is_symlink() or not path.is_file():
            continue
        try:
            place = secret_in(path, secrets, most=desk.most * 8)
        except NotWholeError as error:
            notes.append(f"not looked through for passwords: {error}")
            continue
        if place:
            raise NotGatheredError(
                place,
                expected="no password of the node or its BMC, as LogSanitization promises",
                actual="one",
                next_step="Nothing of it is kept. Run nvdebug by hand, take the password out, or change it first.",
            )
    return notes


def collector(wanted: NvDebug | None) -> Collector:
    """Return the collector."""
    limit = float(wanted.timeout_s) if wanted else 60.0
    return Collector(NAME, "machine", "nvdebug against the BMC, without host logs", limit, gather, sealed=True)


def _write(path: Path, content: dict[str, object]) -> None:
    with path.open("x", encoding="utf-8") as file:
        path.chmod(0o600)
        file.write(yaml.safe_dump(content))
