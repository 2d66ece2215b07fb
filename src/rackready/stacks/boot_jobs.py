"""What the provider needs to image a node, as a private file per node: plan, boot service and the host key to pin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from paramiko.pkey import PublicBlob
from pydantic import Field, ValidationError

from rackready import files
from rackready.design.imaging import (
    Login,
    StoredImage,
    boot_of,
    digest_of,
    disks_of,
    imaged_nodes,
    imaging_words,
    node_plan,
)
from rackready.design.names import listed
from rackready.drivers.boot_service import BootService
from rackready.drivers.boot_service.loaders import trust_problem
from rackready.drivers.redfish import BootTarget
from rackready.drivers.ssh.host_keys import host_keys
from rackready.drivers.ssh.pins import text_of
from rackready.drivers.ssh.target import read_private_key
from rackready.model.base import MacAddress, Model, Name
from rackready.model.problems import Message, RackreadyError
from rackready.model.provisioning import NodeDisks, ProvisioningService
from rackready.model.site import Node, Site
from rackready.paths import EnvPaths, private_dir
from rackready.stacks.args import ImagingArgs

_TARGETS = {"http": BootTarget.UEFI_HTTP, "pxe": BootTarget.PXE, "media": BootTarget.CD}
_SHOWN = 5


class ImagingJob(Model):
    """One node's imaging. The plan holds its private host keys."""

    node: Name
    digest: str = Field(description="of the plan, as in the stack's arguments")
    plan: dict[str, Any] = Field(description="see design.imaging.node_plan")
    service: ProvisioningService
    mac: MacAddress
    address: IPv4Address
    boot: BootTarget
    words: str = Field(description="what it does, for messages")
    host_key: str = Field(description="public host key that is pinned")
    timeout_s: int = Field(description="longest time from power-on until the image is written, in seconds")
    image: Path = Field(description="file of the image")
    kernel: Path
    ramdisk: Path


def jobs_dir(state: Path) -> Path:
    """Return the folder of an environment's imaging jobs, in its state."""
    return state / "imaging"


def require_images(site: Site, paths: EnvPaths, nodes: list[str]) -> None:
    """Refuse to image nodes without a ramdisk, or an image in the image store that can start them.

    Raises RackreadyError.
    """
    chosen = [node for node in imaged_nodes(site) if node.name in nodes]
    if not chosen:
        return
    _require_arrays(site, chosen, _image(site, paths))
    _require_trust(site)
    folder = paths.base / "ramdisk"
    absent = [name for name in ("vmlinuz", "ramdisk.img") if not (folder / name).is_file()]
    if absent:
        raise RackreadyError(
            folder,
            "ramdisk",
            expected="vmlinuz and ramdisk.img",
            actual=f"no {' and no '.join(absent)}",
            next_step="Run `rackready image ramdisk`.",
        )


def _require_arrays(site: Site, nodes: Sequence[Node], image: StoredImage) -> None:
    """Refuse nodes with arrays when the image cannot assemble them. Raises RackreadyError."""
    arrays = [node.name for node in nodes if (disks := disks_of(site, node)) and _has_array(disks)]
    if image.mdadm is not False or not arrays:
        return
    raise RackreadyError(
        "provisioning.image",
        image.name,
        expected=f"mdadm in it: disks of {listed(arrays, _SHOWN)} are arrays",
        actual="none",
        next_step=f"Install mdadm in the root file system, and `rackready image import FILE --name {image.name}`.",
    )


def _has_array(disks: NodeDisks) -> bool:
    return len(disks.system) > 1 or len(disks.scratch) > 1


def _require_trust(site: Site) -> None:
    """Refuse Secure Boot when this machine's shim does not trust the ramdisk's kernel. Raises RackreadyError."""
    settings = site.provisioning
    if settings is None or settings.secure_boot != "on":
        return
    if (problem := trust_problem()) is not None:
        raise RackreadyError.of([problem])


def write_jobs(site: Site, paths: EnvPaths, rack: str) -> dict[str, ImagingArgs]:
    """Write the jobs of a rack's nodes that are imaged, and return the arguments of their stack.

    Raises RackreadyError when the image, a key or the folder cannot be used.
    """
    nodes = [node for node in imaged_nodes(site) if site.rack_of(node.name).name == rack]
    if not nodes:
        return {}
    image, logins = _image(site, paths), _logins(site)
    out: dict[str, ImagingArgs] = {}
    for node in nodes:
        if node.boot_mac is None or node.serial is None or site.provisioning is None:
            continue  # not chosen, else deployable.require had refused it
        if site.provisioning.service is None or (node.disks or site.provisioning.disks) is None:
            continue
        folder = private_dir(jobs_dir(paths.state) / node.name)
        keys = host_keys(jobs_dir(paths.state) / "host-keys", node.name)
        plan = node_plan(site, node, image, keys, logins)
        boot = _TARGETS[boot_of(site, node)]
        job = ImagingJob(
            node=node.name,
            digest=digest_of(plan),
            plan=plan,
            service=site.provisioning.service,
            mac=node.boot_mac,
            address=node.address,
            boot=boot,
            words=imaging_words(site, node),
            host_key=keys[0].public,
            timeout_s=site.provisioning.timeout_s,
            image=paths.base / "images" / f"{image.sha256}.tar.zst",
            kernel=paths.base / "ramdisk" / "vmlinuz",
            ramdisk=paths.base / "ramdisk" / "ramdisk.img",
        )
        files.replace(folder / "job.json", job.model_dump_json().encode())
        out[node.name] = ImagingArgs(boot=boot, image=image.name, digest=job.digest)
    return out


def read_job(state: Path, node: str, digest: str = "") -> ImagingJob:
    """Return a node's job. Raises RackreadyError when it is not the one with that digest, where one is given."""
    path = jobs_dir(state) / node / "job.json"
    try:
        job = ImagingJob.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise _stale(path, "a job of this node", getattr(error, "strerror", None) or "a damaged file") from error
    if digest and job.digest != digest:
        raise _stale(path, f"plan {digest[:8]}", f"plan {job.digest[:8]}")
    return job


def _stale(path: Path, expected: str, actual: str) -> RackreadyError:
    step = "Run `rackready provision` again: it writes the file."
    return RackreadyError(path, "imaging job", expected=expected, actual=actual, next_step=step)


def _image(site: Site, paths: EnvPaths) -> StoredImage:
    name = site.provisioning.image if site.provisioning is not None else None
    folder = paths.base / "images"
    try:
        image = StoredImage.model_validate_json((folder / f"{name}.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise RackreadyError(
            "provisioning.image",
            name,
            expected=f"an image in {folder}",
            actual="none" if isinstance(error, FileNotFoundError) else "a damaged record",
            next_step=f"Run `rackready image build {name}`, or `rackready image import FILE --name {name}`.",
        ) from error
    if not (folder / f"{image.sha256}.tar.zst").is_file():
        step = f"Run `rackready image build {name}` again."
        raise RackreadyError(
            "provisioning.image", name, expected=f"the file {image.sha256}.tar.zst", actual="none", next_step=step
        )
    return image


def _logins(site: Site) -> list[Login]:
    """Return the users of the installed system: those of the site, else that of access with its own key."""
    settings, access = site.provisioning, site.access
    if settings is not None and settings.users:
        return [Login(user.name, tuple(map(_public, user.keys)), user.sudo) for user in settings.users]
    key = read_private_key("this controller", access.private_key)
    return [Login(access.user, (text_of(key),))]


def _public(path: Path) -> str:
    where = "provisioning.users"
    step = "Give the path of an OpenSSH public key: one line, as in id_ed25519.pub."
    try:
        line = Path(path).read_text(encoding="utf-8").strip()
        PublicBlob.from_string(line)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        actual = getattr(error, "strerror", None) or "something else"
        raise RackreadyError(where, path, expected="a public key", actual=actual, next_step=step) from error
    if "\n" in line:
        message = Message(where, path, expected="one public key", actual="several lines", next_step=step)
        raise RackreadyError.of([message])
    return line


def stop_service(site: Site, paths: EnvPaths) -> None:
    """Stop the daemons of the boot service if rackready keeps them running and no node is armed.

    Raises RackreadyError.
    """
    settings = site.provisioning.service if site.provisioning is not None else None
    if settings is None or settings.supervise != "rackready" or not (paths.state / "boot").is_dir():
        return
    service = BootService(paths.state / "boot", settings)
    if not service.armed():
        service.stop()


def saved_plan(state: Path, node: str, digest: str) -> Path:
    """Return the file of a plan whose installation was begun: it is finished by that plan, also after an edit."""
    return jobs_dir(state) / node / f"plan-{digest[:16]}.json"


def load_plan(state: Path, node: str, digest: str) -> dict[str, Any]:
    """Return the plan of a begun installation. Raises RackreadyError."""
    path = saved_plan(state, node, digest)
    try:
        plan: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        step = f"Run again with --erase {node}: it starts again."
        actual = getattr(error, "strerror", None) or "a damaged file"
        raise RackreadyError(path, "plan", expected="the plan that was begun", actual=actual, next_step=step) from error
    return plan
