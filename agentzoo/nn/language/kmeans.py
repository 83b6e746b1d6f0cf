"""The loss that pulls input tokens towards K-means centroids of a language model's token table.

Source: Reid et al. 2022, arXiv:2201.12122, section 3.2; machelreid/can-wikipedia-help-offline-rl@e1060f0.
Differs: the mean goes over real tokens only (there over padding too); the weight is exactly 0 from the last step of the
decay on (there 0.0067 for good).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from agentzoo.nn.base import mean_over_valid

ROUNDS = 100
STILL = 1e-4  # Lloyd's rounds end when a smaller share of the rows changes its centroid


def spherical_kmeans(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(count, D) unit vectors: centroids of `rows` (V, D) by cosine, k-means++ then Lloyd's rounds.

    A cluster that loses all its rows restarts at the row farthest from its own centroid. With at most `count` rows,
    the result is all of them at unit length.
    """
    points = normalize(rows.detach().float(), dim=-1)
    if count >= len(points):
        return points
    centroids = _plus_plus(points, count, generator)
    assigned = torch.full((len(points),), -1, device=points.device)
    for _ in range(ROUNDS):
        similarity, nearest = (points @ centroids.T).max(dim=-1)
        moved = int((nearest != assigned).sum())
        assigned = nearest
        if moved < STILL * len(points) or moved == 0:
            break
        sums = torch.zeros_like(centroids).index_add_(0, assigned, points)
        empty = torch.bincount(assigned, minlength=count) == 0
        sums[empty] = points[similarity.argsort()[: int(empty.sum())]]
        centroids = normalize(sums, dim=-1)
    return centroids


def _plus_plus(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means++: a random row, then each with probability proportional to its squared distance from those chosen."""
    chosen = [int(torch.randint(len(points), (1,), generator=generator))]
    distance = (2.0 - 2.0 * points @ points[chosen[0]]).clamp(min=0.0)
    while len(chosen) < count:
        if float(distance.sum()) <= 0.0:  # fewer different rows than centroids
            chosen.append(int(torch.randint(len(points), (1,), generator=generator)))
            continue
        chosen.append(int(torch.multinomial(distance.cpu(), 1, generator=generator)))
        distance = torch.minimum(distance, (2.0 - 2.0 * points @ points[chosen[-1]]).clamp(min=0.0))
    return points[chosen].clone()


def cosine_loss(tokens: Tensor, centroids: Tensor, valid: Tensor) -> Tensor:
    """Minus the mean, over real tokens, of the largest cosine to any centroid: between -1 and 1.

    Always in float32: bfloat16 cannot count a batch's tokens, and its gradient would be coarse.

    Args:
        tokens: (B, L, D); gradients flow into these only.
        centroids: (M, D) of any length.
        valid: (B, L), True on real tokens.
    """
    kind = tokens.device.type
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            return cosine_loss(tokens.float(), centroids, valid)
    best = (normalize(tokens, dim=-1) @ normalize(centroids, dim=-1).T).amax(dim=-1)  # (B, L)
    return -mean_over_valid(best, valid)


def decay(step: int, steps: int | None) -> float:
    """Weight of a language loss at update `step` (0-based): a falling sigmoid, 0 from `steps` on; 1 for None."""
    if steps is None:
        return 1.0
    if step >= steps:
        return 0.0
    return 1.0 / (1.0 + math.exp(-((steps - step) / (steps / 10) - 5.0)))
