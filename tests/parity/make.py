"""Numbers from the originals' own code: `python tests/parity/make.py --originals DIR`, run by hand and seldom.

It fills small networks of the originals with fixed random weights, runs them on fixed random inputs in float64, and
writes weights, inputs and outputs as float32 to `dt.npz`, `dm.npz` and `unimask.npz`. `test_originals.py` loads the
weights into our networks. The convolutions of Atari are too large for that: their weights and inputs are drawn again
(`drawn.py`), and `atari.npz` has the outputs, in float32. `--only NAME` makes one of the files.
DIR holds these folders, of the commits named in `agentzoo/models/`:

    dt/decision_transformer     gym/decision_transformer of kzl/decision-transformer
    dm/decision_transformer     experiment-d4rl/decision_transformer of aopolin-lv/DecisionMamba
    dm/modeling_mamba.py        transformers/src/transformers/models/mamba/modeling_mamba.py of the same
    uniMASK                     of micahcarroll/uniMASK
    atari/mingpt                atari/mingpt of kzl/decision-transformer

The code is from 2021 to 2024. It needs transformers 4.39.3 first on PYTHONPATH, with tokenizers 0.15.2, huggingface_hub
0.23.5, einops and loralib. `put_back` adds names that later libraries dropped. DTMA's authors published no code.
"""

from __future__ import annotations

import argparse
import collections
import collections.abc
import pickle
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drawn
import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
DIM, STEPS, OBS, ACTIONS, EPISODE = 8, 6, 3, 2, 20


def fill(model: nn.Module, seed: int) -> nn.Module:
    """Every parameter moved at random, far enough that each matters; in float64 and eval mode."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=rng)
            parameter.copy_(parameter.half())  # short numbers
    return model.double().eval()


def windows(seed: int) -> dict[str, torch.Tensor]:
    """Three windows of random steps."""
    rng = torch.Generator().manual_seed(seed)
    return {
        "states": torch.randn(3, STEPS, OBS, generator=rng).half().double(),
        "actions": (torch.rand(3, STEPS, ACTIONS, generator=rng) * 2 - 1).half().double(),
        "returns_to_go": torch.rand(3, STEPS, 1, generator=rng).half().double(),
        "timesteps": torch.arange(STEPS).repeat(3, 1) + torch.tensor([[0], [5], [9]]),
    }


def save(name: str, model: nn.Module, **numbers: torch.Tensor) -> None:
    arrays = {f"weights/{key}": value for key, value in model.named_parameters()} | numbers
    found = {
        key: value.detach().float().numpy() if value.is_floating_point() else value.numpy()
        for key, value in arrays.items()
    }
    np.savez_compressed(HERE / f"{name}.npz", **found)
    print(f"{name}.npz: {len(found)} arrays, {(HERE / f'{name}.npz').stat().st_size} bytes")


def put_back() -> None:
    """What the originals import and later libraries lack."""
    import transformers.file_utils as file_utils
    import transformers.utils as utils

    def same(*_: Any, **__: Any) -> Callable[[Any], Any]:
        return lambda documented: documented

    for module in (file_utils, utils):
        module.add_code_sample_docstrings = same
    collections.Iterable = collections.abc.Iterable  # type: ignore[attr-defined]
    sys.modules["pickle5"] = pickle
    sys.modules["peft"] = types.SimpleNamespace(LoraConfig=None, get_peft_model=None)  # type: ignore[assignment]


def decision_transformer() -> None:
    """All three windows whole, and again with their first two steps as padding on the left."""
    from decision_transformer.models.decision_transformer import DecisionTransformer

    model = DecisionTransformer(
        OBS,
        ACTIONS,
        DIM,
        max_ep_len=EPISODE,
        n_layer=2,
        n_head=2,
        n_inner=4 * DIM,
        n_ctx=3 * STEPS,
        activation_function="relu",
    )
    fill(model, 0)
    given = windows(1)
    mask = torch.ones(3, STEPS, dtype=torch.long)
    mask[:, :2] = 0
    with torch.no_grad():
        whole = model(**given, rewards=None)[1]
        padded = model(**given, rewards=None, attention_mask=mask)[1]
    save("dt", model, **given, whole=whole, padded=padded)


def decision_mamba(file: Path) -> None:
    """One layer: what a layer gives, and the actions."""
    text = file.read_text().replace("from ...", "from transformers.")
    text = text.replace("from .configuration_mamba", "from transformers.models.mamba.configuration_mamba")
    edited = types.ModuleType("edited_mamba")
    sys.modules["edited_mamba"] = edited
    exec(compile(text, str(file), "exec"), vars(edited))
    import transformers

    transformers.MambaForCausalLM = edited.MambaForCausalLM
    from decision_transformer.models.decision_transformer import DecisionTransformer
    from decision_transformer.models.utils import MLPBlock, ResidualBlock

    config = transformers.MambaConfig(vocab_size=2, hidden_size=DIM, state_size=4, num_hidden_layers=1, expand=2)
    model = DecisionTransformer.__new__(DecisionTransformer)  # its own __init__ reads files of its authors' disk
    nn.Module.__init__(model)
    model.hidden_size, model.state_dim, model.act_dim, model.predict_sr = DIM, OBS, ACTIONS, True
    model.transformer_model = types.SimpleNamespace(backbone=edited.MambaModel(config))
    model.layers = model.transformer.layers  # for state_dict
    model.norm_f = model.transformer.norm_f
    for layer in model.layers:
        layer.conv1d = nn.Conv1d(DIM, DIM, 3, stride=3)  # 768 wide whatever the config says
    model.embed_return, model.embed_state = ResidualBlock(1, DIM), ResidualBlock(OBS, DIM)
    model.embed_action, model.embed_timestep = ResidualBlock(ACTIONS, DIM), nn.Embedding(EPISODE, DIM)
    model.embed_ln, model.predict_action = nn.LayerNorm(DIM), MLPBlock(DIM, ACTIONS, DIM)
    model.predict_state, model.predict_rtg = nn.Linear(DIM, OBS), nn.Linear(DIM, 1)
    fill(model, 2)
    given = windows(3)
    tokens = 0.5 * torch.randn(3, 3 * STEPS, DIM, generator=torch.Generator().manual_seed(4)).half().double()
    with torch.no_grad():
        _, action, _, _ = model(**given, rewards=None)
        layer = model.layers[0](tokens)
        mixed = model.layers[0].mixer(tokens)
    save("dm", model, **given, action=action, tokens=tokens, layer=layer, mixed=mixed)


def unimask() -> None:
    """Both networks on the same tokens: whatever a masked batch would hold."""
    from uniMASK.transformer import FlexiNNModel, uniMASKModel

    size = ACTIONS + 2 + OBS
    sizes: dict[str, Any] = {"cat_input_dim": size, "dropout": 0.1, "seq_len": STEPS, "action_tanh": False}
    both = nn.ModuleDict(
        {
            "transformer": uniMASKModel(embed_dim=DIM, nheads=2, nlayers=2, feedforward_nhid=12, **sizes),
            "mlp": FlexiNNModel(embed_dim=DIM, nlayers=2, feedforward_nhid=12, **sizes),
        }
    )
    fill(both, 5)
    both.float()  # it makes its own input float32
    tokens = torch.randn(3, STEPS, size, generator=torch.Generator().manual_seed(6)).half().float()
    said = {}
    for name, model in both.items():
        batch = types.SimpleNamespace(model_input=(tokens, None), add_model_output=said.setdefault(name, []).append)
        with torch.no_grad():
            model(batch)
    save("unimask", both, tokens=tokens, **{name: outputs[0] for name, outputs in said.items()})


def atari() -> None:
    """Three windows of six steps, which begin at steps 0, 5 and 9; the loss of their own actions."""
    from mingpt.model_atari import GPT, GPTConfig

    config = GPTConfig(
        drawn.CHOICES, 3 * STEPS, n_layer=2, n_head=2, n_embd=DIM, model_type="reward_conditioned", max_timestep=EPISODE
    )
    model = GPT(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(drawn.numbers(name, tuple(parameter.shape))))
        given = drawn.atari_windows(STEPS)
        logits, loss = model(
            states=given["frames"].float() / 255.0,
            actions=given["actions"].unsqueeze(-1),
            targets=given["actions"].unsqueeze(-1),
            rtgs=given["returns_to_go"].unsqueeze(-1),
            timesteps=given["timesteps"][:, :1].unsqueeze(-1),
        )
    np.savez_compressed(HERE / "atari.npz", logits=logits.float().numpy(), loss=loss.float().numpy())
    print(f"atari.npz: logits {tuple(logits.shape)}, std {float(logits.std()):.2f}, loss {float(loss):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--originals", type=Path, required=True)
    parser.add_argument("--only", choices=["dt", "dm", "unimask", "atari"])
    asked = parser.parse_args()
    folder = asked.originals.resolve()
    makers: dict[str, tuple[str, Callable[[], None]]] = {
        "dt": ("dt", decision_transformer),
        "dm": ("dm", lambda: decision_mamba(folder / "dm" / "modeling_mamba.py")),
        "unimask": ("", unimask),
        "atari": ("atari", atari),
    }
    if asked.only != "atari":
        put_back()
    for name, make in (found for key, found in makers.items() if asked.only in (None, key)):
        sys.path.insert(0, str(folder / name))
        for loaded in [one for one in sys.modules if one.startswith("decision_transformer")]:
            del sys.modules[loaded]
        make()
        del sys.path[0]


if __name__ == "__main__":
    main()
