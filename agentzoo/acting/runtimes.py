"""Methods of `Agent` that choose what runs the network: PyTorch, or a frozen network in ONNX Runtime."""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

import torch

from agentzoo.acting.frozen import FrozenWindow, freeze
from agentzoo.acting.loading import pick_device
from agentzoo.acting.modes import Acting, check_history, check_mode, make_acting
from agentzoo.config import AgentConfig
from agentzoo.errors import ConfigError, warn
from agentzoo.nn.base import ActingMode, SequenceModel

Runtime = Literal["pytorch", "onnx"]


class RuntimeMethods:
    """Mixin of `Agent`: its network, how the network acts, and what runs it."""

    _config: AgentConfig
    _model: SequenceModel
    _acting: Acting
    _acting_mode: ActingMode
    _runtime: Runtime = "pytorch"
    _history: int | None = None
    _network: Any  # the model, or its frozen copy

    @property
    def config(self) -> AgentConfig:
        """What is saved beside the weights. The scale of another one counts at once; target return and history stay."""
        return self._config

    @config.setter
    def config(self, config: AgentConfig) -> None:
        self._config = config
        if "_network" in vars(self):  # otherwise the agent is being made
            self._act_as(self._acting_mode)

    @property
    def model(self) -> SequenceModel:
        """The network. Assigning a new one invalidates existing states and returns to PyTorch; `acting` stays.

        It must be made from the same config and spaces, else ConfigError.
        """
        return self._model

    @model.setter
    def model(self, model: SequenceModel) -> None:
        if not isinstance(model, SequenceModel):
            raise ConfigError(
                f"an agent's network is a SequenceModel, got {type(model).__name__}. torch.compile does not serve "
                "acting; agent.freeze('onnx') acts faster."
            )
        before = vars(self).get("_model")
        if before is not None and (model.config, model.io) != (before.config, before.io):
            raise ConfigError(
                f"this {model.config.family!r} network is made from another config, or for other spaces, than that of "
                f"{self.config.agent_id}, which is saved with it. Make an agent of its own: Agent(model, config)."
            )
        self._leave_onnx("a new network was assigned", 4)  # `Agent.__setattr__` calls this setter
        self._model = model.eval()
        self.acting = model.acting if before is None else self._acting_mode

    @property
    def runtime(self) -> Runtime:
        """What runs the network: "pytorch" or "onnx". `freeze` changes it."""
        return self._runtime

    def freeze(self, runtime: Runtime = "onnx") -> Self:
        """Act with a frozen copy of the network from now on; existing states stay valid.

        Args:
            runtime: "onnx" exports the current network to ONNX Runtime on the CPU and compares it with PyTorch on
                random inputs. Later changes of `agent.model` have no effect on it. It takes windows of `agent.history`
                steps, so short histories act faster. It is deterministic for Box actions: it returns the mode of a
                distribution. "pytorch" acts with `agent.model` again.

        Returns:
            The agent itself.

        Raises:
            ConfigError: no such runtime, packages are missing (`pip install 'agentzoo[export]'`), or the network cannot
                be exported. RuntimeMismatchError: ONNX Runtime's actions differ by more than 1e-4 (relative, above 1).
        """
        if runtime not in get_args(Runtime):
            raise ConfigError(f"runtime is 'pytorch' or 'onnx', not {runtime!r}.")
        self._use(self._acting_mode, runtime)
        return self

    @property
    def acting(self) -> ActingMode:
        """How the agent uses its network: "window" or "recurrent".

        "window" runs the last K steps at every step. "recurrent" carries a memory of constant size, if the family has
        one. It can be assigned; states of one mode are not valid in the other. A frozen agent is exported again.
        """
        return self._acting_mode

    @acting.setter
    def acting(self, mode: ActingMode) -> None:
        self._use(mode, self._runtime)

    @property
    def history(self) -> int | None:
        """The number of newest steps that window acting reads; None for the whole window of K steps.

        Some networks act much better on a few steps than on the full window they learned from; `agentzoo evaluate
        --history` measures it. No training is needed, since training windows also hold shorter histories. It can be
        assigned at any time; states stay valid. A frozen agent is exported again if it is to read more steps than it
        was frozen with. In recurrent acting history has no effect, and assigning it warns. Wu et al. 2023
        (arXiv:2307.02484) choose the length at every step.
        """
        return self._history

    @history.setter
    def history(self, steps: int | None) -> None:
        check_history(steps, self.config.io.context)
        before, self._history = self._history, None if steps is None else int(steps)
        if steps is not None and self._acting_mode == "recurrent":
            warn(
                f"history={steps} has no effect on {self.config.agent_id} while it acts with a recurrent memory. Set "
                "agent.acting = 'window' to act on the newest steps.",
                depth=3,  # `Agent.__setattr__` calls this setter
            )
        if isinstance(self._network, FrozenWindow) and self._network.steps < (steps or self.config.io.context):
            try:
                self._use(self._acting_mode, self._runtime)
            except Exception:
                self._history = before
                raise
        else:
            self._act_as(self._acting_mode)

    @property
    def history_in_use(self) -> int | None:
        """`history`, or None in recurrent acting, which has no use for it."""
        return self._history if self._acting_mode == "window" else None

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.model.device

    def to(self, device: str | torch.device) -> Self:
        """Move the network to a device, as torch does. States of a recurrent agent do not move: start new ones.

        ONNX Runtime acts on the CPU, so another device returns to PyTorch.

        Raises:
            ConfigError: no such device.
        """
        place = pick_device(device)
        if place.type != "cpu":
            self._leave_onnx(f"it moves to {place}", 3)
        self.model.to(place)
        return self

    def _use(self, mode: ActingMode, runtime: Runtime) -> None:
        check_mode(mode, self.model)
        name, steps = self.config.agent_id, self._history
        self._network = self.model if runtime == "pytorch" else freeze(self.model, mode, name, steps)
        self._runtime = runtime
        self._act_as(mode)

    def _act_as(self, mode: ActingMode) -> None:
        self._acting = make_acting(mode, self._network, self.config.rtg_scale, self._history)
        self._acting_mode = mode

    def _leave_onnx(self, why: str, depth: int) -> None:
        """Return to PyTorch; warn if ONNX Runtime was in use. `depth`: as in `warn`."""
        if self._runtime == "pytorch":
            return
        warn(f"{self.config.agent_id} acts with PyTorch again: {why}. agent.freeze('onnx') freezes it again.", depth)
        self._use(self._acting_mode, "pytorch")
