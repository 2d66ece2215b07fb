"""Profiles of one site, as files of its folder."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, PrivateAttr

from rackready.model.base import Model, ProfileId

OwnFamily = Literal["gpu", "platform", "switch", "software", "parts"]
"""Profile families that a site may override."""
OWN_FAMILIES: tuple[OwnFamily, ...] = get_args(OwnFamily)


class OwnProfile(Model):
    """One profile of a site: ``inventories/<env>/profiles/<family>/<id>.yml``."""

    family: OwnFamily
    id: ProfileId
    file: str = Field(description="path of the file, for messages")
    text: str = Field(description="what the file holds: a campaign keeps it, so that an edit does not change its run")


class WithOwnProfiles(Model):
    """A site with the profiles of its folder, which are not part of the site file."""

    _own_profiles: tuple[OwnProfile, ...] = PrivateAttr(default=())

    @property
    def own_profiles(self) -> tuple[OwnProfile, ...]:
        """The profiles of its folder."""
        return self._own_profiles

    def with_own_profiles(self, own: tuple[OwnProfile, ...]) -> Self:
        """Return this site with the profiles of its folder."""
        copied = self.model_copy()
        copied._own_profiles = own  # noqa: SLF001 - a copy of itself
        return copied
