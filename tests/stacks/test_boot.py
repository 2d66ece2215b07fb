"""The resource of the boot service, and the choice of a resource's provider by its type."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.rpc import UNKNOWN

from rackready.design.site import parse_site
from rackready.drivers.boot_service import BootServiceError
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.stacks import boot, services
from rackready.stacks.boot import BOOT_TYPE, BootArgs, BootProvider
from rackready.stacks.provider import every_kind
from rackready.stacks.provider_dispatch import ProviderDispatch, UnknownTypeError
from rackready.stacks.values import plain, wrapped
from tests.stacks.test_metal import Mocks
from tests.unit.boot_service.made import settings
from tests.unit.boot_service.sites import SERVICE, document

URN = f"urn:pulumi:sim-services::rackready-services::{BOOT_TYPE}::sim-boot"
INPUTS: dict[str, Any] = {
    "env": "sim",
    "service": settings().model_dump(mode="json", exclude_none=True),
    "kernel": "/r/vmlinuz",
    "ramdisk": "/r/ramdisk.img",
    "content": "ab" * 32,
}


class FakeService:
    """A boot service that records its calls."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.runs = True
        self.refusal: BootServiceError | None = None

    def prepare(self, ramdisk: Path, kernel: Path) -> None:
        self.asked.append(("prepare", str(ramdisk), str(kernel)))

    def start(self) -> list[str]:
        self.asked.append("start")
        if self.refusal is not None:
            raise self.refusal
        return []

    def running(self) -> bool:
        return self.runs

    def remove(self) -> None:
        self.asked.append("remove")
        if self.refusal is not None:
            raise self.refusal


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeService:
    made = FakeService()
    roots: list[Path] = []
    monkeypatch.setenv("RACKREADY_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("RACKREADY_ENV", "sim")
    monkeypatch.setattr(boot, "BootService", lambda root, _settings: roots.append(root) or made)
    yield made
    assert set(roots) <= {tmp_path / "boot"}, "its files are below the state of the environment"


def props(data: dict[str, Any]) -> dict[str, PropertyValue]:
    return {key: wrapped(value) for key, value in data.items()}


def diff(old: dict[str, Any], new: dict[str, Any]) -> api.DiffResponse:
    return asyncio.run(BootProvider().diff(api.DiffRequest(URN, "sim-boot", props(old), props(new), [])))


def create(*, preview: bool = False) -> api.CreateResponse:
    return asyncio.run(BootProvider().create(api.CreateRequest(URN, props(INPUTS), 0, preview)))


def test_check_names_each_malformed_input() -> None:
    bad = {**INPUTS, "content": "short", "service": {**INPUTS["service"], "address": "nowhere"}, "colour": "red"}
    found = asyncio.run(BootProvider().check(api.CheckRequest(URN, {}, props(bad), b"")))
    assert sorted(failure.property for failure in found.failures or []) == ["colour", "content", "service.address"]
    good = asyncio.run(BootProvider().check(api.CheckRequest(URN, {}, props({**INPUTS, "running": None}), b"")))
    assert not good.failures
    assert set(good.inputs or {}) == set(INPUTS)


def test_create_prepares_then_starts(service: FakeService) -> None:
    made = create()
    assert made.resource_id == "sim-boot"
    assert {key: plain(value) for key, value in made.properties.items()} == {**INPUTS, "running": True}
    assert service.asked == [("prepare", "/r/ramdisk.img", "/r/vmlinuz"), "start"]


def test_a_preview_touches_nothing(service: FakeService) -> None:
    assert create(preview=True).properties["running"].value == UNKNOWN
    preview = api.UpdateRequest(URN, "sim-boot", props(INPUTS), props(INPUTS), 0, [], preview=True)
    assert asyncio.run(BootProvider().update(preview)).properties["running"].value == UNKNOWN
    assert service.asked == []


def test_update_brings_it_back(service: FakeService) -> None:
    request = api.UpdateRequest(URN, "sim-boot", props(INPUTS), props(INPUTS), 0, [], preview=False)
    assert plain(asyncio.run(BootProvider().update(request)).properties["running"]) is True
    assert service.asked == [("prepare", "/r/ramdisk.img", "/r/vmlinuz"), "start"]


@pytest.mark.parametrize("runs", [True, False])
def test_read_sees_whether_both_daemons_run(runs: bool, service: FakeService) -> None:  # noqa: FBT001 - a parameter
    service.runs = runs
    state = props({**INPUTS, "running": True})
    seen = asyncio.run(BootProvider().read(api.ReadRequest(URN, "sim-boot", state, props(INPUTS))))
    assert plain(seen.properties["running"]) is runs
    assert diff({key: plain(value) for key, value in seen.properties.items()}, INPUTS).changes is not runs


def test_nothing_differs_while_it_runs_as_the_site_says() -> None:
    assert diff({**INPUTS, "running": True}, INPUTS).changes is False


@pytest.mark.parametrize(
    ("change", "replaces"),
    [({"content": "cd" * 32}, []), ({"kernel": "/other"}, []), ({"env": "prod"}, ["env"])],
)
def test_another_ramdisk_is_an_update_and_another_environment_a_replacement(
    change: dict[str, str], replaces: list[str]
) -> None:
    found = diff({**INPUTS, "running": True}, {**INPUTS, **change})
    assert (found.changes, found.diffs, found.replaces) == (True, list(change), replaces)
    assert found.delete_before_replace, "both would want the same ports"


def test_delete_removes_it_and_passes_its_refusal_on(service: FakeService) -> None:
    request = api.DeleteRequest(URN, "sim-boot", props({**INPUTS, "running": True}), 0)
    asyncio.run(BootProvider().delete(request))
    assert service.asked == ["remove"]
    service.refusal = BootServiceError("boot service", "removal", expected="a", actual="b", next_step="c.")
    with pytest.raises(BootServiceError, match=r"^boot service: removal - Expected: a Actual: b\. c\.$"):
        asyncio.run(BootProvider().delete(request))


def test_a_start_that_is_refused_records_nothing(service: FakeService) -> None:
    service.refusal = BootServiceError("boot0", "interface", expected="up", actual="down", next_step="Set it up.")
    with pytest.raises(BootServiceError, match=r"^boot0: interface - Expected: up Actual: down\. Set it up\.$"):
        create()


# --- the stack's program ---------------------------------------------------------------------------------------------


@pytest.fixture
def declared() -> Iterator[Mocks]:
    mocks = Mocks()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    pulumi.runtime.set_mocks(mocks, project="rackready-services", stack="sim-services", preview=False)
    yield mocks
    pulumi.runtime.settings.reset_options()
    asyncio.set_event_loop(None)
    loop.close()


def test_the_stack_declares_one_service(declared: Mocks) -> None:
    @pulumi.runtime.test
    def program() -> None:
        services.declare(BootArgs.model_validate(INPUTS))

    program()
    assert [(item.typ, item.name) for item in declared.made] == [(BOOT_TYPE, "sim-boot")]
    assert {key: value for key, value in declared.made[0].inputs.items() if value is not None} == INPUTS


def site(**provisioning: Any) -> Site:
    return parse_site(document(**provisioning), source="site.yml", base=Path())


def ramdisk(paths: EnvPaths, *names: str) -> None:
    folder = paths.base / "ramdisk"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(name.encode())


def test_the_content_of_kernel_and_ramdisk_is_an_argument(tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "sim")
    ramdisk(paths, "vmlinuz", "ramdisk.img")
    parts = [hashlib.sha256(name).digest() for name in (b"vmlinuz", b"ramdisk.img")]
    made = services.boot_args(site(service=SERVICE), paths)
    assert (made.env, made.content) == ("sim", hashlib.sha256(b"".join(parts)).hexdigest())
    assert (made.kernel, made.ramdisk) == (paths.base / "ramdisk/vmlinuz", paths.base / "ramdisk/ramdisk.img")
    (paths.base / "ramdisk/ramdisk.img").write_bytes(b"another")
    assert services.boot_args(site(service=SERVICE), paths).content != made.content


def test_a_ramdisk_that_is_not_built_is_refused(tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "sim")
    ramdisk(paths, "vmlinuz")
    with pytest.raises(BootServiceError) as caught:
        services.boot_args(site(service=SERVICE), paths)
    text = f"boot service: {paths.base}/ramdisk/ramdisk.img - Expected: a file Actual: not there"
    assert str(caught.value) == f"{text}. Run `rackready image ramdisk`."


def test_a_site_without_a_service_is_refused(tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "sim")
    ramdisk(paths, "vmlinuz", "ramdisk.img")
    with pytest.raises(BootServiceError) as caught:
        services.boot_args(parse_site(document(None), source="site.yml", base=Path()), paths)
    text = "provisioning.service: boot service - Expected: its address, interface and network Actual: not in the site "
    assert str(caught.value) == f"{text}file. Add it; docs/howto/boot-service.md shows an example."


# --- the provider of a type -------------------------------------------------------------------------------------------


VERBS = ("check", "diff", "create", "update", "read", "delete")


class Asked(api.Provider):
    """A provider that records what reaches it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        for verb in (*VERBS, "cancel"):
            setattr(self, verb, partial(self._record, verb))

    async def _record(self, verb: str, *_request: object) -> None:
        self.asked.append(verb)


class Request:
    def __init__(self, urn: str) -> None:
        self.urn = urn


def test_each_request_goes_to_the_provider_of_its_type() -> None:
    one, two = Asked(), Asked()
    both = ProviderDispatch({"rackready:a:One": one, "rackready:b:Two": two})
    urns = {"rackready:a:One": one, "rackready:stacks:Parent$rackready:b:Two": two}
    for kind in urns:
        for verb in VERBS:
            asyncio.run(getattr(both, verb)(Request(f"urn:pulumi:s::p::{kind}::name")))
    assert (one.asked, two.asked) == (list(VERBS), list(VERBS))


def test_cancel_reaches_every_kind() -> None:
    one, two = Asked(), Asked()
    asyncio.run(ProviderDispatch({"rackready:a:One": one, "rackready:b:Two": two}).cancel())
    assert (one.asked, two.asked) == (["cancel"], ["cancel"])


def test_a_type_of_another_release_is_refused() -> None:
    urn = "urn:pulumi:sim-rack01::rackready-metal::rackready:stacks:MetalNode$rackready:metal:Chassis::node01"
    with pytest.raises(UnknownTypeError) as caught:
        asyncio.run(every_kind().create(Request(urn)))  # type: ignore[arg-type]
    known = "rackready:metal:Node, rackready:services:Boot, rackready:virtual:Domain"
    assert str(caught.value) == (
        f"{urn}: type of resource - Expected: one of {known} Actual: rackready:metal:Chassis. "
        "The stack was made by another release of rackready: use that one."
    )
