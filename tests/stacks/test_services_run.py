"""The engine's run on the services stack: what is asked of the child, and each way in which it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi import automation as auto

from rackready.design.site import parse_site
from rackready.drivers.boot_service import BootServiceError
from rackready.drivers.process import ChildResult
from rackready.drivers.pulumi import StackBusyError
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.stacks import services_run
from rackready.stacks.boot import BootArgs
from tests.unit.boot_service.sites import SERVICE, document

ARGS = {
    "env": "sim",
    "service": {**SERVICE},
    "kernel": "/r/vmlinuz",
    "ramdisk": "/r/ramdisk.img",
    "content": "ab" * 32,
}


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvPaths:
    made = EnvPaths(tmp_path, "sim")
    for name in ("vmlinuz", "ramdisk.img"):
        (made.base / "ramdisk").mkdir(parents=True, exist_ok=True)
        (made.base / "ramdisk" / name).touch()
    monkeypatch.setattr(services_run.engine, "require_engine", lambda _root: Path("pulumi"))
    return made


@pytest.fixture
def site() -> Site:
    return parse_site(document(service=SERVICE), source="site.yml", base=Path())


Child = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    """Return a function that puts a child in place of the real one; it returns the requests that the child gets."""

    def put(*, code: int = 0, error: str = "", timed_out: bool = False) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def run(argv: list[str], *, stdin_text: str, **more: Any) -> ChildResult:
            asked.append({**json.loads(stdin_text), "argv": argv[1:], "limit": more["timeout_s"], "what": more["what"]})
            if error:
                Path(asked[-1]["result"]).write_text(error, encoding="utf-8")
            return ChildResult(code, timed_out, 1.0)

        monkeypatch.setattr(services_run, "run_child", run)
        return asked

    return put


def test_up_asks_a_child_for_the_service_of_the_site(paths: EnvPaths, site: Site, child: Child) -> None:
    asked = child()
    services_run.up(site, paths, campaign="c1")
    (request,) = asked
    assert (request["action"], request["env"], request["campaign"]) == ("up", "sim", "c1")
    assert (request["argv"], request["limit"]) == (["-m", "rackready.stacks.services_run"], 300.0)
    assert request["what"] == "pulumi up of services"
    assert BootArgs.model_validate(request["args"]).service.interface == "boot0"
    assert not Path(request["result"]).parent.exists(), "nothing is left behind"


def test_destroy_needs_no_site(paths: EnvPaths, child: Child) -> None:
    asked = child()
    services_run.destroy(paths)
    assert [(request["action"], request["args"]) for request in asked] == [("destroy", None)]


def test_an_error_of_the_resource_is_the_error(paths: EnvPaths, site: Site, child: Child) -> None:
    child(error="boot0: interface - Expected: up Actual: down. Set it up.")
    with pytest.raises(BootServiceError) as caught:
        services_run.up(site, paths)
    assert str(caught.value) == "boot0: interface - Expected: up Actual: down. Set it up."


@pytest.mark.parametrize(
    ("ended", "actual"),
    [({"code": -9}, "exit status -9"), ({"code": 1, "timed_out": True}, "stopped after 300 s")],
)
def test_a_child_that_dies_names_its_log(ended: dict[str, Any], actual: str, paths: EnvPaths, child: Child) -> None:
    child(**ended)
    with pytest.raises(BootServiceError) as caught:
        services_run.destroy(paths)
    log = paths.logs / "services" / "services.log"
    text = f"stack sim-services - Expected: destroy ends Actual: {actual}. Look at {log}, then run again."
    assert str(caught.value) == text


# --- in the child ----------------------------------------------------------------------------------------------------


class Stack:
    """A stack of the Automation API whose operations raise what is put in, one after the other."""

    name = "sim-services"

    def __init__(self, *raised: Exception, said: tuple[str, ...] = ()) -> None:
        self.raised = list(raised)
        self.said = said
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def up(self, **options: Any) -> None:
        self._operate("up", options)

    def destroy(self, **options: Any) -> None:
        self._operate("destroy", options)

    def _operate(self, action: str, options: dict[str, Any]) -> None:
        self.asked.append((action, options))
        for text in self.said:
            event = {"severity": "error", "message": text, "prefix": "", "color": "never"}
            found = auto.EngineEvent.from_json({"sequence": 1, "timestamp": 0, "diagnosticEvent": event})
            options["on_event"](found)
        if self.raised:
            raise self.raised.pop(0)


def failed(stderr: str) -> auto.CommandError:
    return auto.CommandError(auto.CommandResult("", stderr, 255))


def busy() -> auto.ConcurrentUpdateError:
    return auto.ConcurrentUpdateError(auto.CommandResult("", "the stack is currently locked by 1 lock(s)", 255))


Opened = Callable[[Stack], list[Callable[[], None]]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Return a function that makes the child open a stack; it returns the programs that the engine is given."""

    def put(stack: Stack) -> list[Callable[[], None]]:
        programs: list[Callable[[], None]] = []

        def open_stack(_paths: EnvPaths, part: str, program: Callable[[], None], **more: Any) -> Stack:
            assert (part, more) == ("services", {"campaign": "c1", "project": "rackready-services"})
            programs.append(program)
            return stack

        monkeypatch.setattr(services_run.engine, "open_stack", open_stack)
        return programs

    return put


def request(tmp_path: Path, action: str = "up") -> dict[str, Any]:
    args = ARGS if action == "up" else None
    return {"root": str(tmp_path), "env": "sim", "action": action, "args": args, "campaign": "c1"}


@pytest.mark.parametrize("action", ["up", "destroy"])
def test_the_stack_is_looked_at_before_it_is_changed(action: str, opened: Opened, tmp_path: Path) -> None:
    stack = Stack()
    programs = opened(stack)
    assert services_run.run(request(tmp_path, action)) == ""
    assert [(done, options["refresh"]) for done, options in stack.asked] == [(action, True)]
    if action == "destroy":
        programs[0]()  # it declares nothing: everything goes


def test_the_resources_own_words_are_the_error(opened: Opened, tmp_path: Path) -> None:
    words = "<{%reset%}>1 error occurred:\n\t* port 67: in use. Free it.<{%reset%}>"
    opened(Stack(failed("error: update failed"), said=(words, "update failed")))
    assert services_run.run(request(tmp_path)) == "port 67: in use. Free it."


def test_an_engine_without_words_of_a_resource_has_its_last_line(opened: Opened, tmp_path: Path) -> None:
    opened(Stack(failed("warning: w\nerror: the passphrase is wrong\n"), said=("update failed",)))
    assert services_run.run(request(tmp_path)).endswith("the passphrase is wrong")


def test_the_lock_of_a_dead_run_is_freed_once(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[object] = []
    monkeypatch.setattr(services_run.engine, "free_lock", lambda stack, _error: freed.append(stack))
    stack = Stack(busy())
    opened(stack)
    assert services_run.run(request(tmp_path)) == ""
    assert (freed, len(stack.asked)) == ([stack], 2)


def test_the_lock_of_a_living_run_is_an_error(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_stack: object, _error: object) -> None:
        raise StackBusyError("Pulumi stack", expected="not in use", actual="locked", next_step="Wait.")

    monkeypatch.setattr(services_run.engine, "free_lock", refuse)
    opened(Stack(busy()))
    assert services_run.run(request(tmp_path)) == "Pulumi stack - Expected: not in use Actual: locked. Wait."


@pytest.mark.parametrize("error", ["", "what went wrong"])
def test_the_child_writes_its_error_for_the_parent(error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = tmp_path / "error"
    monkeypatch.setattr(services_run, "run", lambda _request: error)
    monkeypatch.setattr(services_run.sys, "stdin", _Given(json.dumps({"result": str(result)})))
    services_run.main()
    assert (result.read_text(encoding="utf-8") if result.exists() else "") == error


class _Given:
    def __init__(self, text: str) -> None:
        self._text = text

    def read(self) -> str:
        return self._text
