"""What every family promises, whatever it is inside; a new family is tested here by being registered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import config_of, env_of, io_of, make_agent, random_batch, random_observations
from torch import nn

from agentzoo.acting.history import AgentState, to_batch
from agentzoo.agent import Agent
from agentzoo.models.bc import BCConfig
from agentzoo.models.decision_gpt import DecisionGPTConfig
from agentzoo.models.dm import DMConfig
from agentzoo.models.dt import DTConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.models.smollm_dt import SmolLMDTConfig
from agentzoo.models.unimask import UniMask, UniMaskConfig
from agentzoo.nn.base import ONE_ROW, ModelConfig
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.masking import Masking
from agentzoo.registry import families, get_family
from agentzoo.types import ActionSpec, Batch, IOSpec

FAMILIES = sorted(families())
KINDS = ["", "Discrete", "Dict"]


def agent_of(family: str, kind: str = "") -> Agent:
    return make_agent(env_of(family, kind), config_of(family))


def junk_behind(batch: Batch, newest_action: bool = False) -> Batch:
    """The same batch with nonsense in every padded step (and, if asked, in the newest step's action)."""
    hidden = ~batch.valid
    actions = batch.actions.clone()
    at = hidden.clone()
    if newest_action:
        at[torch.arange(len(at)), batch.valid.sum(1) - 1] = True
    actions[at] = 3 if actions.ndim == 2 else 7.0
    obs, rtg, time = batch.observations.clone(), batch.returns_to_go.clone(), batch.timesteps.clone()
    obs[hidden], rtg[hidden], time[hidden] = 1e3 if obs.is_floating_point() else 200, -50.0, 17
    return replace(batch, observations=obs, actions=actions, returns_to_go=rtg, timesteps=time)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_card_can_name_the_family_and_cite_its_paper(family: str) -> None:
    config = get_family(family).config
    assert config.title
    assert config.paper is not None
    assert f"eprint = {{{config.paper.arxiv}}}" in config.paper.bibtex()


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_steps_do_not_change_the_action(family: str, kind: str) -> None:
    agent = agent_of(family, kind)
    batch = random_batch(agent.config.io, [1, 4, 2, 3])
    with torch.no_grad():
        torch.testing.assert_close(
            agent.model.act_deterministic(junk_behind(batch)), agent.model.act_deterministic(batch), atol=1e-6, rtol=0
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_action_being_chosen_does_not_see_itself(family: str) -> None:
    agent = agent_of(family)
    batch = random_batch(agent.config.io, [4, 4, 2])
    with torch.no_grad():
        assert torch.equal(
            agent.model.act_deterministic(junk_behind(batch, newest_action=True)), agent.model.act_deterministic(batch)
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_newest_observation_changes_the_action(family: str) -> None:
    agent = agent_of(family)
    batch = random_batch(agent.config.io, [3, 4])
    moved = batch.observations.clone()
    moved[0, 2] += 1 if moved.is_floating_point() else 100  # uint8 wraps around
    with torch.no_grad():
        before, after = (
            agent.model.act_deterministic(batch),
            agent.model.act_deterministic(replace(batch, observations=moved)),
        )
    assert not torch.allclose(before[0], after[0], atol=1e-4)
    torch.testing.assert_close(before[1], after[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_batch_equals_one_by_one(family: str) -> None:
    agent = agent_of(family)
    batch = random_batch(agent.config.io, [4, 1, 3])
    with torch.no_grad():
        together = agent.model.act_deterministic(batch)
        for i in range(3):
            alone = batch.map(lambda part: part[i : i + 1])  # noqa: B023  (called at once)
            torch.testing.assert_close(agent.model.act_deterministic(alone)[0], together[i], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_settings_of_the_loss_give_an_equal_loss(family: str) -> None:
    """A CUDA graph of the loss is replayed while the settings stay equal."""
    model = agent_of(family).model.train()
    batch, found = random_batch(model.io, [4, 4, 2]), {}
    for step in (0, 1, 2, 3, 250, 251, 252, 999):
        model.begin_step(step, 1_000)
        torch.manual_seed(1)
        loss = float(torch.stack(list(model.loss(batch).values())).sum().detach())
        assert found.setdefault(model.loss_settings(), loss) == loss


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_predict_step_by_step_equals_one_forward_on_the_window(family: str, kind: str) -> None:
    agent = agent_of(family, kind)
    env = gym.make(env_of(family, kind))
    obs, _ = env.reset(seed=3)
    taken, seen, rewards, state, reward = [], [], [], None, 0.0
    for _ in range(6):  # longer than the context of 4
        action, state = agent.predict(obs, state, deterministic=True, reward=reward)
        seen.append(np.concatenate(list(obs.values())) if isinstance(obs, dict) else obs)
        taken.append(action)
        obs, reward, *_ = env.step(action)
        rewards.append(reward)
    rtg = 50.0 - np.concatenate([[0.0], np.cumsum(rewards)[:-1]])
    discrete = agent.config.io.action.kind == "discrete"
    actions = torch.as_tensor(np.stack(taken)[2:]) - (agent.config.io.action.start if discrete else 0)
    actions[-1] = 0
    window = Batch(
        observations=torch.from_numpy(np.stack(seen)[None, 2:]),
        actions=actions[None],
        returns_to_go=torch.from_numpy((rtg / 10.0)[None, 2:].astype(np.float32)),
        timesteps=torch.arange(2, 6)[None],
        valid=torch.ones(1, 4, dtype=torch.bool),
    )
    with torch.no_grad():
        expected = agent.model.act_deterministic(window)[0].numpy()
    got = taken[-1] - agent.config.io.action.start if discrete else taken[-1]
    np.testing.assert_allclose(got, expected.argmax() if discrete else np.clip(expected, -2, 2), atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_episode_start_resets_only_that_env(family: str) -> None:
    agent = agent_of(family)
    agent.acting = "window"
    obs, state = random_observations(agent.config.io, (3, 2)), None
    for t in range(2):
        _, state = agent.predict(obs[t], state, np.full(2, t == 0), deterministic=True, reward=[1.0, 2.0])
    both, after = agent.predict(obs[2], state, np.array([True, False]), deterministic=True, reward=[9.0, 3.0])
    fresh, _ = agent.predict(obs[2, :1], None, deterministic=True)
    going_on, _ = agent.predict(obs[2], state, np.array([False, False]), deterministic=True, reward=[9.0, 3.0])
    np.testing.assert_allclose(both[0], fresh[0], atol=5e-5)
    np.testing.assert_allclose(both[1], going_on[1], atol=5e-5)
    assert after.length.tolist() == [1, 3]
    assert after.returns_to_go[0, 0] == 50.0
    assert after.returns_to_go[1, 2] == 50.0 - 2.0 - 3.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_saved_and_loaded_agents_act_identically(family: str, kind: str, tmp_path: Path) -> None:
    agent = agent_of(family, kind)
    agent.model.obs_mean.fill_(0.25)
    loaded = Agent.from_pretrained(agent.save_pretrained(tmp_path / "saved"))
    assert loaded.recipe == agent.recipe
    env = gym.make(env_of(family, kind))
    obs, _ = env.reset(seed=1)
    first, second, reward = None, None, 0.0
    for _ in range(6):
        a, first = agent.predict(obs, first, deterministic=True, reward=reward)
        b, second = loaded.predict(obs, second, deterministic=True, reward=reward)
        np.testing.assert_array_equal(a, b)
        obs, reward, *_ = env.step(a)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family[:2] != "bc"])  # they read the newest step
def test_a_window_of_no_step_costs_nothing(family: str) -> None:
    agent = agent_of(family)
    batch = random_batch(agent.config.io, [3])
    nothing = replace(batch, valid=torch.zeros_like(batch.valid))
    assert {float(value) for value in agent.model.loss(nothing).values()} == {0.0}


def unmoved(agent: Agent) -> list[str]:
    """Parameters that a training step on full and short windows leaves where they are: none, or zero, as gradient."""
    torch.manual_seed(0)
    model = agent.model.train()
    with torch.no_grad():
        for parameter in model.parameters():  # what starts at zero hides the gradient of its other factor
            parameter += 0.1 * torch.randn_like(parameter)
    torch.stack(list(model.loss(random_batch(agent.config.io, [4, 3, 4, 4])).values())).sum().backward()
    return [
        name for name, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any().item())
    ]


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_learns(family: str, kind: str) -> None:
    assert unmoved(agent_of(family, kind)) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_parameter_multiplied_by_zero_is_found(family: str) -> None:
    agent = agent_of(family)
    layers = {name: part for name, part in agent.model.named_modules() if isinstance(part, nn.Linear | nn.Embedding)}
    name, layer = next(iter(layers.items()))
    layer.register_forward_hook(lambda _, __, output: 0.0 * output)
    assert f"{name}.weight" in unmoved(agent)


@pytest.mark.parametrize("family", FAMILIES)
def test_actions_are_encoded_by_their_own_bounds(family: str) -> None:
    """As -1 to 1, whatever the bounds are; and back."""
    action = ActionSpec(kind="box", size=2, low=(-1.0, 2.0), high=(1.0, 6.0))
    seen = agent_of(family).config.io.observation
    io = IOSpec(observation=seen, action=action, context=1)
    model = get_family(family).model(config_of(family), io)
    actions = torch.tensor([[[-1.0, 2.0], [1.0, 6.0], [0.0, 5.0]]])
    encoded = model.encode_actions(actions)
    assert encoded.tolist() == [[[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5]]]
    assert torch.equal(model.decode_actions(encoded), actions)


DROPS = {
    "dt": DTConfig(embed_dim=16, n_layers=2, n_heads=2),
    "bc": BCConfig(embed_dim=16),
    "decision-gpt": DecisionGPTConfig(embed_dim=16, n_heads=2),
    "gpt2-dt": GPT2DTConfig(embed_dim=16, n_layers=2, adaptation="lora"),
    "smollm-dt": SmolLMDTConfig(
        embed_dim=24, n_layers=2, n_heads=6, n_kv_heads=2, adaptation="lora", dropout=0.1, attention_dropout=0.1
    ),
    "unimask": UniMaskConfig(embed_dim=16, n_heads=2),
    "unimask-mlp": UniMaskConfig(body="mlp"),
}


@pytest.mark.parametrize("name", DROPS)
def test_every_dropout_of_a_network_is_drawn_in_training(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all others off, each alone makes the loss differ from draw to draw."""
    agent = make_agent(model=DROPS[name])
    model, batch = agent.model.train(), random_batch(agent.config.io, [4, 4, 4])
    if isinstance(model, UniMask):  # whose masks are drawn as well
        on = batch.valid
        monkeypatch.setattr(model, "draw_masking", lambda _: Masking(on, ~on, ~on, ~on, on))
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("lora_b"):  # starts at zero
            nn.init.normal_(parameter)
    for layer in model.modules():
        if isinstance(layer, nn.MultiheadAttention):  # has a number in place of a layer
            layer.dropout = 0.0
    layers = {place: layer for place, layer in model.named_modules() if isinstance(layer, Dropout | nn.Dropout)}
    assert layers
    for layer in layers.values():
        layer.p = 0.0

    def loss(seed: int) -> float:
        torch.manual_seed(seed)
        return float(torch.stack(list(model.loss(batch).values())).sum().detach())

    assert loss(0) == loss(1)
    for place, layer in layers.items():
        layer.p = 0.5
        assert len({loss(seed) for seed in range(3)}) > 1, place
        layer.p = 0.0


@pytest.mark.parametrize("config", [BCConfig(n_layers=3), UniMaskConfig(body="mlp", n_layers=3)], ids=["bc", "unimask"])
def test_every_hidden_layer_of_an_mlp_is_followed_by_dropout(config: ModelConfig) -> None:
    kinds = [type(layer).__name__ for layer in make_agent(model=config).model.modules()]
    first = kinds.index("Linear")
    assert kinds[first : first + 10] == ["Linear", *["ReLU", "Dropout", "Linear"] * 3]


@pytest.mark.parametrize(("rows", "used"), [(9, [7, 8, 8, 8]), (1, [0, 0, 0, 0])])
@pytest.mark.parametrize("config", [DTConfig, GPT2DTConfig, DMConfig], ids=["dt", "gpt2-dt", "dm"])
def test_timesteps_beyond_the_table_use_its_last_row(config: type[ModelConfig], rows: int, used: list[int]) -> None:
    """With one row nothing depends on the timestep, and the card says so."""
    agent = make_agent(model=config(max_ep_len=rows))
    batch = random_batch(agent.config.io, [4, 4])
    beyond = replace(batch, timesteps=torch.tensor([[7, 8, 9, 12]] * 2))
    within = replace(batch, timesteps=torch.tensor([used] * 2))
    with torch.no_grad():
        assert torch.equal(agent.model.act_deterministic(beyond), agent.model.act_deterministic(within))
        assert torch.equal(agent.model(beyond), agent.model(within))
    assert (agent.model.config.deviations()[:1] == (ONE_ROW,)) == (rows == 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_new_target_is_read_as_if_it_had_been_asked_for_all_along(family: str) -> None:
    agent = agent_of(family)
    agent.acting = "window"
    seen = random_observations(agent.config.io, (6, 2))
    rewards = np.array([0.0, 3.0, 1.0, 4.0, 1.0, 5.0])

    def history(targets: list[float], steps: int) -> AgentState:
        state = None
        for t in range(steps):
            start = np.array([t == 0, t in (0, 2)])  # one of them begins anew
            agent.condition(target_return=targets)
            _, state = agent.predict(seen[t], state, start, reward=np.full(2, rewards[t]))
        assert isinstance(state, AgentState)
        return state

    for steps in (3, 5):  # a window of four: not full, and full
        before, asked = history([50.0, 20.0], steps), history([9.0, 20.0], steps)
        kept = before.returns_to_go.copy()
        agent.condition(target_return=[9.0, 20.0])
        now = {"deterministic": True, "reward": np.full(2, rewards[steps])}
        changed, state = agent.predict(seen[steps], before, **now)
        same, state_of_same = agent.predict(seen[steps], asked._replace(actions=before.actions), **now)
        np.testing.assert_allclose(changed, same, atol=1e-6)
        np.testing.assert_allclose(state.returns_to_go, state_of_same.returns_to_go, atol=1e-9)
        np.testing.assert_array_equal(before.returns_to_go, kept)


@pytest.mark.parametrize("family", FAMILIES)
def test_state_is_not_changed_by_predict(family: str) -> None:
    agent = agent_of(family)
    agent.acting = "window"
    obs = random_observations(agent.config.io, (2,))
    _, state = agent.predict(obs, None, deterministic=True)
    kept = [np.array(field) for field in state]
    for _ in range(6):
        agent.predict(obs * 2, state, np.array([True, False]), deterministic=True, reward=[1.0, 1.0])
    for before, now in zip(kept, state, strict=True):
        np.testing.assert_array_equal(before, now)


def test_to_batch_counts_timesteps_back_from_the_newest() -> None:
    agent = agent_of("dt")
    state = None
    env = gym.make("tests/Counting-v0")
    obs, _ = env.reset(seed=0)
    for _ in range(6):
        _, state = agent.predict(obs, state, deterministic=True, reward=0.0)
    assert state is not None
    assert to_batch(state, 10.0, torch.device("cpu")).timesteps.tolist() == [[2, 3, 4, 5]]
    assert io_of(env, 4) == agent.config.io
