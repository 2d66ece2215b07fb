"""NVUE's command line: nv set, unset, show and config.

Sources: NVUE reference (config commands), Cumulus Linux 5 user guide.
"""

from __future__ import annotations

import getpass
import json
import os
import sys
import time
from pathlib import Path

from .. import paths
from . import apply, document, grammar, ports, revisions, routing, schema, show
from .revisions import Book, Revision
from .schema import SchemaError, Setting

_DEFAULT_CONFIRM_S = 600
_UNITS = {"s": 1, "m": 60, "h": 3600}


class NvError(Exception):
    """The command fails with this message and exit code 1."""


def main(argv: list[str]) -> int:
    """Run one command as root, under which the launcher starts it."""
    user = os.environ.get("SUDO_USER") or getpass.getuser()
    try:
        return run(argv, user)
    except (NvError, SchemaError) as error:
        sys.stdout.write(f"{error}\n")
        return 1


def run(argv: list[str], user: str) -> int:
    """Run one command as a user."""
    words = tuple(argv)
    if words[:1] == ("set",) and len(words) > 1:
        return _set(words[1:], user)
    if words[:1] == ("unset",):
        return _unset(words[1:], user)
    if words[:1] == ("show",):
        return show.main(list(words[1:]), user)
    if words[:1] == ("config",) and len(words) > 1:
        return _config(list(words[1:]), user)
    if words[:1] in {("--version",), ("-h",), ("--help",)}:
        sys.stdout.write("Usage:\n  nv <command> [options] [<args>]\n")
        return 0
    raise NvError(f"Error: Invalid Command: {' '.join(words)}".rstrip())


def _set(words: Setting, user: str) -> int:
    single = schema.expand(words)
    for item in single:
        schema.check(item)
    with revisions.change() as book:
        candidate = book.candidate(user)
        for item in single:
            candidate.settings = schema.put(candidate.settings, item)
    return 0


def _unset(words: Setting, user: str) -> int:
    single = schema.expand(words) if words else [()]
    for item in single:
        schema.check(item, partial=True)
    with revisions.change() as book:
        candidate = book.candidate(user)
        for item in single:
            candidate.settings = schema.drop(candidate.settings, item)
    return 0


def _config(words: list[str], user: str) -> int:
    options = document.options(words[1:])
    acts = {
        "apply": _apply, "diff": _diff, "show": _show, "detach": _detach, "save": _save, "history": _history,
        "revision": _revision, "replace": _replace, "patch": _patch, "delete": _delete, "confirm": _confirm_alias,
    }  # fmt: skip
    if words[0] not in acts:
        known = ", ".join(f"'{name}'" for name in sorted(acts) if name != "confirm")
        raise NvError(f"Error: Invalid Command: '{words[0]}' is not one of [{known}]")
    return acts[words[0]](options, user)


def _apply(options: document.Options, user: str) -> int:
    if options.flags & {"--confirm-yes", "--confirm-no"}:
        return _settle(keep="--confirm-yes" in options.flags)
    if "--confirm-status" in options.flags:
        return _status()
    with revisions.change() as book:
        if book.confirm is not None:
            raise NvError(
                "Error: a configuration apply waits for confirmation. Use 'nv config apply --confirm-yes' or "
                "'--confirm-no' first."
            )
        candidate = _candidate(book, options, user)
        if candidate is None or book.revisions[candidate].settings == book.running().settings:
            book.detach(user)
            sys.stdout.write("Warning: config apply executed with no config diff.\n")
            return 0
        _refuse_invalid(candidate, book.revisions[candidate], book.running())
        _put_in_force(book, candidate, options)
        settings = book.running().settings
    apply.bring(settings)
    sys.stdout.write(f"applied [rev_id: {candidate}]\n")
    if "--confirm" in options.flags:
        sys.stdout.write(
            f"Confirmation is needed within {_seconds(options)} seconds: use 'nv config apply --confirm-yes', or "
            "the configuration is rolled back.\n"
        )
    return 0


def _candidate(book: Book, options: document.Options, user: str) -> str | None:
    if options.words:
        if options.words[0] not in book.revisions:
            raise NvError(f"Error: Revision {options.words[0]} was not found")
        name = str(max(int(key) for key in book.revisions) + 1)
        book.revisions[name] = Revision("pending", user, time.time(), set(book.revisions[options.words[0]].settings))
        return name
    return book.attached.get(user)


def _refuse_invalid(name: str, candidate: Revision, running: Revision) -> None:
    found = ports.flaw(candidate.settings, running.settings) or routing.flaw(candidate.settings)
    if found:
        raise NvError(f"Invalid config [rev_id: {name}]\n  Error: {found}")


def _put_in_force(book: Book, name: str, options: document.Options) -> None:
    previous = book.applied
    book.revisions[previous].state = "inactive"
    book.applied = name
    book.running().date = time.time()
    book.attached = {user: number for user, number in book.attached.items() if number != name}
    if "--confirm" in options.flags:
        book.running().state = "confirm"
        book.confirm = {"previous": previous, "deadline": time.time() + _seconds(options)}
        return
    book.running().state = "applied"
    _save_when_automatic(book)


def _save_when_automatic(book: Book) -> None:
    if not grammar.disabled(book.running().settings, "system", "config", "auto-save"):
        book.startup = book.applied


def _seconds(options: document.Options) -> int:
    text = options.values.get("--confirm", "")
    if not text:
        return _DEFAULT_CONFIRM_S
    number, unit = (text[:-1], text[-1]) if text[-1] in _UNITS else (text, "m")
    if not number.isdigit():
        raise NvError(f"Error: '{text}' is not a valid confirm time")
    return int(number) * _UNITS[unit]


def _settle(*, keep: bool) -> int:
    with revisions.change() as book:
        if book.confirm is None:
            raise NvError("Error: no configuration apply waits for confirmation")
        name = book.applied
        if keep:
            book.confirm = None
            book.running().state = "applied"
            _save_when_automatic(book)
        else:
            revisions.revert(book)
        settings = book.running().settings
    apply.bring(settings)
    sys.stdout.write(f"applied [rev_id: {name}]\n" if keep else f"rolled back [rev_id: {name}]\n")
    return 0


def _status() -> int:
    waiting = revisions.read().confirm
    left = int(waiting["deadline"] - time.time()) if waiting else 0
    sys.stdout.write(f"{left} seconds left until automatic rollback\n" if waiting else "No pending confirmation\n")
    return 0


def _confirm_alias(_options: document.Options, _user: str) -> int:
    return _settle(keep=True)


def _diff(options: document.Options, user: str) -> int:
    book = revisions.read()
    names = [*options.words]
    if len(names) < 2:  # noqa: PLR2004
        names = [*(names or ["applied"]), "pending" if book.pending(user) or not names else "applied"]
    first, second = book.get(names[0], user), book.get(names[1], user)
    if not options.words and second is None:
        return 0
    if first is None or second is None:
        raise NvError("Error: Revision was not found")
    added, removed = second.settings - first.settings, first.settings - second.settings
    removed = {
        words
        for words in removed
        if not schema.single_valued(words) or not any(item[:-1] == words[:-1] for item in added)
    }
    shown = options.values.get("-o", "yaml")
    sys.stdout.write(document.difference(_masked(added), _masked(removed), shown))
    return 0


def _show(options: document.Options, user: str) -> int:
    book = revisions.read()
    name = options.values.get("-r") or ("pending" if "--pending" in options.flags else "applied")
    revision = book.get(name, user)
    if revision is None:
        raise NvError(f"Error: Revision {name} was not found")
    layout, settings = options.values.get("-o", "yaml"), _masked(revision.settings)
    if layout == "commands":
        sys.stdout.write("".join(f"{line}\n" for line in schema.compress(settings)))
        return 0
    shown = [{"header": show.header()}, {"set": schema.tree(settings)}]
    sys.stdout.write(json.dumps(shown, indent=2) + "\n" if layout == "json" else document.yaml(shown))
    return 0


def _masked(settings: set[schema.Setting]) -> set[schema.Setting]:
    """Return settings as they are shown: a hash is a star (`nv config show` of Cumulus Linux 5 switches)."""
    return {(*words[:-1], grammar.HIDDEN) if words[-2:-1] == ("hashed-password",) else words for words in settings}


def _detach(_options: document.Options, user: str) -> int:
    with revisions.change() as book:
        book.detach(user)
    return 0


def _delete(options: document.Options, user: str) -> int:
    with revisions.change() as book:
        name = options.words[0] if options.words else ""
        found = book.revisions.get(name)
        if found is None:
            raise NvError(f"Error: Revision {name} was not found")
        if found.state != "pending":
            raise NvError(f"Error: Revision {name} is in state {found.state} and cannot be deleted")
        book.revisions.pop(name)
        book.attached = {who: number for who, number in book.attached.items() if number != name}
    _ = user
    return 0


def _save(_options: document.Options, _user: str) -> int:
    with revisions.change() as book:
        if book.confirm is None:
            book.startup = book.applied
        settings, name = book.running().settings, book.applied
    path = paths.at("/etc/nvue.d/startup.yaml")
    path.write_text(document.yaml([{"header": show.header()}, {"set": schema.tree(settings)}]))
    sys.stdout.write(f"saved [rev_id: {name}]\n")
    return 0


def _history(options: document.Options, _user: str) -> int:
    book = revisions.read()
    rows = [
        (name, item)
        for name, item in book.revisions.items()
        if item.state in {"applied", "inactive", "reverted", "confirm"}
    ]
    if options.values.get("-o") == "json":
        found = {
            name: {"date": _date(item), "user": item.user, "message": item.message, "state": item.state}
            for name, item in rows
        }
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return 0
    sys.stdout.write(
        "Revision  Date                 User     State\n--------  -------------------  -------  --------\n"
    )
    for name, item in rows:
        sys.stdout.write(f"{name:<8}  {_date(item):<19}  {item.user:<7}  {item.state}\n")
    return 0


def _revision(options: document.Options, user: str) -> int:
    book = revisions.read()
    found: dict[str, dict[str, str]] = {
        name: {"date": _date(item), "state": item.state, "user": item.user, "type": "-"}
        for name, item in book.revisions.items()
    }
    found["applied"] = {"state": "applied", "rev_id": book.applied}
    found["startup"] = {"state": "applied", "rev_id": book.startup}
    if options.values.get("-o") == "json":
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return 0
    _ = user
    sys.stdout.write(document.yaml(found))
    return 0


def _date(item: Revision) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(item.date))


def _replace(options: document.Options, user: str) -> int:
    return _load(options, user, keep=False)


def _patch(options: document.Options, user: str) -> int:
    return _load(options, user, keep=True)


def _load(options: document.Options, user: str, *, keep: bool) -> int:
    path = Path(options.words[0]) if options.words else None
    if path is None or not path.is_file():
        raise NvError(f"Error: No such file or directory: '{path}'")
    loaded = document.load(path.read_text())
    for words in loaded:
        schema.check(words, partial=True)
    with revisions.change() as book:
        candidate = book.candidate(user)
        candidate.settings = candidate.settings if keep else set()
        for words in loaded:
            candidate.settings = schema.put(candidate.settings, words)
    return 0
