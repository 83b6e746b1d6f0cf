"""List the agents on a Hub, as their repos describe themselves."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

from agentzoo.store.downloads import Where, calling, retried
from agentzoo.types import Config

LIBRARY = "agentzoo"  # the Hub's library tag
UNREADABLE = (TypeError, ValueError, AttributeError, KeyError, OverflowError)  # errors that an untrusted card can cause


class RemoteAgent(Config):
    """One line of `agentzoo list --remote`, from the repo's own card, unverified."""

    repo_id: str
    commit: str | None
    score: float | None  # normalized
    mean_return: float | None
    metric: str | None  # the name of the first of these that the card has
    downloads: int | None


def remote_agents(
    author: str | None = None, token: str | bool | None = None, limit: int | None = None
) -> list[RemoteAgent]:
    """Repos of the Hub with this library's tag, with the score and the return on their card.

    Raises:
        HubError: the request failed.
    """
    from huggingface_hub import HfApi

    def found(token: str | bool | None) -> list[RemoteAgent]:
        api = HfApi(token=token, library_name=LIBRARY)

        def listed(cards: bool) -> list[Any]:
            return list(api.list_models(filter=LIBRARY, author=author, cardData=cards, full=True, limit=limit))

        try:
            infos = retried(lambda: listed(True))
        except UNREADABLE:  # one unreadable card makes the whole request fail
            infos = [_with_card(api, info) for info in retried(lambda: listed(False))]
        return sorted((_summary(info) for info in infos), key=lambda one: one.repo_id)

    return calling(found, token, Where(author or "any"), "agents of the Hub could not be listed", again=False)


def _with_card(api: Any, info: Any) -> Any:
    """The Hub's information on one repo, with its card if readable."""
    try:
        return retried(lambda: api.model_info(info.id))
    except UNREADABLE:
        return info


def _summary(info: Any) -> RemoteAgent:
    """One line from an untrusted card: a value that is not a finite number is not shown."""
    results = getattr(info.card_data, "eval_results", None)
    score, score_name = _measured(results, lambda kind: kind.endswith("normalized_score"))
    mean_return, return_name = _measured(results, lambda kind: kind == "mean_reward")
    downloads = info.downloads if isinstance(info.downloads, int) else None
    return RemoteAgent(
        repo_id=str(info.id),
        commit=info.sha,
        score=score,
        mean_return=mean_return,
        metric=score_name or return_name,
        downloads=downloads,
    )


def _measured(results: Any, wanted: Callable[[str], bool]) -> tuple[float | None, str | None]:
    """Value and name of the first result of a wanted type."""
    for one in results if isinstance(results, list) else []:
        kind, value = str(getattr(one, "metric_type", "")), getattr(one, "metric_value", None)
        if not wanted(kind) or not isinstance(value, int | float) or isinstance(value, bool):
            continue
        with contextlib.suppress(OverflowError):  # an integer with hundreds of digits
            if math.isfinite(value):
                return float(value), str(one.metric_name or kind)[:200]
    return None, None
