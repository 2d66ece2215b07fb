"""Profiles of the site in use, and caches that keep sites apart.

See docs/adr/0015-site-profiles-by-scope.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, update_wrapper
from typing import Generic, ParamSpec, TypeVar

from rackready.model.own_profile import OwnProfile

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Scope:
    """The profiles of one site. ``digest``: SHA-256 of all of them, empty when there are none."""

    own: tuple[OwnProfile, ...] = ()
    digest: str = ""

    def find(self, family: str, wanted: str) -> OwnProfile | None:
        """Return the site's profile of that id, None when it has none."""
        return next((one for one in self.own if one.family == family and one.id == wanted), None)

    def ids(self, family: str) -> set[str]:
        """Return the ids of the site's profiles of a family."""
        return {one.id for one in self.own if one.family == family}


_NONE = Scope()
_process: list[Scope] = [_NONE]
"""The scope of the process: threads start with an empty context, so a ContextVar alone would not reach them."""
_block: ContextVar[Scope | None] = ContextVar("rackready_profiles", default=None)


def current() -> Scope:
    """Return the scope in use."""
    return _block.get() or _process[0]


def digest_of(own: Sequence[OwnProfile]) -> str:
    """Return the SHA-256 (hex) of site profiles, empty when there are none.

    The order and the place of the files do not count.
    """
    if not own:
        return ""
    lines = sorted(f"{one.family}/{one.id}\0{hashlib.sha256(one.text.encode()).hexdigest()}" for one in own)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def use(own: Sequence[OwnProfile]) -> None:
    """Use these profiles before the packaged ones from now on: in this process, or until ``unchanged`` ends."""
    scope = Scope(tuple(own), digest_of(own)) if own else _NONE
    if _block.get() is None:
        _process[0] = scope
    else:
        _block.set(scope)


@contextmanager
def unchanged() -> Iterator[None]:
    """Load other sites without changing the profiles that the rest of the process uses."""
    token = _block.set(current())
    try:
        yield
    finally:
        _block.reset(token)


class Scoped(Generic[_P, _R]):
    """A function of profiles with a cache for each scope."""

    def __init__(self, function: Callable[_P, _R]) -> None:
        update_wrapper(self, function)

        kept = lru_cache(maxsize=None)(lambda _digest, *args, **kwargs: function(*args, **kwargs))
        self._kept: Callable[..., _R] = kept
        self.cache_clear = kept.cache_clear

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Return the function's result under the scope in use."""
        return self._kept(current().digest, *args, **kwargs)
