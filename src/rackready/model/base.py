"""The base class of every model, and small types that several models share."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from rackready.model.printable import readable, unseen


class Model(BaseModel):
    """Frozen model that refuses unknown keys, infinity and NaN: a misspelt key is an error, never a silent default.

    A validator is built at its first use: to build all of them was a third of the start of a command, which needs few.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True, allow_inf_nan=False)


NAME_PATTERN = r"^[a-z][a-z0-9-]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A host name label (RFC 1123), lower case: node and switch names become DNS names and Slurm node names."""

ProfileId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
"""Id of a profile: the stem of its file below ``profiles/``."""

MacAddress = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$", to_lower=True)]

Sha256 = Annotated[str, StringConstraints(pattern=r"^([0-9A-Fa-f]{2}:){31}[0-9A-Fa-f]{2}$", to_lower=True)]
"""SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` prints it, in lower case."""


_RANGE = re.compile(
    r"^(?P<stem>[A-Za-z]+\d+s|[A-Za-z]+(?:\d+/)+|[A-Za-z]*)(?P<first>\d+)(?:-(?P=stem)?(?P<last>\d+))?$"
)
_CAGES = re.compile(r"^(?P<stem>[A-Za-z]+)(?P<first>\d+)(?P<rest>/\d+)-(?P=stem)(?P<last>\d+)(?P=rest)$")
_PLACES = re.compile(r"^(?P<stem>[A-Za-z]+)(?P<first>\d+(?:/\d+)+)-(?P=stem)(?P<last>\d+(?:/\d+)+)$")
_CAGES_AND_SUB_PORTS = re.compile(r"^(?P<stem>[A-Za-z]+)(?P<first>\d+)s(?P<from>\d)-(?P=stem)(?P<last>\d+)s(?P<to>\d)$")


def expand_range(text: str) -> list[str]:
    """Expand ``swp1-swp4`` or ``1-4`` or ``swp7`` or the sub-ports ``swp1s0-swp1s3`` to the list of single names.

    Names with slashes count by their last number (``Ethernet1/1-Ethernet1/8``), or by cage where it is the same at both
    ends (``Ethernet1/1-Ethernet8/1``). Ports of several cages (``swp1s0-swp2s1``, ``IB1/1/1-IB1/4/2``) are as many of
    each cage as the highest number says; the switch knows better (``design/written_ports``).
    Raises ValueError when the text is no such range, is descending or has more than ``MOST_NAMES`` names.
    """
    match = _CAGES.match(text) or _RANGE.match(text)
    if match is None and (split := _CAGES_AND_SUB_PORTS.match(text)) is not None:
        return _sub_ports(text, split)
    if (
        match is None
        and (ends := _PLACES.match(text)) is not None
        and ends["first"].count("/") == ends["last"].count("/")
    ):
        return _places(text, ends)
    if match is None:
        message = f"{text!r} is not a range such as swp1-swp4 or 1-4"
        raise ValueError(message)
    first, last = int(match["first"]), int(match["last"] or match["first"])
    _require_ascending(text, first, last)
    rest = match.groupdict().get("rest", "")
    return [f"{match['stem']}{number}{rest}" for number in range(first, last + 1)]


def _require_ascending(text: str, first: int, last: int) -> None:
    if last < first:
        message = f"{text!r} is a descending range"
        raise ValueError(message)
    if last - first >= MOST_NAMES:
        message = f"{text!r} is more than {MOST_NAMES} names"
        raise ValueError(message)


def _sub_ports(text: str, ends: re.Match[str]) -> list[str]:
    """Return the sub-ports from one end to the other. Raises ValueError."""
    ways = max(int(ends["from"]), int(ends["to"])) + 1
    first, last = int(ends["first"]) * ways + int(ends["from"]), int(ends["last"]) * ways + int(ends["to"])
    _require_ascending(text, first, last)
    return [f"{ends['stem']}{number // ways}s{number % ways}" for number in range(first, last + 1)]


def _places(text: str, ends: re.Match[str]) -> list[str]:
    """Return the names from one end to the other, counted by their last number first. Raises ValueError."""
    first, last = ([int(part) for part in ends[end].split("/")] for end in ("first", "last"))
    low = [min(1, *pair) for pair in zip(first, last, strict=True)]
    sizes = [max(pair) - least + 1 for pair, least in zip(zip(first, last, strict=True), low, strict=True)]
    start, end = (_value(parts, low, sizes) for parts in (first, last))
    _require_ascending(text, start, end)
    return [f"{ends['stem']}{_parts(value, low, sizes)}" for value in range(start, end + 1)]


def _value(parts: list[int], low: list[int], sizes: list[int]) -> int:
    out = 0
    for part, least, size in zip(parts, low, sizes, strict=True):
        out = out * size + part - least
    return out


def _parts(value: int, low: list[int], sizes: list[int]) -> str:
    out: list[str] = []
    for least, size in zip(reversed(low), reversed(sizes), strict=True):
        value, rest = divmod(value, size)
        out.insert(0, str(rest + least))
    return "/".join(out)


_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_SPAN = re.compile(r"^(\d+)(?:-(\d+))?$")
MOST_NAMES = 200_000
"""Longest range of names: above what any site has of one kind, and small enough that a typo does not fill memory."""


def expand_names(text: str) -> list[str]:
    """Expand a host list in Slurm's notation: ``gpu[01-32]``, ``a[01-04,07]``, ``p[1-2]-leaf[01-16]``.

    Several brackets give all combinations, the last one fastest. Leading zeros set the width. Text without brackets is
    one name. Raises ValueError when a bracket is empty, descending or not numeric.
    """
    parts = _BRACKET.split(text)
    if "[" in "".join(parts[::2]) or "]" in "".join(parts[::2]):
        message = f"{text!r} has an unmatched bracket"
        raise ValueError(message)
    names = [parts[0]]
    for inside, after in zip(parts[1::2], parts[2::2], strict=True):
        numbers = _numbers(inside, text)
        if len(names) * len(numbers) > MOST_NAMES:
            message = f"{text!r} is more than {MOST_NAMES} names"
            raise ValueError(message)
        names = [f"{before}{number}{after}" for before in names for number in numbers]
    return names


def _numbers(inside: str, text: str) -> list[str]:
    out: list[str] = []
    for span in inside.split(","):
        match = _SPAN.match(span.strip())
        if match is None:
            message = f"{text!r}: {span!r} is not a number or a range such as 01-32"
            raise ValueError(message)
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            message = f"{text!r} is a descending range"
            raise ValueError(message)
        if int(last) - int(first) >= MOST_NAMES:
            message = f"{text!r} is more than {MOST_NAMES} names"
            raise ValueError(message)
        out += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return out


Told = Annotated[str, StringConstraints(strip_whitespace=True), AfterValidator(readable)]
"""A person's words for others to read. Surrounding blanks are removed; no visible character: refused."""
Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=10), AfterValidator(readable)]
"""Reason why something is left out, where reasons are the values of a table."""


def _one_line(value: str | Path) -> str | Path:
    """Return a value. Raises ValueError when it could begin a new line or key in a file that it is written to."""
    for letter in str(value):
        if unseen(letter):
            message = f"contains {letter!a} - Expected: one line of visible characters"
            raise ValueError(message)
    return value


def _one_word(text: str) -> str:
    _one_line(text)
    if " " in text:
        message = "contains a blank - Expected: one word"
        raise ValueError(message)
    return text


Line = Annotated[str, AfterValidator(_one_line)]
"""One line of text for a configuration file, a command or a request."""
Word = Annotated[str, StringConstraints(min_length=1), AfterValidator(_one_word)]
"""One word of text, where a blank would begin the next field."""
PathLine = Annotated[Path, AfterValidator(_one_line)]
"""A path for a configuration file or a command: one line."""

_KEY_IN_FILE = r"^[^#]+#[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"


def _keyed(text: str) -> str:
    """Return a text. Raises ValueError unless it names a file and a key in it."""
    if not re.match(_KEY_IN_FILE, str(_one_line(text))):
        message = "write FILE#KEY, and keys of mappings within mappings with dots: secrets.sops.yml#bmc.node01"
        raise ValueError(message)
    return text


KeyInFile = Annotated[str, AfterValidator(_keyed)]
"""A key in an encrypted file: ``secrets.sops.yml#bmc.node01``."""


class SecretRef(Model):
    """The place of a secret. The secret itself is never in a site file.

    Exactly one of ``file`` (path, read as UTF-8, one trailing newline removed), ``env`` (name of an environment
    variable of the controller), ``sops`` and ``vault`` (FILE#KEY of an encrypted file).
    """

    file: PathLine | None = Field(None, description="file that contains only the secret; mode 0600")
    env: str | None = Field(None, description="environment variable of the controller that holds the secret")
    sops: KeyInFile | None = Field(
        None,
        description="FILE#KEY in a YAML, JSON or binary file of sops, e.g. secrets.sops.yml#bmc.node01",
    )
    vault: KeyInFile | None = Field(
        None, description="FILE#KEY in a YAML file of Ansible Vault, encrypted as a whole or value by value (`!vault`)"
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> SecretRef:
        if sum(value is not None for value in (self.file, self.env, self.sops, self.vault)) != 1:
            message = "give exactly one of file, env, sops and vault"
            raise ValueError(message)
        return self

    @model_serializer(mode="wrap")
    def _without_new_absent(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the fields. One that came later is left out while unused: digests of earlier runs stay as they are."""
        found: dict[str, Any] = write(self)
        return {key: value for key, value in found.items() if value is not None or key not in {"sops", "vault"}}

    @property
    def encrypted(self) -> tuple[Path, list[str]] | None:
        """The encrypted file and the keys in it, from the outermost; None for another kind of place."""
        text = self.sops or self.vault
        if text is None:
            return None
        file, _, keys = text.partition("#")
        return Path(file), keys.split(".")

    def beside(self, suffix: str) -> SecretRef:
        """Return the place of another secret of the same kind whose name has a suffix: file, variable or key."""
        if self.file is not None:
            return SecretRef(file=self.file.with_name(self.file.name + suffix))
        kind = next(name for name in ("env", "sops", "vault") if getattr(self, name) is not None)
        return SecretRef.model_validate({kind: getattr(self, kind) + suffix})

    def __str__(self) -> str:
        """Return the place of the secret for messages, never the secret."""
        if self.file is not None:
            return f"file {self.file}"
        if self.env is not None:
            return f"environment variable {self.env}"
        return f"sops file {self.sops}" if self.sops is not None else f"vault file {self.vault}"


def _as_day(value: object) -> object:
    """Return a value. Raises ValueError for numbers, which pydantic would read as seconds since 1970."""
    if isinstance(value, date) or (isinstance(value, str) and _DAY.match(value)):
        return value
    message = "write a day as 2027-03-01"
    raise ValueError(message)


_DAY = re.compile(r"^\d{4}-\d{2}-\d{2}$")
Day = Annotated[date, BeforeValidator(_as_day)]
"""A calendar day in ISO 8601 form."""


def _is_names(text: str) -> str:
    expand_names(text)
    return text


Names = Annotated[str, AfterValidator(_is_names)]
"""One name, or a host list such as ``gpu[01-32]``."""


def _is_range(text: str) -> str:
    expand_range(text)
    return text


RangeText = Annotated[str, AfterValidator(_is_range)]
"""A range of ports or rails: ``swp1-swp4`` or ``1-4``."""

Rate = Literal[100, 200, 400, 800]
"""Port rate in Gb/s per direction."""
