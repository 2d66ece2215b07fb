"""`--full`: deploy and install play every node, also those that could prove that they are as released."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from rackready.campaign.request import CampaignRequest
from rackready.cli import campaign_run
from rackready.cli.main import build


@pytest.mark.parametrize("command", ["install", "optimize", "deploy"])
@pytest.mark.parametrize("options", [[], ["--full"]])
def test_full_is_part_of_the_request_and_of_the_command_to_repeat(
    command: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(campaign_run, "run", lambda *_, **given: asked.update(given))
    done = CliRunner().invoke(build([command]), [command, "--env", "prod", *options])
    assert (done.exit_code, asked["full"]) == (0, bool(options)), done.output
    words = campaign_run.command_words(command, env="prod", limit="", check=False, again=False, full=asked["full"])
    assert words == " ".join(["rackready", command, "--env", "prod", *options])


def test_a_campaign_of_an_older_version_goes_on_without_it() -> None:
    """A pending campaign was stored before there was such an option: it proves, as a new one does."""
    plain = CampaignRequest("c1", "x", "/r", "install", ("install",), ("n",), 1, (1,), 1, "d", full=True).plain()
    assert CampaignRequest.load(plain).context().full is True
    del plain["full"]
    assert CampaignRequest.load(plain).context().full is False
