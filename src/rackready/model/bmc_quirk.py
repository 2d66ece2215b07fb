"""What BMCs of a vendor do differently from the Redfish standard, and the answer to it."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rackready.model.base import Line, Model, ProfileId

QuirkKind = Literal[
    "account-uri",
    "if-match-any",
    "boot-all-fields",
    "boot-shown-as",
    "secure-boot-by-job",
    "eject-keeps-inserted",
    "retry-message",
    "reset-type-instead",
    "task-missing-tries",
    "task-gone-is-done",
    "task-waits-for-boot",
    "ac-cycle",
]
_TEXT_ANSWER = frozenset({"account-uri", "boot-shown-as", "retry-message", "reset-type-instead", "ac-cycle"})
_TRIES_ANSWER = frozenset({"retry-message", "task-missing-tries"})


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        message = f"{text!r} is no regular expression: {error}"
        raise ValueError(message) from error
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]


class BmcMake(Model):
    """What a BMC says of itself. Empty: it has not said it yet."""

    vendor: str = ""
    """Vendor of the service root, else the first key of its Oem."""
    product: str = ""
    model: str = ""
    firmware: str = ""


class BmcQuirk(Model):
    """One quirk. It applies where vendor, and each of product, model, user and firmware that it states, match."""

    vendor: list[Line] = Field(min_length=1, description="Vendor in the service root, any case; * for every vendor")
    product: Pattern = Field("", description="regular expression for Product in the service root")
    model: Pattern = Field("", description="regular expression for Model of the system")
    firmware_from: str = Field("", description="first firmware version of the BMC that has it")
    firmware_below: str = Field("", description="first firmware version of the BMC that has it no more")
    user: str = Field("", description="only for this user")
    quirk: QuirkKind
    value: str = Field("", description="what the quirk is about: a boot target, a reset type, a message id")
    answer: str = Field("", description="what is done instead; a path may hold {user}")
    tries: int = Field(1, ge=1, le=60, description="how often the request is sent at most")
    pause_s: float = Field(0.0, ge=0, le=120, description="pause between tries, in seconds")
    source: str = Field(min_length=5, description="where it is described")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        wants = "value" if self.quirk == "retry-message" else "answer"
        if self.quirk in _TEXT_ANSWER and not getattr(self, wants):
            message = f"quirk {self.quirk} needs {wants}"
            raise ValueError(message)
        if (self.tries > 1) != (self.quirk in _TRIES_ANSWER):
            message = f"quirk {self.quirk}: tries belong to {', '.join(sorted(_TRIES_ANSWER))} and to no other"
            raise ValueError(message)
        return self

    def applies(self, make: BmcMake, user: str = "") -> bool:
        """Return whether it applies to a BMC. What the BMC has not said does not match."""
        vendors = {name.lower() for name in self.vendor}
        return (
            ("*" in vendors or make.vendor.lower() in vendors)
            and re.search(self.product, make.product) is not None
            and re.search(self.model, make.model) is not None
            and self.user in {"", user}
            and self._in_range(make.firmware)
        )

    def _in_range(self, firmware: str) -> bool:
        if not self.firmware_from and not self.firmware_below:
            return True
        if not firmware:
            return False
        found = version(firmware)
        return version(self.firmware_from) <= found and (
            not self.firmware_below or found < version(self.firmware_below)
        )


def version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare: 7.00.60.00 comes before 7.10.30.00."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


class BmcQuirks(Model):
    """Every known quirk."""

    id: ProfileId
    quirks: list[BmcQuirk] = Field(min_length=1)
