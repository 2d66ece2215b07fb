"""Commands that read no site use the profiles of `--env`; `schema --of` prints the schema of each kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rackready.profiles import loader, scope

Call = Callable[..., tuple[int, str, str]]
PACKAGED = Path(loader.__file__).parent


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    yield
    scope.use(())


def box(tmp_path: Path, text: str) -> None:
    file = tmp_path / "inventories/sim/profiles/platform/lab_box.yml"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")


def test_size_uses_the_profiles_of_an_environment(call: Call, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    shape = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
    config.write_text(json.dumps({**shape, "intermediate_size": 14336, "vocab_size": 128256, "model_type": "llama"}))
    words = ("size", "serve", "--config", str(config), "--on", "lab_box")
    text = (PACKAGED / "platform/dgx_h100.yml").read_text(encoding="utf-8")
    box(tmp_path, text.replace("id: dgx_h100", "id: lab_box"))
    assert call(*words)[0] == 2
    code, out, err = call(*words, "--env", "sim")
    assert (code, err) == (0, "")
    assert "lab_box" in out


def test_size_refuses_a_wrong_profile_of_the_environment(call: Call, tmp_path: Path) -> None:
    box(tmp_path, "id: lab_box\n")
    code, _, err = call("size", "serve", "--config", "none.json", "--env", "sim")
    assert code == 2
    assert "inventories/sim/profiles/platform/lab_box.yml: manufacturer: is required and missing. Add it." in err


@pytest.mark.parametrize("kind", ["gpu", "platform", "switch", "software", "parts"])
def test_the_schema_of_each_kind_is_printed(call: Call, kind: str) -> None:
    code, out, _ = call("schema", "--of", kind)
    assert (code, "id" in json.loads(out)["properties"]) == (0, True)
