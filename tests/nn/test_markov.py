"""Markov matrices: the statistic by hand and in theory, and the heads that papers publish."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.nn.markov import head_matrix, layer_statistics, markov_statistics, rule_threshold

# -- Markov matrices ---------------------------------------------------------------------------------------------------


def test_markov_statistics_of_matrices_worked_out_by_hand() -> None:
    near_identity = torch.eye(64).double() + 0.01
    found = markov_statistics(near_identity)
    assert found.ratio == pytest.approx(101.0)
    assert found.is_markov(8.0)
    assert not found.is_markov(101.5)
    assert not markov_statistics(-near_identity).positive
    assert not markov_statistics(-near_identity).is_markov()
    nearly = near_identity.clone()
    nearly[5, 5] = 0.0  # condition (i) wants every entry above zero
    assert markov_statistics(nearly).positive_share == pytest.approx(63 / 64)
    assert not markov_statistics(nearly).is_markov()
    two = torch.tensor([[3.0, -1.0], [2.0, 1.0]]).double()
    assert markov_statistics(two) == (1.0, pytest.approx(2.0 / 1.5))


def test_tied_gaussian_queries_and_keys_give_the_ratio_of_theory() -> None:
    w = torch.randn(768, 64, generator=torch.Generator().manual_seed(0)).double()
    found = markov_statistics(w @ w.T)
    assert found.positive
    assert 9.0 < found.ratio < 11.0
    assert found.ratio == pytest.approx(math.sqrt(math.pi * 64 / 2), rel=0.05)
    other = torch.randn(768, 64, generator=torch.Generator().manual_seed(1)).double()
    untied = markov_statistics(w @ other.T)
    assert untied.ratio == pytest.approx(1.0, rel=0.1)
    assert not untied.positive


def test_heads_are_cut_from_the_fused_weight_as_the_network_cuts_them() -> None:
    """A head is Markov here exactly where its queries are its keys."""
    rng = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 768, 768, generator=rng)
    k[64:128] = q[64:128]
    found = layer_statistics(torch.cat((q, k, v)), 12)
    assert [one.is_markov() for one in found] == [head == 1 for head in range(12)]
    layer = nn.Linear(768, 3 * 768, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.cat((q, k, v)))
        x = torch.randn(5, 768, generator=rng)
        asked, known, _ = layer(x).chunk(3, dim=-1)
        scores = asked[:, 64:128] @ known[:, 64:128].T
        matrix = head_matrix(layer.weight, 12, 1).float()
        torch.testing.assert_close(x @ matrix @ x.T, scores, rtol=1e-3, atol=1e-1)


def test_thresholds_of_the_papers_rule() -> None:
    assert rule_threshold(64) == pytest.approx(5.14, abs=0.01)
    assert rule_threshold(768) == pytest.approx(7.64, abs=0.01)
    assert rule_threshold(512) == pytest.approx(7.24, abs=0.01)


PUBLISHED = (3.91, 23.61, 3.36, 7.63, 6.54, 29.67, 1.87, 2.41, 3.25, 15.37, 23.70, 1.39)  # early version, Table 2


@pytest.mark.network
def test_gpt2_has_the_published_markov_heads() -> None:
    found = layer_statistics(load_backbone("gpt2").blocks["blocks.0.attn.qkv.weight"], 12)
    assert [head for head, one in enumerate(found) if one.is_markov()] == [1, 5, 10]
    assert [one.ratio for one in found] == [pytest.approx(ratio, rel=0.05) for ratio in PUBLISHED]


@pytest.mark.network
def test_clip_has_no_markov_head_in_its_first_layer() -> None:
    clip = load_backbone("openai/clip-vit-base-patch32", "refs/pr/15")  # where its safetensors are
    found = layer_statistics(clip.blocks["blocks.0.attn.qkv.weight"], 8)
    assert not any(one.is_markov() for one in found)
