"""`predict` runs the network as it is: whatever changes a weight or a layer, in every family and every way of acting.

Each case changes the network of an agent that has acted, and says which weights a new network needs to be the same. The
new network has never run, so it cannot remember anything.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_agent, random_batch
from torch import Tensor, nn
from torch.nn.utils import prune

from agentzoo.agent import Agent
from agentzoo.nn.base import SequenceModel
from agentzoo.nn.mamba import RMSNorm
from agentzoo.registry import get_family
from models.acting_cases import play, small_config, ways

Weights = dict[str, Tensor]
SCALED = (nn.Linear, nn.Conv1d, nn.Embedding, nn.LayerNorm, nn.RMSNorm, RMSNorm)  # their output scales as they do
FACTOR = 1.3


def fresh(agent: Agent, weights: Weights) -> Agent:
    """An agent of a new network with these weights."""
    model = get_family(agent.model.config.family).model(agent.model.config, agent.model.io)
    model.load_state_dict(weights)
    return Agent(model, agent.config, agent.recipe)


def as_it_is(model: SequenceModel) -> Weights:
    return {name: value.clone() for name, value in model.state_dict().items()}


# -- what may happen to a network: each change gives the weights that a new network needs to be the same ---------------


def multiply_data(model: SequenceModel) -> Weights:
    for p in model.parameters():
        p.data.mul_(FACTOR)
    return as_it_is(model)


def copy_into_data(model: SequenceModel) -> Weights:
    for p in model.parameters():
        p.data.copy_(p.data * FACTOR + 0.01)
    return as_it_is(model)


def write_through_numpy(model: SequenceModel) -> Weights:
    for p in model.parameters():
        p.detach().numpy()[...] *= FACTOR
    return as_it_is(model)


def write_buffers(model: SequenceModel) -> Weights:
    model.obs_mean.data.add_(0.5)
    model.obs_std.data.mul_(2.0)
    return as_it_is(model)


def assign_to_children(model: SequenceModel) -> Weights:
    for child in model.children():
        child.load_state_dict({name: FACTOR * value for name, value in child.state_dict().items()}, assign=True)
    return as_it_is(model)


def replace_parameters(model: SequenceModel) -> Weights:
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(FACTOR * p.detach()))
    return as_it_is(model)


def replace_layers(model: SequenceModel) -> Weights:
    for name, layer in list(model.named_modules()):
        if type(layer) is nn.Linear:
            new = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None)
            new.load_state_dict({key: FACTOR * value for key, value in layer.state_dict().items()})
            model.set_submodule(name, new)
    return as_it_is(model)


def prune_layers(model: SequenceModel) -> Weights:
    """What is pruned is made of `weight_orig` again at every call, so a change of that must count."""
    weights = as_it_is(model)
    torch.manual_seed(0)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear | nn.Conv1d):
            prune.random_unstructured(layer, "weight", 0.3)  # type: ignore[no-untyped-call]
            original, mask = layer.get_parameter("weight_orig"), layer.get_buffer("weight_mask")
            original.data.mul_(FACTOR)
            weights[f"{name}.weight"] = (original * mask).detach()
    return weights


def train_one_step(model: SequenceModel) -> Weights:
    """In eval mode, by a fused optimizer, which leaves no mark on what it changes."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, fused=True)
    torch.autograd.backward(torch.stack(list(model.loss(random_batch(model.io, [4, 3])).values())).sum())
    optimizer.step()
    return as_it_is(model)


def write_from_another_process(model: SequenceModel) -> Weights:
    model.share_memory()

    def write() -> None:
        for p in model.parameters():
            p.data.mul_(FACTOR)

    other = multiprocessing.get_context("fork").Process(target=write)
    other.start()
    other.join()
    assert other.exitcode == 0
    return as_it_is(model)


class Adapter(nn.Module):
    """Around a linear layer as peft's are: it shows the layer's own weight, and adds an update of low rank."""

    def __init__(self, base: nn.Linear, generator: torch.Generator) -> None:
        super().__init__()
        self.base_layer, self.in_features, self.out_features = base, base.in_features, base.out_features
        self.a = nn.Parameter(torch.randn(2, base.in_features, generator=generator))
        self.b = nn.Parameter(0.2 * torch.randn(base.out_features, 2, generator=generator))

    @property
    def weight(self) -> Tensor:
        return self.base_layer.weight

    @property
    def bias(self) -> Tensor:
        return self.base_layer.bias

    def forward(self, x: Tensor, *rest: Any, **named: Any) -> Tensor:
        out: Tensor = self.base_layer(x, *rest, **named) + x @ self.a.T @ self.b.T
        return out


def wrap_layers(model: SequenceModel) -> Weights:
    weights, generator = as_it_is(model), torch.Generator().manual_seed(0)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear):
            adapter = Adapter(layer, generator)
            weights[f"{name}.weight"] = (layer.weight + adapter.b @ adapter.a).detach()
            model.set_submodule(name, adapter)
    return weights


def hook_outputs(model: SequenceModel) -> Weights:
    weights = as_it_is(model)
    for name, layer in model.named_modules():
        if isinstance(layer, SCALED):
            layer.register_forward_hook(lambda _, __, out: FACTOR * out)
            for key, _ in layer.named_parameters():
                weights[f"{name}.{key}"] = FACTOR * weights[f"{name}.{key}"]
    return weights


def hook_inputs(model: SequenceModel) -> Weights:
    weights = as_it_is(model)
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear | nn.Conv1d):
            layer.register_forward_pre_hook(lambda _, args: (FACTOR * args[0],))
            weights[f"{name}.weight"] = FACTOR * weights[f"{name}.weight"]
    return weights


CHANGES = [
    multiply_data,
    copy_into_data,
    write_through_numpy,
    write_buffers,
    assign_to_children,
    replace_parameters,
    replace_layers,
    prune_layers,
    train_one_step,
    write_from_another_process,
    wrap_layers,
    hook_outputs,
    hook_inputs,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize(("family", "way"), ways())
def test_predict_runs_the_network_as_it_is(family: str, way: str, change: Callable[[SequenceModel], Weights]) -> None:
    agent = make_agent(model=small_config(family))
    before = play(agent, way)
    weights = change(agent.model)
    after = play(agent, way)
    assert not np.allclose(before, after, atol=1e-3)
    np.testing.assert_allclose(after, play(fresh(agent, weights), way), atol=3e-4)  # rounding differs between hosts
