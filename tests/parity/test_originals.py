"""Our networks give the numbers that the originals' own code gives with the same weights, to 1e-5.

`make.py` beside this file says how the numbers were made. They were summed in another order than ours, the originals'
mostly in float64: float32 rounding of outputs of size 1 to 5 stays below 1e-5.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agentzoo.models.dm import DecisionMamba, DMConfig
from agentzoo.models.dt import DecisionTransformer, DTConfig
from agentzoo.models.dt_pixel import DTPixelConfig, PixelDecisionTransformer
from agentzoo.models.unimask import UniMask, UniMaskConfig
from agentzoo.types import ActionSpec, Batch, IOSpec, ObservationSpec
from parity import drawn

HERE = Path(__file__).resolve().parent
STEPS = 6
IO = IOSpec(
    observation=ObservationSpec(size=3, shapes=((3,),)),
    action=ActionSpec(kind="box", size=2, low=(-1.0, -1.0), high=(1.0, 1.0)),
    context=STEPS,
)


def numbers(name: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The original's weights by their names, and its inputs and outputs."""
    with np.load(HERE / f"{name}.npz") as found:
        tensors = {key: torch.from_numpy(found[key]) for key in found.files}
    weights = {key.removeprefix("weights/"): value for key, value in tensors.items() if key.startswith("weights/")}
    return weights, {key: value for key, value in tensors.items() if not key.startswith("weights/")}


def load(model: nn.Module, weights: dict[str, Tensor], renamed: dict[str, str], unused: tuple[str, ...] = ()) -> None:
    """Give every parameter of `model` a weight, and every weight but the `unused` a parameter."""
    moved = {}
    for name, value in weights.items():
        if name.startswith(unused):
            continue
        for old, new in renamed.items():
            name = name.replace(old, new)
        moved[name] = value
    assert moved.keys() == {name for name, _ in model.named_parameters()}
    model.load_state_dict(moved, strict=False)
    model.eval()


def batch_of(given: dict[str, Tensor], steps: slice = slice(None)) -> Batch:
    """The recorded windows, or some of their steps with padding on the right."""

    def part(values: Tensor) -> Tensor:
        kept = values[:, steps]
        return torch.cat((kept, torch.zeros_like(values[:, : STEPS - kept.shape[1]])), dim=1)

    return Batch(
        observations=part(given["states"]),
        actions=part(given["actions"]),
        returns_to_go=part(given["returns_to_go"].squeeze(-1)),
        timesteps=part(given["timesteps"]),
        valid=part(torch.ones(3, STEPS, dtype=torch.bool)),
    )


def close(ours: Tensor, theirs: Tensor) -> None:
    assert theirs.std() > 0.1, "numbers that hardly differ show nothing"
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@torch.no_grad()
def test_dt_acts_as_the_original_on_whole_and_padded_windows() -> None:
    weights, given = numbers("dt")
    model = DecisionTransformer(DTConfig(embed_dim=8, n_layers=2, n_heads=2, max_ep_len=20), IO)
    projections = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # stored (in, out)
    weights = {name: value.T if name.endswith(projections) else value for name, value in weights.items()}
    names = {
        "transformer.h.": "backbone.blocks.",
        "transformer.ln_f": "backbone.ln_f",
        "attn.c_attn": "attn.qkv",
        "attn.c_proj": "attn.proj",
        "mlp.c_fc": "up",
        "mlp.c_proj": "down",
        "embed_state": "embed_obs",
        "predict_action.0": "predict_action",
    }
    load(model, weights, names, unused=("transformer.wte", "predict_state", "predict_return"))
    close(model(batch_of(given)), given["whole"])
    close(model.act(batch_of(given)), given["whole"][:, -1])
    close(model(batch_of(given, slice(2, None)))[:, :4], given["padded"][:, 2:])  # the original pads on the left


@pytest.fixture
def dm() -> tuple[Any, dict[str, Tensor]]:
    weights, given = numbers("dm")
    sizes: dict[str, Any] = {"embed_dim": 8, "n_layers": 1, "state_size": 4, "max_ep_len": 20}
    model = DecisionMamba(DMConfig(**sizes, gather="summary", fusion="release"), IO)
    names = {
        "layers.0.conv1d": "layers.0.gather.conv",
        "mixer_group": "fine",
        "mixer": "coarse",
        "ln_norm": "fusion_norm",
        "embed_state": "embed_obs",
        "predict_action.fc1": "predict_action.0",
        "predict_action.fc2": "predict_action.2",
        "predict_state": "predict_next_obs",
        "predict_rtg": "predict_next_return",
        "fc1": "up",
        "fc2": "mix",
    }
    load(model, weights, names)
    return model, given


@torch.no_grad()
def test_a_mamba_block_gives_the_originals_numbers(dm: Any) -> None:
    model, given = dm
    close(model.layers[0].coarse(given["tokens"]), given["mixed"])


@torch.no_grad()
def test_a_decision_mamba_layer_gives_the_originals_numbers_where_that_is_causal(dm: Any) -> None:
    """Token p gets the summary of step p mod 6 in the release. Here R and s of step t get that of t - 1, a that of t.

    Both agree at s of steps 2 and 5 (tokens 7 and 16) and at a of step 2 (token 8). Elsewhere the release shows tokens
    their own label or an older summary. The newest observation's token, which acts, is among those that agree.
    """
    model, given = dm
    ours, agree = model.layers[0](given["tokens"]), [7, 8, 16]
    close(ours[:, agree], given["layer"][:, agree])
    differ = [p for p in range(3 * STEPS) if p not in agree]
    assert (ours - given["layer"])[:, differ].abs().amax((0, 2)).min() > 1e-3


@torch.no_grad()
def test_decision_mamba_acts_as_the_original(dm: Any) -> None:
    model, given = dm
    close(model.act(batch_of(given)), given["action"][:, -1])
    close(model(batch_of(given))[:, 2], given["action"][:, 2])


@torch.no_grad()
@pytest.mark.parametrize("body", ["transformer", "mlp"])
def test_unimask_gives_the_originals_numbers(body: Any) -> None:
    weights, given = numbers("unimask")
    config = UniMaskConfig(body=body, embed_dim=8, ffn_dim=12, n_heads=2, n_layers=2)
    model = UniMask(config, IO)
    names = {
        "transformer.transformer_encoder.layers.": "encoder.",
        "transformer.linear_encoder": "embed",
        "transformer.linear_decoder": "predict",
        "mlp.model.": "net.",
    }
    other = "mlp." if body == "transformer" else "transformer."
    load(model.body, weights, names, unused=(other,))
    close(model.body(given["tokens"]), given[body])


# Names of the original's parameters -> ours. It keeps query, key and value apart.
ATARI_NAMES = {
    "ret_emb.0": "embed_return",
    "action_embeddings.0": "embed_action",
    "state_encoder.0": "embed_obs.convolutions.0",
    "state_encoder.2": "embed_obs.convolutions.1",
    "state_encoder.4": "embed_obs.convolutions.2",
    "state_encoder.7": "embed_obs.project",
    "blocks.": "backbone.blocks.",
    "ln1": "ln_1",
    "ln2": "ln_2",
    "mlp.0": "up",
    "mlp.2": "down",
    "head.": "predict_action.",
}


def atari_weights(model: nn.Module) -> dict[str, Tensor]:
    """The original's drawn weights by our names, in our shapes."""
    original = {new: old for old, new in ATARI_NAMES.items()}
    original |= {"embed_obs.convolutions.0": "state_encoder.0", "backbone.ln_f": "ln_f"}
    found = {}
    for name, ours in model.named_parameters():
        shape = tuple(ours.shape)
        theirs = name
        for new in sorted(original, key=len, reverse=True):
            theirs = theirs.replace(new, original[new])
        if name == "embed_action.weight":  # a table there
            value = drawn.numbers(theirs, shape[::-1]).T
        elif name == "embed_position.weight":  # one row more there, which nothing reads
            value = drawn.numbers("pos_emb", (1, shape[0] + 1, shape[1]))[0, :-1]
        elif name == "embed_timestep.weight":
            value = drawn.numbers("global_pos_emb", (1, *shape))[0]
        elif ".qkv." in name:
            part = (shape[0] // 3, *shape[1:])
            value = np.concatenate([drawn.numbers(theirs.replace("qkv", kind), part) for kind in KINDS])
        else:
            value = drawn.numbers(theirs, shape)
        found[name] = torch.from_numpy(np.ascontiguousarray(value))
    return found


KINDS = ("query", "key", "value")


@torch.no_grad()
def test_dt_pixel_gives_the_originals_logits_and_loss() -> None:
    io = IOSpec(
        observation=ObservationSpec(size=4 * 84 * 84, shapes=((4, 84, 84),), dtype="uint8", channels="first"),
        action=ActionSpec(kind="discrete", size=drawn.CHOICES, dtype="int64"),
        context=STEPS,
    )
    model = PixelDecisionTransformer(DTPixelConfig(embed_dim=8, n_layers=2, n_heads=2, max_ep_len=21), io).eval()
    model.load_state_dict(atari_weights(model), strict=False)
    given, (_, wanted) = drawn.atari_windows(STEPS), numbers("atari")
    batch = Batch(
        observations=given["frames"],
        actions=given["actions"],
        returns_to_go=given["returns_to_go"],
        timesteps=given["timesteps"],
        valid=torch.ones(3, STEPS, dtype=torch.bool),
    )
    close(model(batch), wanted["logits"])
    close(model.act(batch), wanted["logits"][:, -1])
    torch.testing.assert_close(model.loss(batch)["action_ce"], wanted["loss"], atol=1e-5, rtol=0)
