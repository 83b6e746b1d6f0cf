"""Language models of a Hub: whose config says that they are no agents."""

from __future__ import annotations

from pathlib import Path

from agentzoo.analysis.inspection import Options, inspect
from agentzoo.hub.publish import push
from agentzoo.nn.pretrained import new_language_model
from hub.conftest import REPO
from hub.server import Hub, Repo


def test_inspect_tells_a_language_model_from_an_agent(hub: Hub, folder: Path, tmp_path: Path) -> None:
    new_language_model(20, 16, 2, 2, 8, "relu").save_pretrained(tmp_path / "lm")
    hub.repos["tests/lm"] = Repo()
    hub.repos["tests/lm"].commit({path.name: path.read_bytes() for path in (tmp_path / "lm").iterdir()})
    push(folder, REPO)
    language, agent = (inspect(name, Options(episodes=1)) for name in ("tests/lm", REPO))
    assert (language.kind, agent.kind) == ("language model", "dt")
    assert language.markov is not None
    assert len(language.markov.heads) == 4
