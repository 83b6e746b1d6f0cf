"""Decision-GPT: which returns it sees, what its tokens are, what padding costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import make_agent, random_batch

from agentzoo.models.decision_gpt import DecisionGPT, DecisionGPTConfig
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.nn.base import ONE_ROW, ModelConfig
from agentzoo.nn.masking import Masking
from agentzoo.types import Batch


def network(**config: Any) -> DecisionGPT:
    """Context 4, in eval mode."""
    made = make_agent(model=DecisionGPTConfig(embed_dim=16, n_layers=2, n_heads=2, **config)).model
    assert isinstance(made, DecisionGPT)
    return made.eval()


@pytest.mark.parametrize("uses_returns", [True, False])
def test_decision_gpt_sees_the_first_return_of_a_window_or_none(uses_returns: bool) -> None:
    model = network(use_returns=uses_returns)
    batch = random_batch(model.io, [4, 4])

    def moved(step: int) -> Batch:
        returns = batch.returns_to_go.clone()
        returns[:, step] += 5.0
        return replace(batch, returns_to_go=returns)

    with torch.no_grad():
        for say in (model.act, lambda windows: model.loss(windows)["action"]):
            assert torch.equal(say(moved(1)), say(batch))
            assert torch.equal(say(moved(3)), say(batch))
            assert torch.equal(say(moved(0)), say(batch)) != uses_returns


def test_places_are_added_to_normalized_tokens() -> None:
    model = network()
    seen: list[torch.Tensor] = []
    model.embed_ln.register_forward_hook(lambda _, __, out: seen.append(out))
    model.backbone.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        model.places.normal_()
        model.act(random_batch(model.io, [4]))
    normalized, read = seen
    torch.testing.assert_close(read, normalized + model.places)


def test_padding_costs_nothing_even_where_it_is_asked_for() -> None:
    model = network()
    batch = random_batch(model.io, [2])
    on = torch.ones(1, 4, dtype=torch.bool)
    everything = Masking(on, on, ~on, ~on, on)
    with torch.no_grad():
        padded = model.factor_losses(batch, everything)["action"]
        cut = model.factor_losses(batch.map(lambda part: part[:, :2]), Masking(*(mask[:, :2] for mask in everything)))
    torch.testing.assert_close(padded, cut["action"])


@pytest.mark.parametrize("config", [UniMaskConfig, DecisionGPTConfig], ids=["unimask", "decision-gpt"])
def test_timesteps_are_a_share_of_the_longest_episode_and_none_of_one_step(config: type[ModelConfig]) -> None:
    """These networks have no table of timesteps, so no card says that it has one row."""
    for longest, moves in ((1000, True), (1, False)):
        made = config(family=config.model_fields["family"].default, max_ep_len=longest)
        agent = make_agent(model=made)
        batch = random_batch(agent.config.io, [4, 4])
        later = replace(batch, timesteps=batch.timesteps + 500)
        with torch.no_grad():
            actions = [agent.model.act_deterministic(one) for one in (batch, later)]
        assert torch.equal(*actions) is not moves
        assert ONE_ROW not in made.deviations()
