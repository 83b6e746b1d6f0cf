"""Checkpoints of transformers and of CORL act as agents as they act there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agentzoo.agent import Agent
from agentzoo.cli.command import app
from agentzoo.errors import CheckpointError, ConfigError, SpaceError, StorageError
from agentzoo.hub.checkpoints import ImportOptions
from agentzoo.hub.importing import import_agent
from hub.server import Hub

S, A, K, STEPS = 4, 2, 3, 8  # sizes; an episode is longer than a window and than CORL's table is not
RNG = np.random.default_rng(0)
MEAN, STD = RNG.normal(size=S).astype(np.float32), RNG.uniform(0.5, 2.0, S).astype(np.float32)
OBSERVATIONS = RNG.normal(size=(STEPS, S)).astype(np.float32)
REWARDS = RNG.uniform(0.0, 3.0, STEPS)
TARGET = 40.0


def widened(network: nn.Module) -> nn.Module:
    """With weights so large that every input shows in the actions."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    return network.eval()


def played(agent: Agent) -> np.ndarray:
    """(STEPS, A) what the agent does through one episode of these observations and rewards."""
    state, found = None, []
    for t in range(STEPS):
        reward = 0.0 if t == 0 else REWARDS[t - 1]
        action, state = agent.predict(OBSERVATIONS[t], state, np.array([t == 0]), True, reward=reward)
        found.append(action)
    return np.stack(found)


def reference(act: Any, scale: float) -> np.ndarray:
    """The same episode with their network: `act` is given windows (1, k, ...) of normalized observations, actions,
    scaled returns and timesteps."""
    actions, normal = np.zeros((STEPS, A), np.float32), (OBSERVATIONS - MEAN) / STD
    returns = (TARGET - np.concatenate([[0.0], np.cumsum(REWARDS)[:-1]])) / scale
    for t in range(STEPS):
        window = slice(max(0, t + 1 - K), t + 1)
        parts = (normal[window], actions[window], returns[window].astype(np.float32), np.arange(STEPS)[window])
        with torch.no_grad():
            actions[t] = act(*(torch.from_numpy(part[None]) for part in parts))[0, -1].numpy()
    return actions


def transformers_folder(path: Path, **changes: Any) -> tuple[Path, Any]:
    transformers = pytest.importorskip("transformers")
    config = transformers.DecisionTransformerConfig(
        state_dim=S, act_dim=A, hidden_size=16, n_layer=2, n_head=2, max_ep_len=20, n_positions=64, **changes
    )
    network = widened(transformers.DecisionTransformerModel(config))
    network.save_pretrained(path)
    return path, network


OPTIONS = {"target_return": TARGET, "mean": MEAN.tolist(), "std": STD.tolist(), "rtg_scale": 10.0, "context": K}


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_transformers_checkpoints_act_the_same(tmp_path: Path, activation: str) -> None:
    folder, network = transformers_folder(tmp_path / "theirs", activation_function=activation)

    def act(states: Tensor, actions: Tensor, returns: Tensor, times: Tensor) -> Tensor:
        mask = torch.ones(times.shape, dtype=torch.long)
        found: Tensor = network(
            states=states, actions=actions, returns_to_go=returns[..., None], timesteps=times, attention_mask=mask
        ).action_preds
        return found

    expected = reference(act, 10.0)
    assert expected.std() > 0.1  # they differ from step to step
    agent = import_agent(folder, ImportOptions(**OPTIONS))
    np.testing.assert_allclose(played(agent), expected, atol=1e-5)
    again = Agent.from_pretrained(agent.save_pretrained(tmp_path / "ours"))
    np.testing.assert_array_equal(played(again), played(agent))
    (folder / "model.safetensors").unlink()  # as checkpoints were saved in 2022
    torch.save(network.state_dict(), folder / "pytorch_model.bin")
    np.testing.assert_array_equal(played(import_agent(folder, ImportOptions(**OPTIONS))), played(agent))


def test_a_checkpoint_comes_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    from hub.server import Repo

    folder, _ = transformers_folder(tmp_path / "theirs")
    repo = hub.repos["someone/decision-transformer"] = Repo()
    repo.commit({path.name: path.read_bytes() for path in folder.iterdir()})
    agent = import_agent("someone/decision-transformer", ImportOptions(**OPTIONS))
    assert agent.config.agent_id == "dt-decision-transformer"
    np.testing.assert_array_equal(played(agent), played(import_agent(folder, ImportOptions(**OPTIONS))))


def test_a_folder_has_no_revisions(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is here, and only a Hub repo has revisions"):
        import_agent(tmp_path, ImportOptions(**OPTIONS), revision="v1")


def test_a_folder_s_name_is_the_id_with_its_dots(tmp_path: Path) -> None:
    folder, _ = transformers_folder(tmp_path / "hopper-0.5")
    assert import_agent(folder, ImportOptions(**OPTIONS)).config.agent_id == "dt-hopper-0.5"


class CorlBlock(nn.Module):
    """The layers of CORL's block, under its names."""

    def __init__(self, length: int, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.drop = nn.Dropout(0.1)
        self.attention = nn.MultiheadAttention(dim, heads, 0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(0.1))
        self.register_buffer("causal_mask", torch.ones(length, length).triu(1).bool())

    def forward(self, x: Tensor) -> Tensor:
        normal, length = self.norm1(x), x.shape[1]
        mask = self.causal_mask[:length, :length]
        x = x + self.attention(normal, normal, normal, attn_mask=mask, need_weights=False)[0]
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class Corl(nn.Module):
    """The layers of CORL's Decision Transformer, under its names."""

    def __init__(self, dim: int = 16, heads: int = 2, reach: float = 1.0) -> None:
        super().__init__()
        self.emb_norm, self.out_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.timestep_emb = nn.Embedding(STEPS + K, dim)
        self.state_emb, self.action_emb, self.return_emb = nn.Linear(S, dim), nn.Linear(A, dim), nn.Linear(1, dim)
        self.blocks = nn.ModuleList(CorlBlock(3 * K, dim, heads) for _ in range(2))
        self.action_head = nn.Sequential(nn.Linear(dim, A), nn.Tanh())
        self.reach = reach

    def forward(self, states: Tensor, actions: Tensor, returns: Tensor, times: Tensor) -> Tensor:
        time = self.timestep_emb(times)
        tokens = (self.return_emb(returns[..., None]), self.state_emb(states), self.action_emb(actions))
        x = self.emb_norm(torch.stack([token + time for token in tokens], dim=2).flatten(1, 2))
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.action_head(self.out_norm(x)[:, 1::3]) * self.reach
        return out


@pytest.mark.parametrize("reach", [1.0, 2.0])
def test_corl_checkpoints_act_the_same(tmp_path: Path, reach: float) -> None:
    network = widened(Corl(reach=reach))
    path = tmp_path / "dt_checkpoint.pt"
    torch.save({"model_state": network.state_dict(), "state_mean": MEAN[None], "state_std": STD[None]}, path)
    with pytest.raises(ConfigError, match="pass --heads"):
        import_agent(path, ImportOptions(target_return=TARGET))
    (tmp_path / "config.yaml").write_text(f"num_heads: 2\nmax_action: {reach}\nreward_scale: 0.1\n")
    agent = import_agent(path, ImportOptions(target_return=TARGET))
    assert (agent.config.io.context, agent.config.rtg_scale) == (K, 10.0)
    np.testing.assert_allclose(played(agent), reference(network, 10.0), atol=1e-5)
    for name in ("heads", "max_action", "context"):
        with pytest.raises(ConfigError, match=name):  # 0 is not that of the file
            import_agent(path, ImportOptions(target_return=TARGET, **{name: 0}))


def test_a_pickle_that_holds_code_is_not_read(tmp_path: Path) -> None:
    torch.save({"model_state": {}, "state_mean": Path("x")}, tmp_path / "dt_checkpoint.pt")
    with pytest.raises(CheckpointError, match="holds more than weights"):
        import_agent(tmp_path / "dt_checkpoint.pt", ImportOptions(target_return=TARGET))
    with pytest.raises(CheckpointError, match="is missing"):
        import_agent(tmp_path / "none.pt", ImportOptions(target_return=TARGET))


def test_what_only_the_caller_knows_is_asked_for(tmp_path: Path) -> None:
    folder, _ = transformers_folder(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="pass the 4 numbers that its card lists with --mean"):
        import_agent(folder, ImportOptions(target_return=TARGET))
    with pytest.raises(ConfigError, match="std is 4 finite positive numbers, got 3"):
        import_agent(folder, ImportOptions(**{**OPTIONS, "std": [1, 2, 3]}))
    gym.register("tests/Wide-v0", entry_point=Wide)
    with pytest.raises(SpaceError):
        import_agent(folder, ImportOptions(**OPTIONS, env="tests/Wide-v0"))
    for options, said in (({"heads": 2}, "--heads"), ({"heads": 2, "max_action": 2.0}, "--heads and --max-action")):
        with pytest.raises(ConfigError, match=rf"{said} \(of a CORL network\) has no effect on .*theirs; omit it"):
            import_agent(folder, ImportOptions(**OPTIONS, **options))
    for name in ("rtg_scale", "context"):
        with pytest.raises(ConfigError, match=name):  # 0 is not the default
            import_agent(folder, ImportOptions(**{**OPTIONS, name: 0}))
    for field, value in (("action_tanh", False), ("n_inner", 5), ("scale_attn_by_inverse_layer_idx", True)):
        tree = json.loads((folder / "config.json").read_text())
        (tmp_path / "odd").mkdir(exist_ok=True)
        for path in folder.iterdir():
            (tmp_path / "odd" / path.name).write_bytes(path.read_bytes())
        (tmp_path / "odd" / "config.json").write_text(json.dumps({**tree, field: value}))
        with pytest.raises(ConfigError, match=field):
            import_agent(tmp_path / "odd", ImportOptions(**OPTIONS))


class Wide(gym.Env[Any, Any]):
    """Actions reach further than a network of transformers can say."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (S,), np.float32)
    action_space = gym.spaces.Box(-2.0, 2.0, (A,), np.float32)


def test_the_command_writes_a_folder_that_loads(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    folder, _ = transformers_folder(tmp_path / "theirs")
    (tmp_path / "mean.json").write_text(json.dumps(MEAN.tolist()))
    numbers = ",".join(str(value) for value in STD)
    arguments = [
        "hub",
        "import",
        str(folder),
        str(tmp_path / "ours"),
        "--target",
        "40",
        "--name",
        "dt-mine",
        "--context",
        "3",
    ]
    arguments += ["--rtg-scale", "10", "--mean", str(tmp_path / "mean.json"), "--std", numbers]
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert found.exit_code == 0
    agent = Agent.from_pretrained(tmp_path / "ours")
    assert agent.config.agent_id == "dt-mine"
    np.testing.assert_allclose(played(agent), played(import_agent(folder, ImportOptions(**OPTIONS))), atol=1e-6)
    before = (tmp_path / "ours" / "config.json").read_bytes()
    arguments[arguments.index("dt-mine")] = "dt-other"
    found = CliRunner().invoke(app, arguments)
    assert isinstance(found.exception, StorageError)
    assert f"{tmp_path / 'ours'} already exists" in str(found.exception)
    assert (tmp_path / "ours" / "config.json").read_bytes() == before
    CliRunner().invoke(app, [*arguments, "--force"], catch_exceptions=False)
    assert Agent.from_pretrained(tmp_path / "ours").config.agent_id == "dt-other"
