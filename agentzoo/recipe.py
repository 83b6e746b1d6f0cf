"""A recipe: the record that trains an agent, is stored as `train_config.json` and is printed on the card."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from agentzoo.data.targets import Target, TargetRule
from agentzoo.env_ids import same_environment
from agentzoo.errors import ConfigError, UnknownNameError, did_you_mean
from agentzoo.nn.base import ModelConfig
from agentzoo.record import parsed_setting
from agentzoo.registry import family_names, get_family, recipe_table
from agentzoo.store.downloads import REPO_ID
from agentzoo.types import Config, Digest, Keys, TargetReturn, explain

Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
Positive = Annotated[float, Field(gt=0.0, le=1e9)]
AgentId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,95}$")]
EnvId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$")]  # Gymnasium's characters
DatasetId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}$")]
RepoId = Annotated[str, Field(pattern=f"^{REPO_ID}$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Option = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]  # name of a keyword argument

SECTIONS = ("model", "data", "train", "eval")  # of a recipe

# Newest env steps that acting reads; None: the whole window. Not part of training
History = Annotated[int, Field(ge=1, le=8192)] | None


def parse_model_config(tree: dict[str, Any]) -> ModelConfig:
    """The model config that `tree` describes, checked by the config class of its family.

    Raises:
        ConfigError: `tree` names no family, or a field is not valid for it. UnknownNameError: no such family.
    """
    name = tree.get("family")
    if not isinstance(name, str):
        held = f"its family is {name!r}" if "family" in tree else f"this one holds {sorted(tree)}"
        raise ConfigError(f"a model config names its `family`, like 'dt'; {held[:200]}.")
    try:
        return get_family(name).config.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        raise ConfigError(f"family {name!r}: {explain(error)}") from None


def _model_of(value: Any) -> Any:
    return parse_model_config(value) if isinstance(value, dict) else value


AnyModel = Annotated[SerializeAsAny[ModelConfig], BeforeValidator(_model_of)]  # the config of any family


class DataConfig(Config):
    """The dataset, and how it is read."""

    dataset: DatasetId  # Minari id
    context: Annotated[int, Field(ge=1, le=8192)] = 20  # K, env steps
    rtg_scale: Positive = 1000.0  # the network reads return-to-go divided by this
    best_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # keep the best episodes, up to this share of steps
    rewards: Literal["dense", "delayed"] = "dense"  # delayed: an episode's return arrives on its last step
    obs_keys: Keys | None = None  # of a Dict observation, in this order; None: all, sorted
    drawn: Literal["first", "last", "full"] = "first"  # how windows are drawn, see `data.windows.WindowSampler`
    # keep: a fine-tune keeps the mean and std of its base. none: observations are not normalized
    normalization: Literal["dataset", "keep", "none"] = "dataset"
    # Share of the episodes held out of training, on which the logged error is measured. None: the run chooses a share
    held_out: Annotated[float, Field(ge=0.0, le=0.5)] | None = None
    dataset_sha256: Digest | None = None  # `Episodes.sha256`, filled in by a run

    @model_serializer(mode="wrap")
    def _without_unset_fields(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {k: v for k, v in write(self).items() if v is not None or k not in ("held_out", "dataset_sha256")}


class TrainConfig(Config):
    """How the optimizer runs."""

    steps: Annotated[int, Field(ge=1, le=100_000_000)] = 100_000
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    lr: Positive = 1e-4
    warmup_steps: Count = 10_000
    schedule: Literal["constant", "cosine"] = "constant"  # after warm-up; cosine falls to 0 at the last step
    weight_decay: Annotated[float, Field(ge=0.0, le=10.0)] = 1e-4
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: Positive = 1e-8
    clip: Positive | None = 0.25  # global gradient norm
    seed: Count = 0
    checkpoint_every: Annotated[int, Field(ge=1)] = 500
    log_every: Annotated[int, Field(ge=1)] = 50
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 where the processor computes it natively
    patience: Count = 0  # training stops after this many updates without a better evaluation; 0: never


class EvalConfig(Config):
    """How the agent is evaluated, fixed before training."""

    env: EnvId  # Gymnasium id
    env_options: dict[Option, bool | int | float | str] = Field(default_factory=dict)  # keyword arguments of `gym.make`
    target_return: TargetReturn
    target_rule: TargetRule = "number"  # how the target return was chosen, see `data.targets`
    history: History = None
    sampled: bool = False  # Discrete actions are sampled, as papers on Atari do; else the most likely ones are taken
    reference: tuple[float, float] | None = None  # returns that score 0 and 100, for an `env` without agreed references
    episodes: Annotated[int, Field(ge=1, le=100_000)] = 100  # in the final evaluation
    every: Count = 5_000  # training steps between short evaluations; 0: none
    every_episodes: Annotated[int, Field(ge=1, le=10_000)] = 10


class Stretch(Config):
    """One uninterrupted part of a run: its first update and the machine it ran on."""

    from_update: Count
    processes: Annotated[int, Field(ge=1, le=100_000)]
    devices: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(max_length=1_000)]  # without repetition
    precision: Literal["fp32", "bf16"]
    threads: Annotated[int, Field(ge=1, le=100_000)]  # CPU threads of each process
    torch: Annotated[str, Field(max_length=100)]


class Recipe(Config):
    """Model, data, training and evaluation of one agent."""

    agent_id: AgentId
    model: AnyModel
    data: DataConfig
    train: TrainConfig
    eval: EvalConfig
    base: AgentId | None = None  # a fine-tune: the agent whose weights it starts from
    base_weights_sha256: Digest | None = None  # of that agent's model.safetensors
    base_repo: RepoId | None = None  # the Hub repo that agent was loaded from, and its commit
    base_revision: Commit | None = None
    reinit: bool = False  # a fine-tune: layers whose shape differs from the base's start from random weights
    ran: Annotated[tuple[Stretch, ...], Field(max_length=1_000)] = ()  # written by the run; empty in packaged recipes

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        if self.train.patience and not self.eval.every:
            raise ValueError("train.patience needs evaluations while training, and eval.every=0 makes none")
        if self.eval.history is not None and self.eval.history > self.data.context:
            raise ValueError(
                f"eval.history is {self.eval.history}, but a window (data.context) has {self.data.context}"
            )
        if self.eval.reference is not None and not self.eval.reference[0] < self.eval.reference[1]:
            raise ValueError(
                f"eval.reference is {self.eval.reference}, not the returns that score 0 and 100, the lower one first"
            )
        if self.base is None and (self.reinit or self.data.normalization == "keep"):
            field = "reinit" if self.reinit else "data.normalization=keep"
            raise ValueError(f"{field} is for a fine-tune, and this recipe names no base")
        if self.model.needs_raw_observations() and self.data.normalization != "none":
            raise ValueError("this model needs raw one-hot observations: set data.normalization=none")
        return self

    @model_serializer(mode="wrap")
    def _without_defaults_of_later_fields(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        tree: dict[str, Any] = write(self)
        # recipes written before these fields existed stay the same
        for name in ("base_weights_sha256", "base_repo", "base_revision"):
            if tree.get(name) is None:
                tree.pop(name, None)
        if not tree.get("reinit"):
            tree.pop("reinit", None)
        if tree.get("eval", {}).get("target_rule") == "number":
            del tree["eval"]["target_rule"]
        if "eval" in tree and not tree["eval"].get("sampled"):
            tree["eval"].pop("sampled", None)
        if not tree.get("ran"):
            tree.pop("ran", None)
        for name in ("reference", "history"):
            if "eval" in tree and tree["eval"].get(name) is None:
                tree["eval"].pop(name, None)
        return tree

    def pinned(self) -> Recipe:
        """A copy with the hashes of the files that training reads besides the data (`ModelConfig.pinned`)."""
        return self.replace(model=self.model.pinned())

    def unpinned(self) -> Recipe:
        """A copy without hashes and without the record of a run, as packaged recipes are."""
        data = self.data.model_copy(update={"dataset_sha256": None})
        return self.replace(model=self.model.unpinned(), data=data, ran=())

    def unsettled(self, packaged: Recipe) -> Recipe:
        """A run's recipe without the values that `packaged` leaves to the run (precision, held-out share)."""
        settled = self.unpinned()
        if packaged.train.precision == "auto":
            settled = settled.replace(train=settled.train.model_copy(update={"precision": "auto"}))
        if packaged.data.held_out is None:
            settled = settled.replace(data=settled.data.model_copy(update={"held_out": None}))
        return settled

    def replace(self, **fields: Any) -> Recipe:
        """A copy with these top-level fields changed."""
        return self.model_copy(update=fields)

    def with_target(self, target: Target) -> Recipe:
        """A copy with this target return and its rule."""
        changed = {"target_return": target.value, "target_rule": target.rule}
        return self.replace(eval=self.eval.model_copy(update=changed))

    def with_history(self, history: int | None) -> Recipe:
        """A copy whose agent acts on this many newest steps; None: on the whole window."""
        return self.replace(eval=self.eval.model_copy(update={"history": history}))

    def unseeded(self) -> Recipe:
        """A copy with seed 0 and no record of a run: the recipes of one training with different seeds become equal, if
        their machines chose the same precision.
        """
        return self.replace(train=self.train.model_copy(update={"seed": 0}), ran=())

    def override(self, settings: Iterable[str]) -> Recipe:
        """A copy with `section.field=value` settings applied; `record.parsed_setting` reads a value.

        `model.preset=NAME` sets the fields of one of the family's presets. Another `eval.env` drops the options and
        reference returns of the old one, unless they are among the settings.

        Raises:
            ConfigError: no such field (with the nearest name), or a value of the wrong type or out of range.
        """
        tree = {"reinit": False, **json.loads(self.model_dump_json())}
        settings = [settings] if isinstance(settings, str) else list(settings)
        named = {one.partition("=")[0].strip() for one in settings}
        if named & {"data.dataset", "data.obs_keys"}:
            tree["data"]["dataset_sha256"] = None  # the hash is that of the old data
        for setting in settings:
            path, found, text = setting.partition("=")
            if not found:
                raise ConfigError(f"--set takes section.field=value, got {setting!r}.")
            section, _, field = path.strip().partition(".")
            kinds = {one: self._class_of(one, tree[one]) for one in SECTIONS if isinstance(tree[one], dict)}
            known = [f"{one}.{each}" for one, kind in kinds.items() for each in kind.model_fields]
            value = parsed_setting(text)
            if path.strip() == "model.preset" and "model" in kinds:
                tree["model"].update(kinds["model"].fields_of_preset(str(value), tree["model"].get("max_ep_len")))
                continue
            if path.strip() == "eval.target_rule":
                raise ConfigError(f"{section}.{field} only records a choice; --target (target=) chooses by a rule.")
            if path.strip() not in (known if field else tree):
                raise ConfigError(f"a recipe has no field {path!r}.{did_you_mean(path, known)} See `agentzoo show`.")
            if path.strip() == "eval.target_return":
                tree["eval"].pop("target_rule", None)  # the user chose a number
            node, name = (tree[section], field) if field else (tree, section)
            node[name] = value
        evaluation, data, model = tree["eval"], tree["data"], tree["model"]
        if "model" not in named and any(model.get(one) != getattr(self.model, one) for one in self.model.selects):
            model.update({field: None for field in self.model.recorded if f"model.{field}" not in named})
        if isinstance(evaluation, dict) and isinstance(data, dict):  # else the record's check says what is wrong
            _forget_old_environment(evaluation, self.eval.env, named)
            if "data.context" in named and "eval.history" not in named:
                evaluation["history"] = _within(evaluation.get("history"), data.get("context"))
        return Recipe.from_json(json.dumps(tree), "the recipe with --set applied")

    def _class_of(self, section: str, part: Mapping[str, Any]) -> Any:
        """The config class of a section, which also has the fields that `part` omits."""
        if section == "model":
            return get_family(str(part.get("family", self.model.family))).config
        return type(getattr(self, section))


def _forget_old_environment(evaluation: dict[str, Any], before: str, named: set[str]) -> None:
    """Drop what belongs to the environment `before`, if the new one differs by more than its module."""
    if "eval" in named or same_environment(str(evaluation.get("env")), before):
        return
    for name, empty in (("env_options", {}), ("reference", None)):
        if f"eval.{name}" not in named:
            evaluation[name] = empty


def _within(history: int | None, context: Any) -> int | None:
    """`history`, or None (the whole window) if windows of `context` steps are shorter."""
    return None if history and isinstance(context, int) and history > context else history


def there_and_asked(differing: Mapping[str, tuple[Any, Any]]) -> str:
    """Differences in words: `train.lr: 0.001 there, 0.002 asked; ...`."""
    return "; ".join(f"{name}: {old!r} there, {new!r} asked" for name, (old, new) in differing.items())


def differences(first: Recipe, other: Recipe) -> dict[str, tuple[Any, Any]]:
    """Fields that differ, named as for `--set`, each with its values in `first` and `other`.

    Models of two families are compared by family name and by the fields they share. The hash of another file is
    compared only if both recipes name the same file and hold a hash.
    """
    ours, theirs = _fields(first), _fields(other)
    of_one_family = first.model.family == other.model.family
    found = {
        name: (ours.get(name), theirs.get(name))
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name)
        and (of_one_family or not name.startswith("model.") or name in ours.keys() & theirs.keys())
    }
    sources = {"base_weights_sha256": "base", "data.dataset_sha256": "data.dataset"}
    for model in (first.model, other.model):
        sources |= {f"model.{field}": f"model.{source}" for field, source in model.recorded.items()}
    for name in ("ran", "base_repo", "base_revision"):  # where the base was loaded from; its hash says what it is
        found.pop(name, None)
    if "auto" in found.get("train.precision", ()):
        del found["train.precision"]  # a run stores what it chose
    if None in found.get("data.held_out", ()):
        del found["data.held_out"]
    return {
        name: values
        for name, values in found.items()
        if name not in sources or (sources[name] not in found and None not in values)
    }


def _fields(recipe: Recipe) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in recipe.model_dump().items():
        if isinstance(value, dict):
            found |= {f"{name}.{field}": inner for field, inner in value.items()}
        else:
            found[name] = value
    return found


def load_recipe(agent_id: str) -> Recipe:
    """The packaged recipe of an agent, e.g. `dt-hopper-medium`; a leading `zoo/` is allowed.

    Raises:
        UnknownNameError: with the nearest known id.
    """
    table = recipe_table()
    name = agent_id.removeprefix("zoo/")
    if name not in table:
        hint = " It is a family: name a dataset (--dataset)." if name in family_names() else did_you_mean(name, table)
        raise UnknownNameError(f"no recipe {agent_id!r}.{hint} See `agentzoo list --all`.")
    recipe: Recipe = table[name]
    return recipe
