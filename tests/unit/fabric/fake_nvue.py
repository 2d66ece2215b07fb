"""A switch that answers the driver's NVUE commands: candidate, apply with a timed way back, confirm, revert."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from rackready.drivers.switch.nvue_owned import expand_unsets, within
from rackready.drivers.switch.nvue_text import Tokens, expand_commands
from rackready.drivers.switch.session import SwitchUnreachableError
from rackready_sim.programs.hwsim.switch import schema

Settings = dict[Tokens, str]


def settings_of(commands: str) -> Settings:
    """Key to value of every single setting: a later value replaces an earlier one, as NVUE does."""
    return {
        (
            tokens[:-1] if tokens[-2] in {"mtu", "state", "access", "description", "type", "mode", "enable"} else tokens
        ): tokens[-1]
        for tokens in sorted(expand_commands(commands))
    }


@dataclass
class FakeNvue:
    """``dies_at``: the session breaks after the command that begins so took effect. ``documents``: it accepts texts."""

    release: str = "5.15.0"
    applied: Settings = field(default_factory=dict)
    dies_at: str = ""
    ignores_mtu: bool = False
    forgets: bool = False
    """Whether a detached candidate is gone: NVIDIA's documents disagree."""
    documents: bool = True
    links_down: frozenset[str] = frozenset()
    revisions: dict[str, dict[str, str]] = field(default_factory=lambda: {"1": {"state": "applied", "user": "root"}})
    contents: dict[str, Settings] = field(default_factory=dict)
    before: Settings | None = None
    sent: list[str] = field(default_factory=list)
    root: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Answers of lldpcli to `show neighbors` and `show chassis`."""
    attached: str = ""

    def run(self, command: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        del timeout_s
        self.sent.append(command)
        answer = self._answer(command)
        if self.dies_at and command.startswith(self.dies_at):
            self.dies_at = ""
            message = f"leaf01: `{command}` - connection lost"
            raise SwitchUnreachableError(message)
        return answer

    def feed(self, command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Of all commands that read something, it knows the one that hands a document over."""
        del timeout_s
        assert "nv config patch" in command, command
        self.sent.append("nv config patch")
        code, answer = self._patch(yaml.safe_load(text)) if self.documents else self._refused_document()
        if self.dies_at and "nv config patch".startswith(self.dies_at):
            self.dies_at = ""
            raise SwitchUnreachableError("leaf01: `nv config patch` - connection lost")
        return code, answer

    def _patch(self, document: list[dict[str, Any]]) -> tuple[int, str]:
        answers = [self._set(shlex.join(("nv", "set", *words))) for part in document for words in leaves(part["set"])]
        return max(answers, default=(0, ""))

    def _refused_document(self) -> tuple[int, str]:
        """The candidate was made before the document was read."""
        self.attached = self.attached or self._new("cumulus")
        self.contents[self.attached] = dict(self.applied)
        return 1, "Error: Invalid Command\n"

    def as_root(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> tuple[int, str]:
        """lldpcli, beside NVUE."""
        del timeout_s
        self.sent.append(" ".join(argv))
        return self.root.get(argv[-2], (1, "unable to connect to socket /run/lldpd.socket\n"))

    def close(self) -> None:
        """Nothing to end."""

    def pending_by(self, user: str, commands: str) -> str:
        """Somebody begins a change by hand."""
        number = self._new(user)
        self.contents[number] = self.applied | settings_of(commands)
        return number

    def time_runs_out(self) -> None:
        """The way back: what was not confirmed is taken back."""
        if self.before is not None:
            self.applied, self.before = self.before, None
            for value in self.revisions.values():
                value["state"] = "inactive" if value["state"] == "confirm" else value["state"]

    def _new(self, user: str) -> str:
        number = str(max(map(int, self.revisions)) + 1)
        self.revisions[number] = {"state": "pending", "user": user}
        return number

    def _answer(self, command: str) -> tuple[int, str]:
        if command.startswith("nv set "):
            return self._set(command)
        if command.startswith("nv unset "):
            return self._unset(command)
        for pattern, method in _ANSWERS:
            match = re.fullmatch(pattern, command)
            if match:
                return method(self, *match.groups())
        return 1, f"Error: Invalid command: {command}\n"

    def _set(self, command: str) -> tuple[int, str]:
        if (
            "roce" in command
            and (("state" in command) != (self.release >= "5.15"))
            and ("state" in command or "enable" in command)
        ):
            return 1, "Error: Invalid parameter. One of: mode, enable\n"
        if not self.attached:
            self.attached = self._new("cumulus")
            self.contents[self.attached] = dict(self.applied)
        self.contents[self.attached] |= settings_of(command)
        return 0, f"created [rev_id: {self.attached}]\n"

    def _unset(self, command: str) -> tuple[int, str]:
        if not self.attached:
            self.attached = self._new("cumulus")
            self.contents[self.attached] = dict(self.applied)
        heads = expand_unsets(command)
        have = self.contents[self.attached]
        self.contents[self.attached] = {
            key: value for key, value in have.items() if not within({_tokens(key, value)}, heads)
        }
        return 0, f"created [rev_id: {self.attached}]\n"

    def _show_config(self, revision: str | None) -> tuple[int, str]:
        have = self.applied if revision is None else self.contents.get(revision, self.applied)
        return 0, "".join(
            f"{line}\n" for line in schema.compress(_tokens(key, value)[2:] for key, value in have.items())
        )

    def _diff(self) -> tuple[int, str]:
        after = self.contents.get(self.attached, self.applied)
        parts = (
            ("unset", {item for item in self.applied.items() if item[0] not in after}),
            ("set", set(after.items()) - set(self.applied.items())),
        )
        return 0, "".join(
            f"- {verb}:\n" + "".join(f"    {' '.join(key[2:])}: {value}\n" for key, value in sorted(items))
            for verb, items in parts
            if items
        )

    def _apply(self, seconds: str) -> tuple[int, str]:
        assert int(seconds) > 0
        if not self.attached:
            return 1, "Error: No pending revision\n"
        self.before, self.applied = self.applied, dict(self.contents[self.attached])
        self.revisions[self.attached]["state"] = "confirm"
        self.attached = ""
        return 0, "applied_and_confirm [rev_id: 2]\n"

    def _confirm(self) -> tuple[int, str]:
        waiting = [value for value in self.revisions.values() if value["state"] == "confirm"]
        if not waiting:
            return 1, "Error: Nothing to confirm\n"
        for value in self.revisions.values():
            value["state"] = {"applied": "inactive", "confirm": "applied"}.get(value["state"], value["state"])
        self.before = None
        return 0, "applied\n"

    def _revert(self) -> tuple[int, str]:
        self.time_runs_out()
        return 0, "reverted\n"

    def _detach(self) -> tuple[int, str]:
        if self.forgets:
            self.revisions.pop(self.attached, None)
        self.attached = ""
        return 0, ""

    def _delete(self, revision: str) -> tuple[int, str]:
        self.revisions.pop(revision)
        self.attached = "" if self.attached == revision else self.attached
        return 0, ""

    def _interfaces(self) -> tuple[int, str]:
        out: dict[str, object] = {}
        for (_, _, what, *rest), value in self.applied.items():
            if what == "interface" and rest[1:] == ["link", "mtu"]:
                oper = "down" if rest[0] in self.links_down else "up"
                out[rest[0]] = {
                    "type": "swp",
                    "link": {
                        "admin-status": "up",
                        "oper-status": oper,
                        "mtu": 1500 if self.ignores_mtu else int(value),
                    },
                }
        return 0, json.dumps(out)

    def _roce(self) -> tuple[int, str]:
        if not any(key[2:4] == ("qos", "roce") and value in {"enabled", "on"} for key, value in self.applied.items()):
            return 0, "{}"
        rows = {
            str(p): {"dscp": ",".join(str(d) for d in range(8 * p, 8 * p + 8)), "pcp": str(p), "switch-prio": p}
            for p in range(8)
        }
        pfc = {"pfc-priority": 3, "rx-enabled": "enabled", "tx-enabled": "enabled"}
        return 0, json.dumps(
            {"state": "enabled", "mode": "lossless", "pfc": pfc, "trust": {"trust-mode": "pcp,dscp"}, "prio-map": rows}
        )


def leaves(tree: dict[str, Any], head: Tokens = ()) -> Iterator[Tokens]:
    """Give the words of every setting in a document."""
    for key, value in tree.items():
        words = (*head, str(key))
        if value == {}:
            yield words
        elif isinstance(value, dict):
            yield from leaves(value, words)
        else:
            yield (*words, str(value))


def _tokens(key: Tokens, value: str) -> Tokens:
    return key if key[-1] == value else (*key, value)


_ANSWERS = (
    (
        r"nv show system -o json",
        lambda self: (
            0,
            json.dumps({"hostname": "leaf01", "product-name": "Cumulus Linux", "product-release": self.release}),
        ),
    ),
    (r"nv config revision -o json", lambda self: (0, json.dumps(self.revisions))),
    (r"nv config show(?: -r (\S+))? -o commands", FakeNvue._show_config),
    (r"nv config diff", FakeNvue._diff),
    (r"nv config apply -y --confirm (\d+)s", FakeNvue._apply),
    (r"nv config apply --confirm-yes", FakeNvue._confirm),
    (r"nv config apply --confirm-no", FakeNvue._revert),
    (r"nv config save", lambda _self: (0, "saved\n")),
    (r"nv config detach", FakeNvue._detach),
    (r"nv config delete (\S+)", FakeNvue._delete),
    (r"nv show interface -o json", FakeNvue._interfaces),
    (r"nv show qos roce -o json", FakeNvue._roce),
)
