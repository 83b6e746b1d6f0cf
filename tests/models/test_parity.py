"""Our Decision Transformer against transformers' own, and its parts against PyTorch's."""

from __future__ import annotations

import pytest
import torch
from conftest import make_agent, random_batch

from agentzoo.models.dt import DTConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.nn.attention import Backbone, causal_bias
from agentzoo.nn.base import parameter_count
from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.tokens import STATE_TOKENS, interleave
from agentzoo.research.peers import as_transformers_decision_transformer


@pytest.mark.parametrize("heads", [1, 4])
def test_dt_matches_transformers_with_its_position_table_zeroed(heads: int) -> None:
    agent = make_agent(model=DTConfig(embed_dim=32, n_heads=heads), context=7)
    model = agent.model
    batch = random_batch(agent.config.io, [7, 7, 7])
    peer = as_transformers_decision_transformer(model)  # type: ignore[arg-type]
    with torch.no_grad():
        theirs = peer(
            states=batch.observations,
            actions=model.encode_actions(batch.actions),
            rewards=None,
            returns_to_go=batch.returns_to_go[..., None],
            timesteps=batch.timesteps,
            attention_mask=torch.ones(3, 7, dtype=torch.long),
        ).action_preds
        ours = model(batch)
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)  # float32 sums in another order
        torch.testing.assert_close(model.act(batch), model.decode_actions(theirs[:, -1]), atol=5e-5, rtol=1e-4)


def test_published_sizes() -> None:
    """Backbone 595,072 numbers; a whole Hopper agent about 0.73 million (spec, section 1)."""
    assert parameter_count(Backbone(128, 3, 1, 0.1)) == 595_072
    agent = make_agent("Hopper-v5", DTConfig())
    assert parameter_count(agent.model) == 595_072 + 1000 * 128 + 256 + (1 + 11 + 3 + 3) * 128 + 3 * 128 + 3


def test_fresh_weights_are_as_wide_as_published() -> None:
    torch.manual_seed(0)
    for name, parameter in Backbone(128, 3, 1, 0.1).named_parameters():
        if parameter.ndim == 2:
            assert float(parameter.detach().std()) == pytest.approx(0.02, rel=0.05), name
        elif name.endswith("bias"):
            assert not parameter.any(), name


def test_reading_some_tokens_gives_the_numbers_of_reading_all() -> None:
    torch.manual_seed(0)
    net = Backbone(16, 2, 2, 0.0).eval()
    x = torch.randn(3, 12, 16)
    for read in (STATE_TOKENS, slice(10, 11), slice(11, 12)):
        torch.testing.assert_close(net(x, read), net(x)[:, read], atol=1e-6, rtol=1e-5)


def test_dropout_path_without_dropout_equals_the_fused_kernel() -> None:
    """The CPU path that training takes, with an immeasurably small probability, against torch's kernel."""
    torch.manual_seed(0)
    trained, fused = Backbone(16, 2, 2, 1e-9).train(), Backbone(16, 2, 2, 0.0).eval()
    fused.load_state_dict(trained.state_dict())
    x = torch.randn(2, 9, 16)
    torch.testing.assert_close(trained(x, STATE_TOKENS), fused(x, STATE_TOKENS), atol=1e-6, rtol=1e-5)


def test_all_that_a_block_adds_can_be_dropped() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6, 16)
    language = LanguageBackbone(GPT2DTConfig(embed_dim=16, n_layers=1).sizes(), 0.1)
    for block in (Backbone(16, 1, 2, 0.1).blocks[0], language.blocks[0]):
        assert not torch.equal(block.eval()(x), x)
        block.train().get_submodule("dropout").p = 1.0  # type: ignore[assignment]
        assert torch.equal(block(x), x)


def test_causal_bias_by_hand() -> None:
    bias = causal_bias(4, (1, 4, 2), torch.float32, torch.device("cpu"))
    inf = float("inf")
    assert bias.tolist() == [[0, 0, -inf, -inf], [0, 0, 0, 0]]


def test_interleave_order() -> None:
    a, b, c = (torch.full((1, 2, 1), v) + torch.tensor([[[0.0], [10.0]]]) for v in (1.0, 2.0, 3.0))
    assert interleave(a, b, c).flatten().tolist() == [1, 2, 3, 11, 12, 13]
