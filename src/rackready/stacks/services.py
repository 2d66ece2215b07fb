"""The services stack of an environment: its boot service over our provider's resource ``rackready:services:Boot``."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pulumi

from rackready import __version__
from rackready.design.site import load_site
from rackready.drivers.boot_service import BootService, BootServiceError
from rackready.model.problems import Message
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.stacks.boot import BOOT_TYPE, BootArgs

_KERNEL, _RAMDISK = "vmlinuz", "ramdisk.img"


class Boot(pulumi.CustomResource):
    """The boot service, as our provider records it."""

    running: pulumi.Output[bool]

    def __init__(self, name: str, args: BootArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = args.model_dump(mode="json", exclude_none=True)
        options = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(version=__version__))
        super().__init__(BOOT_TYPE, name, {**inputs, "running": None}, options)


def declare(args: BootArgs) -> None:
    """Declare the boot service."""
    service = Boot(f"{args.env}-boot", args)
    pulumi.export("running", service.running)


def declare_from_site(env: str, root: Path) -> None:
    """Read the site file of an environment and declare its services."""
    declare(boot_args(load_site(env, root=root), EnvPaths(root, env)))


def boot_service(site: Site, paths: EnvPaths) -> BootService:
    """Return the boot service of a site. Raises BootServiceError when the site has none."""
    settings = site.provisioning.service if site.provisioning is not None else None
    if settings is None:
        raise BootServiceError(
            "provisioning.service",
            "boot service",
            expected="its address, interface and network",
            actual="not in the site file",
            next_step="Add it; docs/howto/boot-service.md shows an example.",
        )
    return BootService(paths.state / "boot", settings)


def boot_args(site: Site, paths: EnvPaths) -> BootArgs:
    """Return the arguments of the stack. Raises BootServiceError without a service in the site or a ramdisk."""
    folder = paths.base / "ramdisk"
    absent = [name for name in (_KERNEL, _RAMDISK) if not (folder / name).is_file()]
    service = boot_service(site, paths)
    if absent:
        raise BootServiceError.of(
            Message("boot service", folder / name, "a file", "not there", "Run `rackready image ramdisk`.")
            for name in absent
        )
    content = hashlib.sha256()
    for name in (_KERNEL, _RAMDISK):
        with (folder / name).open("rb") as stream:
            content.update(hashlib.file_digest(stream, "sha256").digest())
    return BootArgs(
        env=paths.env,
        service=service.settings,
        kernel=folder / _KERNEL,
        ramdisk=folder / _RAMDISK,
        content=content.hexdigest(),
    )
