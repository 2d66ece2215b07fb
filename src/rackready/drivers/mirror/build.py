"""Builds a mirror beside the one that is there, checks it, and puts it in its place at the end."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rackready.drivers.mirror import apt, archive, dnf, keys, swap, verify
from rackready.drivers.mirror.apt import AptBackend
from rackready.drivers.mirror.dnf import DnfBackend
from rackready.drivers.mirror.parts import Item, Wanted, digest, matches
from rackready.drivers.mirror.plan import Image
from rackready.drivers.mirror.tools import MirrorError, Tell, require

_MODE_FILE, _MODE_FOLDER = 0o644, 0o755
"""A web server serves the mirror: nothing in it is secret."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be built, and where. ``tell`` gets a line for people, ``step`` every line of a tool."""

    site: str
    set: str
    wanted: Wanted
    images: list[Image]
    out: Path
    secret: Path
    tell: Tell
    step: Tell
    kernels: tuple[str, ...] = ()

    @property
    def work(self) -> Path:
        """Work folder beside the mirror: in its file system, so that files are linked and not copied."""
        return self.out.with_name(f".{self.out.name}.work")


@dataclass(frozen=True, slots=True)
class Built:
    """The mirror as it is now. ``lacking``: files that were, or would be, fetched."""

    items: list[Item]
    lacking: list[Item]
    changed: bool
    files: int = 0
    signed_by: str = ""
    manifest: dict[str, Any] = field(default_factory=dict)


def build(order: Order, *, check: bool = False) -> Built:
    """Build the mirror, or with ``check`` only find what it would fetch.

    Raises MirrorError; the old mirror stays whole.
    """
    wanted = order.wanted
    require(dnf.TOOLS if wanted.is_rpm else apt.TOOLS)
    for upstream in wanted.upstreams:
        keys.check_upstream(upstream)
    _check_place(order.out)
    with swap.locked(order.work, order.out):
        swap.recover(order.out)
        backend = DnfBackend(wanted, order.work) if wanted.is_rpm else AptBackend(wanted, order.work)
        order.tell(f"reading the indexes of {', '.join(item.name for item in wanted.upstreams)}")
        backend.refresh()
        items = backend.resolve()
        lacking = [item for item in items if not _have(item, order.out, backend.archives)]
        if check:
            return Built(items, lacking, changed=bool(lacking))
        return _Build(order, backend, items, lacking).run()


def _have(item: Item, out: Path, archives: Path) -> bool:
    """Return whether a package is there already. A damaged file is removed from the work folder, not from a mirror."""
    waiting = archives / item.fetched_as
    if matches(waiting, item):
        return True
    waiting.unlink(missing_ok=True)
    if matches(out / item.file, item):
        os.link(out / item.file, waiting)
        return True
    return False


def _check_place(out: Path) -> None:
    """Raise MirrorError if ``out`` holds something that is no mirror: it would be replaced."""
    if out.is_dir() and any(out.iterdir()):
        verify.read_manifest(out)
    elif out.exists() and not out.is_dir():
        raise MirrorError(out, expected="a folder", actual="a file", next_step="Correct --out.")


class _Build:
    """One build, after its packages were resolved."""

    def __init__(self, order: Order, backend: AptBackend | DnfBackend, items: list[Item], lacking: list[Item]) -> None:
        self.order, self.backend, self.items, self.lacking = order, backend, items, lacking
        self.fresh = order.out.with_name(f".{order.out.name}.new")
        self.scratch = order.work / "check"

    def run(self) -> Built:
        order = self.order
        if self.lacking:
            order.tell(f"fetching {len(self.lacking)} of {len(self.items)} packages, {size(self.lacking)}")
            self.backend.fetch(order.step)
            self._check_fetched()
        self.backend.check()
        with keys.signer(order.secret, order.site) as (home, fingerprint):
            manifest = self._manifest(fingerprint)
            if self._is_built(manifest):
                self._clean()
                files = verify.verify(order.out, order.wanted, self.scratch)
                return Built(
                    self.items, self.lacking, changed=False, files=files, signed_by=fingerprint, manifest=manifest
                )
            order.tell("writing and signing the index")
            self._lay_out(home, fingerprint, manifest)
        order.tell("checking the new mirror: signatures, files, and that its packages install from it alone")
        files = verify.verify(self.fresh, order.wanted, self.scratch)
        swap.replace_folder(self.fresh, order.out)
        self._clean()
        return Built(self.items, self.lacking, changed=True, files=files, signed_by=fingerprint, manifest=manifest)

    def _check_fetched(self) -> None:
        """Raise MirrorError unless every package is there as its upstream's index describes it."""
        for item in self.items:
            path = self.backend.archives / item.fetched_as
            if not matches(path, item):
                found = f"{path.stat().st_size} bytes of other content" if path.exists() else "no file"
                path.unlink(missing_ok=True)
                raise MirrorError(
                    item.fetched_as,
                    expected=f"{item.size} bytes, {item.algorithm} {item.digest}",
                    actual=found,
                    next_step="Run again; ask the upstream's owner if it stays so.",
                )

    def _manifest(self, fingerprint: str) -> dict[str, Any]:
        """Return the manifest. It has no times: an unchanged mirror has an unchanged manifest."""
        order = self.order
        packages = [
            {
                "name": item.name,
                "version": item.version,
                "architecture": item.architecture,
                "file": item.file,
                "size": item.size,
                "sha256": self._sha256(item),
            }
            for item in self.items
        ]
        upstreams = [
            item.model_dump(mode="json", include={"name", "url", "suite", "components", "fingerprint"})
            for item in order.wanted.upstreams
        ]
        return {
            "schema": verify.SCHEMA,
            "site": order.site,
            "set": order.set,
            "system": order.wanted.system,
            "signed_by": fingerprint,
            "kernels": list(order.kernels),
            "streams": list(order.wanted.streams),
            "needs": [{"platforms": list(need.platforms), "packages": need.packages} for need in order.wanted.needs],
            "upstreams": upstreams,
            "packages": packages,
            "images": [asdict(image) for image in order.images],
        }

    def _sha256(self, item: Item) -> str:
        return item.digest if item.algorithm == "sha256" else digest(self.backend.archives / item.fetched_as)

    def _is_built(self, manifest: dict[str, Any]) -> bool:
        """Return whether the mirror that is there is this one, and whole."""
        out = self.order.out
        if not (out / verify.MANIFEST).is_file() or (out / verify.MANIFEST).read_bytes() != _text(manifest):
            return False
        try:
            verify.verify_files(out, self.order.wanted)
        except MirrorError as error:
            self.order.tell(f"{error} It is built again.")
            return False
        return True

    def _lay_out(self, home: keys.Home, fingerprint: str, manifest: dict[str, Any]) -> None:
        shutil.rmtree(self.fresh, ignore_errors=True)
        self.fresh.mkdir(mode=_MODE_FOLDER)
        for item in self.items:
            target = self.fresh / item.file
            target.parent.mkdir(exist_ok=True)
            os.link(self.backend.archives / item.fetched_as, target)
        self.backend.index(self.fresh, home)
        self.backend.write_key(home, fingerprint, self.fresh / verify.KEY)
        (self.fresh / verify.MANIFEST).write_bytes(_text(manifest))
        names = sorted(path.relative_to(self.fresh).as_posix() for path in self.fresh.rglob("*") if path.is_file())
        sums = self.fresh / verify.SUMS
        sums.write_text("".join(f"{digest(self.fresh / name)}  {name}\n" for name in names), encoding="utf-8")
        keys.detach(home, sums, sums.with_name(f"{verify.SUMS}.asc"))
        for path in [self.fresh, *self.fresh.rglob("*")]:
            path.chmod(_MODE_FOLDER if path.is_dir() else _MODE_FILE)

    def _clean(self) -> None:
        """Remove packages from the work folder: the mirror has them. The lists stay, for the next run."""
        shutil.rmtree(self.fresh, ignore_errors=True)
        for path in [*self.backend.archives.glob("*.deb"), *self.backend.archives.glob("*.rpm")]:
            path.unlink()


def carry(folder: Path, target: Path, tell: Tell) -> bool:
    """Write the archive of a mirror unless it is there already, and return whether it was written."""
    if archive.is_of(target, folder):
        return False
    tell(f"writing {target}")
    archive.write(target, folder)
    return True


def size(items: list[Item]) -> str:
    """Return the size of packages for people."""
    total = float(sum(item.size for item in items))
    for unit in ("B", "kB", "MB", "GB"):
        if total < 1000 or unit == "GB":  # noqa: PLR2004 - decimal units
            return f"{total:.0f} {unit}" if unit == "B" else f"{total:.1f} {unit}"
        total /= 1000
    return ""


def _text(manifest: dict[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=2) + "\n").encode()
