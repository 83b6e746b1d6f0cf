"""Agents that a Hub has: what each repo says of itself."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from agentzoo.store.remote import Where, calling, retried
from agentzoo.types import Config

LIBRARY = "agentzoo"  # the Hub's library tag
UNREADABLE = (TypeError, ValueError, AttributeError, KeyError, OverflowError)  # what a card of a stranger may raise


class RemoteAgent(Config):
    """One line of `agentzoo list --remote`: what a repo says of itself, unverified."""

    repo_id: str
    commit: str | None
    score: float | None
    metric: str | None
    downloads: int | None


def remote_agents(
    author: str | None = None, token: str | bool | None = None, limit: int | None = None
) -> list[RemoteAgent]:
    """Repos of the Hub that say they are for this library, with the score on their card.

    Raises:
        HubError: says what to do.
    """
    from huggingface_hub import HfApi

    def found(token: str | bool | None) -> list[RemoteAgent]:
        api = HfApi(token=token, library_name=LIBRARY)

        def listed(cards: bool) -> list[Any]:
            return list(api.list_models(filter=LIBRARY, author=author, cardData=cards, full=True, limit=limit))

        try:
            infos = retried(lambda: listed(True))
        except UNREADABLE:  # one card that the client cannot read takes all others with it
            infos = [_with_card(api, info) for info in retried(lambda: listed(False))]
        return sorted((_summary(info) for info in infos), key=lambda one: one.repo_id)

    return calling(found, token, Where(author or "any"), "agents of the Hub could not be listed", again=False)


def _with_card(api: Any, info: Any) -> Any:
    """What the Hub says of one repo, with its card if that can be read."""
    try:
        return retried(lambda: api.model_info(info.id))
    except UNREADABLE:
        return info


def _summary(info: Any) -> RemoteAgent:
    """Anybody can write a card of this library: what is no list of numbers is no score."""
    score = metric = None
    results = getattr(info.card_data, "eval_results", None)
    first: Any = results[0] if isinstance(results, list) and results else None
    value = getattr(first, "metric_value", None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # of an integer with hundreds of digits
            score = float(value) if math.isfinite(value) else None
        metric = None if score is None else str(first.metric_name or first.metric_type)[:200]
    downloads = info.downloads if isinstance(info.downloads, int) else None
    return RemoteAgent(repo_id=str(info.id), commit=info.sha, score=score, metric=metric, downloads=downloads)
