"""List the agents on a Hub, as their repos describe themselves."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from agentzoo.store.remote import Where, calling, retried
from agentzoo.types import Config

LIBRARY = "agentzoo"  # the Hub's library tag
UNREADABLE = (TypeError, ValueError, AttributeError, KeyError, OverflowError)  # errors that an untrusted card can cause


class RemoteAgent(Config):
    """One line of `agentzoo list --remote`, from the repo's own card, unverified."""

    repo_id: str
    commit: str | None
    score: float | None
    metric: str | None
    downloads: int | None


def remote_agents(
    author: str | None = None, token: str | bool | None = None, limit: int | None = None
) -> list[RemoteAgent]:
    """Repos of the Hub with this library's tag, with the score on their card.

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
    """One line from an untrusted card: a value that is not a finite number is not shown as a score."""
    score = metric = None
    results = getattr(info.card_data, "eval_results", None)
    first: Any = results[0] if isinstance(results, list) and results else None
    value = getattr(first, "metric_value", None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # an integer with hundreds of digits
            score = float(value) if math.isfinite(value) else None
        metric = None if score is None else str(first.metric_name or first.metric_type)[:200]
    downloads = info.downloads if isinstance(info.downloads, int) else None
    return RemoteAgent(repo_id=str(info.id), commit=info.sha, score=score, metric=metric, downloads=downloads)
