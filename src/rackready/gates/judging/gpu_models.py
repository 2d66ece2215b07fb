"""Check that the GPUs in an output are of the expected model. Drivers before R470 leave out the vendor's name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.judge import Judge

_SHOWN = 4
"""Number of models that a message names."""
_STEP = (
    "Correct the node's platform in site.yml or the profile that is named here, or replace the GPU; "
    "MIG instances are parts of GPUs: switch MIG off."
)


OTHER_MODEL = ErrorKind(
    "gpus-of-another-model",
    "{what} GPUs of another model",
    meaning="The GPUs in the output are of another model than the platform's: the output is from another node, or the "
    "site file is wrong.",
    next_step=_STEP,
)

FINDINGS = (OTHER_MODEL,)


def require_model(
    judge: Judge, where: str, what: str, found: Iterable[tuple[str, str]], wanted: Collection[str]
) -> bool:
    """Return whether all GPUs are of a wanted model; report others as an error.

    ``found``: (host, model of a GPU as printed). ``what``: start of the finding's title, such as 'x ran on'.
    """
    known = {_plain(model) for model in wanted}
    others = [(host, model) for host, model in found if _plain(model) not in known]
    if not others:
        return True
    actual = "; ".join(
        f"{model} ({count} on {host})" for (host, model), count in sorted(Counter(others).items())[:_SHOWN]
    )
    judge.error(where, OTHER_MODEL, ", ".join(sorted(wanted)), actual, what=what)
    return False


def _plain(model: str) -> str:
    return model.removeprefix("NVIDIA ").strip().casefold()
