"""The attributes of `Agent`: a wrong name raises AttributeError instead of being kept without effect."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from agentzoo.errors import Elsewhere, did_you_mean

# of attributes that can only be read: what to call
INSTEAD = {"device": "; use agent.to(device)", "runtime": "; use agent.freeze(runtime)"}


CALLBACKS = (
    "callbacks of stable-baselines3, such as EvalCallback, run while a model learns, and agents learn from data. Use "
    "evaluate_policy(agent, env) or `agentzoo evaluate`."
)


class KnownAttributes:
    """Mixin of `Agent`: names that other libraries have, and no assignment to a public name that it lacks.

    A subclass of `Agent` may have attributes of its own.
    """

    load = Elsewhere("use Agent.from_pretrained(id_or_path).")
    save = Elsewhere("use agent.save_pretrained(folder).")
    learn = Elsewhere("agents learn from data: `agentzoo train` and `agentzoo finetune`.")
    reset = Elsewhere("it keeps no history: pass state=None to predict, or episode_start=True, to start a new episode.")
    select_action = Elsewhere("use action, state = agent.predict(obs, state).")
    env = Elsewhere("agent.set_env(env) binds one, agent.get_env() returns it.")
    get_parameters = Elsewhere("use agent.model.state_dict().")
    set_parameters = Elsewhere("use agent.model.load_state_dict(weights).")
    policy = Elsewhere("agent.model is the network, agent.predict acts with it.")
    parameters = Elsewhere("use agent.model.parameters().")
    state_dict = Elsewhere("use agent.model.state_dict().")
    load_state_dict = Elsewhere("use agent.model.load_state_dict(weights).")
    eval = Elsewhere("predict acts without dropout; agent.model is the network.")
    train = Elsewhere("agents learn from data: `agentzoo train` and `agentzoo finetune`.")
    cpu = Elsewhere("use agent.to('cpu').")
    cuda = Elsewhere("use agent.to('cuda').")
    seed = Elsewhere("use agent.set_random_seed(seed).")
    num_timesteps = Elsewhere(CALLBACKS)
    logger = Elsewhere(CALLBACKS)

    if not TYPE_CHECKING:  # mypy would accept every name

        def __setattr__(self, name: str, value: Any) -> None:
            own = type(self)
            if KnownAttributes in own.__bases__ and not name.startswith("_"):
                _require_assignable(own, name)
            super().__setattr__(name, value)


def _require_assignable(own: type, name: str) -> None:
    """Raise AttributeError, with what to do instead, unless `own` has this attribute and it can be assigned."""
    found = inspect.getattr_static(own, name, None)
    if name in _known(own):
        if isinstance(found, property) and found.fset is None:
            raise AttributeError(f"{name!r} cannot be assigned{INSTEAD.get(name, '')}.")
        return
    if isinstance(found, Elsewhere):
        found.__get__(None, own)  # raises
    hint = did_you_mean(name, _known(own)) or " Attributes of your own need a subclass."
    raise AttributeError(f"an {own.__name__} has no {name!r}.{hint}")


def _known(own: type) -> list[str]:
    """The public attributes that the class declares or defines."""
    declared = {name for base in own.__mro__ for name in inspect.get_annotations(base)}
    public = (name for name in sorted(declared | set(dir(own))) if not name.startswith("_"))
    return [name for name in public if name in declared or hasattr(own, name)]
