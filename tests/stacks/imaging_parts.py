"""A node that is imaged, in a test: its job, the real boot service's files without daemons, and a ramdisk's reports."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko

from rackready.design.imaging import HostKey, Login, StoredImage, digest_of, user_data
from rackready.drivers.boot_service import BootService, authority
from rackready.drivers.redfish import BootTarget
from rackready.drivers.ssh.host_keys import host_keys
from rackready.ledger.store import Ledger
from rackready.model.provisioning import ProvisioningService
from rackready.stacks import imaging as module
from rackready.stacks.args import ImagingArgs
from rackready.stacks.boot_jobs import ImagingJob, jobs_dir
from rackready.stacks.imaging import Imaging
from rackready.stacks.installations import IMAGE
from rackready.stacks.machine import StackMachine
from tests.stacks.fake_rack import FakeNode, FakeRack
from tests.stacks.test_machine import node_args

IMAGE_FILE = StoredImage(name="debian12", sha256="ab" * 32, size=100, unpacked=1000)
FULL = {"path": "/dev/vda", "serial": "S1", "size": 480_000_000_000, "holds": ["gpt, 3 partitions", "ext4 'root'"]}
ERASE = "rackready provision --env t --limit node01 --erase node01"
Script = Callable[["Bench"], Iterator[None]]


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours runs after it."""


class Bench:
    """One rack with one node that is imaged. ``kill_at``: a line of progress at which the controller dies."""

    def __init__(self, rack: FakeRack, ledger: Ledger, folder: Path) -> None:
        self.rack, self.ledger, self.state = rack, ledger, folder
        self.node: FakeNode = rack.nodes[0]
        net = self.node.address.rsplit(".", 1)[0]
        settings = {"address": f"{net}.200", "interface": "eno2", "network": f"{net}.0/24"}
        self.settings = ProvisioningService.model_validate(settings)
        self.service = BootService(folder / "boot", self.settings)
        self.service.layout.make()
        authority.ensure(self.service.layout.tls, self.settings.address)
        self.keys: list[HostKey] = host_keys(jobs_dir(folder) / "host-keys", "node01")
        self.said: list[str] = []
        self.kill_at = ""
        self.boot = 0
        self.write_job()

    def write_job(self, boot: BootTarget = BootTarget.PXE, **changes: Any) -> None:
        seed = {"user-data": json.dumps(user_data("node01", self.keys, [Login("root", ("ssh-ed25519 AA",))]))}
        plan = {
            "schema": "rackready/imaging/v1",
            "node": "node01",
            "image": IMAGE_FILE.model_dump(),
            "seed": seed,
            **changes,
        }
        job = ImagingJob(
            node="node01",
            digest=digest_of(plan),
            plan=plan,
            service=self.settings,
            mac="52:54:00:00:00:01",
            address=self.node.address,  # type: ignore[arg-type]
            boot=boot,
            words="write image debian12 to serial S1 (UEFI PXE boot)",
            host_key=self.keys[0].public,
            timeout_s=60,
            image=self.state / "image",
            kernel=self.state / "vmlinuz",
            ramdisk=self.state / "ramdisk.img",
        )
        folder = jobs_dir(self.state) / "node01"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.json").write_text(job.model_dump_json())
        self.what = ImagingArgs(boot=boot, image="debian12", digest=job.digest)

    def machine(self, script: Script | None = None, *, consent: str = "", **changes: Any) -> StackMachine:
        steps = script(self) if script is not None else iter(())

        def say(text: str) -> None:
            self.said.append(text)
            if self.kill_at and text.startswith(self.kill_at):
                self.kill_at = ""
                raise Killed

        args = node_args(self.rack, imaging=self.what.model_dump(mode="json"), **changes)
        proceed = lambda: next(steps, None)  # noqa: E731 - one expression
        imaging = Imaging(
            args,
            self.what,
            self.ledger,
            self.state,
            consent=consent,
            proceed=proceed,
            say=say,
            serve=lambda _state, _job: self.service,
        )
        return StackMachine(args, self.ledger, self.state, proceed=proceed, say=say, imaging=imaging)

    def without_imaging(self) -> StackMachine:
        """The machine when the site file says no more that it is imaged."""
        return StackMachine(node_args(self.rack), self.ledger, self.state, proceed=lambda: None, say=self.said.append)

    @property
    def plan(self) -> dict[str, Any]:
        """The plan that the node would get now."""
        plan: dict[str, Any] = json.loads(self.service.layout.plan("node01").read_text())
        return plan

    def reboot(self) -> None:
        self.boot += 1

    def report(self, step: str, **more: Any) -> None:
        """What the ramdisk sends, if the node is armed; it gets its plan first."""
        folder = self.service.layout.reports("node01")
        boot = f"{self.boot:08x}"
        number = len(list(folder.glob(f"{boot}-*"))) + 1
        document = {
            "schema": "rackready/imaging-report/v1",
            "node": "node01",
            "digest": self.plan["digest"],
            "boot": boot,
            "at": "2026-11-27T12:00:00+00:00",
            "step": step,
            **more,
        }
        (folder / f"{boot}-{number:04}.json").write_text(json.dumps(document))

    def install(self) -> None:
        """What the node is after the ramdisk's last step: our key, and the plan's digest on its disk."""
        self.node.answers[module.SHOW] = json.dumps({"digest": self.plan["digest"]})
        self.node.host_key = paramiko.Ed25519Key.from_private_key(io.StringIO(self.keys[0].private))
        self.rack.set_power(self.node, "Off")
        self.rack.set_power(self.node, "On")

    def images(self) -> list[str]:
        """The status of each installation on record."""
        return [entry.status for entry in self.ledger.entries("node01") if entry.operation == IMAGE]


def good(bench: Bench) -> Iterator[None]:
    """A ramdisk that finds what is there already and goes on from it: each boot begins when the node is on."""
    while bench.node.power != "On" or not bench.service.armed():
        yield
    found = [report.step for report in bench.service.reports("node01").reports]
    steps = ("started", "disks", "writing", "verified", "configured")
    more: dict[str, dict[str, Any]] = {
        "disks": {"disks": [{**FULL, "holds": [], "chosen": "system"}]},
        "writing": {"percent": 40, "message": "debian12"},
    }
    for step in steps[len(found) :]:
        bench.report(step, **more.get(step, {}))
        yield
    bench.install()
    bench.report("done")
    yield


def refusing(bench: Bench) -> Iterator[None]:
    """A ramdisk that finds data on the disk."""
    while bench.node.power != "On":
        yield
    bench.report("refused", code="disk-has-data", message="data", disks=[{**FULL, "chosen": "system"}])
    bench.rack.set_power(bench.node, "Off")
    yield
