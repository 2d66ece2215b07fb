#!/usr/bin/env -S python3 -S
"""sudo for tests: it changes no user. Options, texts, exit codes and its use of standard input are sudo's own.

Captured from sudo 1.9.13p3 (Debian 12) in a container, each by `su USER -c 'printf ... | sudo -k -S -p "" -H -- true'`:
a wrong password, several of them, none, a user who is not in sudoers, one who may run `id` only, one with requiretty,
one with NOPASSWD. sudo reads its password byte by byte, so that the rest of standard input is the command's. A user who
is not in sudoers is told so only after the right password, and `sudo -n` prints the same for all who would be asked.

Its rules are the JSON file in FAKE_SUDO: ``password``, and ``rule``: all, nopasswd, none, id or requiretty. What it was
called with and the passwords that were tried are written beside it (``.calls``, ``.tried``).
"""

import json
import os
import sys
from pathlib import Path

_TRIES = 3
"""passwd_tries of sudoers(5)."""


def main(argv: list[str]) -> int:
    """Check the password, and become the command."""
    place = Path(os.environ["FAKE_SUDO"])
    rules = json.loads(place.read_text(encoding="utf-8"))
    _note(place.with_suffix(".calls"), json.dumps(argv))
    options, command = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    assert set(options) <= {"-n", "-k", "-S", "-p", "", "-H"}, options
    _say("sudo: unable to resolve host node01: Temporary failure in name resolution")
    refusal = _refusal(rules, options, command, place.with_suffix(".tried"))
    if refusal:
        _say(refusal)
        return 1
    return os.execvpe(command[0], command, os.environ)  # noqa: S606 - as sudo does


def _refusal(rules: dict[str, str], options: list[str], command: list[str], tried: Path) -> str:
    if rules["rule"] == "requiretty":
        return "sudo: sorry, you must have a tty to run sudo"
    if rules["rule"] == "nopasswd":
        return ""
    if "-n" in options:
        return "sudo: a password is required"
    for count in range(_TRIES):
        line = _line()
        if not line:
            attempts = f"{count} incorrect password attempt{'s' * (count > 1)}" if count else "a password is required"
            return f"\nsudo: no password was provided\nsudo: {attempts}"
        _note(tried, line)
        if line == rules["password"]:
            return _unlisted(rules["rule"], command)
        if count + 1 < _TRIES:
            _say("Sorry, try again.")
    return f"sudo: {_TRIES} incorrect password attempts"


def _unlisted(rule: str, command: list[str]) -> str:
    if rule == "none":
        return "tester is not in the sudoers file."
    if rule == "id":
        words = " ".join([f"/usr/bin/{command[0]}", *command[1:]])
        return f"Sorry, user tester is not allowed to execute '{words}' as root on node01."
    return ""


def _line() -> str:
    out = b""
    while (byte := os.read(0, 1)) not in {b"", b"\n"}:
        out += byte
    return out.decode()


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _note(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
