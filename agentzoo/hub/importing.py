"""Import checkpoints of other libraries as agents with the same weights and actions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from agentzoo.acting.loading import build_network
from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.envs.making import make_configured
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.hub.checkpoints import CONFIG_FILE, PICKLED, SAFE, Checkpoint, ImportOptions, read_corl, read_transformers
from agentzoo.nn.sizes_only import sizes_only
from agentzoo.store.downloads import fetch, is_repo_id
from agentzoo.store.tensors import first_names
from agentzoo.types import ActionSpec, IOSpec, ObservationSpec, explain


def import_agent(source: str | Path, options: ImportOptions, *, revision: str | None = None) -> Agent:
    """An agent that acts like this checkpoint.

    It has no recipe, since agentzoo did not train it. It can be loaded, run and measured, but not published or
    fine-tuned.

    Args:
        source: a folder or Hub repo of transformers, or a `.pt` file of CORL.
        revision: revision of the Hub repo; only for one.

    Raises:
        ConfigError: a value is missing that only the caller knows, or the network is not supported.
        CheckpointError: a file is missing or broken. HubError: the download failed. SpaceError: it does not fit
            `options.env`.
    """
    path = Path(source)
    if revision is not None and path.exists():
        raise ConfigError(f"{source} is here, and only a Hub repo has revisions; omit --revision (revision=).")
    is_file = path.suffix in (".pt", ".pth")
    if is_file:
        found = read_corl(path, options)
    elif path.is_dir() or is_repo_id(str(source)):
        folder = path
        if not path.is_dir():
            folder = fetch(str(source), (CONFIG_FILE, SAFE, PICKLED), revision=revision, what="checkpoint")
        found = read_transformers(folder, options)
    else:
        raise ConfigError(f"{source} is neither a folder, a .pt file nor a Hub repo like OWNER/NAME.")
    name = options.agent_id or _id_from(path.stem if is_file else path.resolve().name)
    return _agent(found, options, name)


def _id_from(name: str) -> str:
    plain = "".join(c if c.isalnum() or c in "_.-" else "-" for c in name.lower()).strip("-_.")
    return (plain if plain.startswith("dt") else f"dt-{plain}")[:96]


def _agent(found: Checkpoint, options: ImportOptions, agent_id: str) -> Agent:
    size = found.tensors["embed_obs.weight"].shape[1]
    actions = found.tensors["predict_action.weight"].shape[0]
    bound = (found.reach,) * actions
    try:
        config = AgentConfig(
            agent_id=agent_id,
            model=found.model,
            io=IOSpec(
                observation=ObservationSpec(size=size, shapes=((size,),)),
                action=ActionSpec(kind="box", size=actions, low=tuple(-one for one in bound), high=bound),
                context=found.context,
            ),
            rtg_scale=found.rtg_scale,
            rewards="dense",
            env=options.env,
            target_return=float(options.target_return),
            license="other",
        )
    except ValidationError as error:
        raise ConfigError(f"the checkpoint cannot become an agent: {explain(error)}") from None
    statistics = {"obs_mean": torch.from_numpy(found.mean), "obs_std": torch.from_numpy(found.std)}
    tensors = {**found.tensors, **statistics}
    _require_fit(config, tensors)
    network = build_network(config)
    network.load_state_dict(tensors, strict=True)
    agent = Agent(network, config)
    if options.env is not None:
        env = make_configured(options.env, {}, options.trust_env_module)
        try:
            agent.check_spaces(env.observation_space, env.action_space)
        finally:
            env.close()
    return agent


def _require_fit(config: AgentConfig, tensors: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError unless the tensors match this config's network. It allocates nothing."""
    with sizes_only():
        expected = {name: tuple(value.shape) for name, value in build_network(config).state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    wrong = [
        f"{name} {found.get(name)}, not {expected.get(name)}"
        for name in sorted({*expected, *found})
        if found.get(name) != expected.get(name)
    ]
    if wrong:
        raise CheckpointError(f"the checkpoint's weights do not fit together: {first_names(wrong)}.")
    broken = [name for name, value in sorted(tensors.items()) if not torch.isfinite(value).all()]
    if broken:
        raise CheckpointError(f"the checkpoint holds numbers that are not finite, in {first_names(broken)}.")
