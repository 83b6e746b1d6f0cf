"""Render DoorKey with PIL, at four times the size and scaled down for smooth edges."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from agentzoo.envs.doorkey_rules import DOOR, GOAL, SIDE, Cell, GridState, is_wall

CELL = 56  # pixels per cell; the image is SIDE + 2 cells wide, an even number of pixels as video needs
SCALE = 4
FLOOR, GRID, WALL, BRICK = "#f4f1ea", "#ddd6c8", "#5b6270", "#4c525e"
DOOR_COLOR, DOOR_EDGE, LOCK = "#b0713a", "#7d4d22", "#f3c546"
GOAL_COLOR, FLAG, POLE = "#cfe8cf", "#3f9b57", "#41505a"
AGENT, AGENT_EDGE, KEY, KEY_EDGE = "#3c78d8", "#22509c", "#f0b429", "#a87508"


def draw(state: GridState, door_open: bool) -> NDArray[np.uint8]:
    """(336, 336, 3) RGB image: grey walls, a flag at the goal, a brown door, a held key on the agent."""
    unit = CELL * SCALE
    size = unit * (SIDE + 2)
    image = Image.new("RGB", (size, size), FLOOR)
    pen = ImageDraw.Draw(image)
    for x in range(SIDE + 2):
        for y in range(SIDE + 2):
            _floor(pen, (x, y), unit)
    _door(pen, unit, door_open)
    _flag(pen, unit)
    if not state.has_key:
        _key(pen, (state.key[0] + 0.5) * unit, (state.key[1] + 0.5) * unit, 0.30 * unit)
    _agent(pen, state, unit)
    small = image.resize((size // SCALE, size // SCALE), Image.Resampling.LANCZOS)
    return np.array(small, dtype=np.uint8)


def _floor(pen: ImageDraw.ImageDraw, cell: Cell, unit: int) -> None:
    left, top = cell[0] * unit, cell[1] * unit
    box = (left, top, left + unit - 1, top + unit - 1)
    if not is_wall(cell):
        pen.rectangle(box, fill=GOAL_COLOR if cell == GOAL else FLOOR, outline=GRID, width=SCALE)
        return
    pen.rectangle(box, fill=WALL)
    third = unit // 3
    for row in range(3):  # courses of bricks, every second one shifted by half a brick
        y = top + row * third
        pen.line((left, y, left + unit, y), fill=BRICK, width=SCALE)
        x = left + (unit // 4 if row % 2 else 3 * unit // 4)
        pen.line((x, y, x, y + third), fill=BRICK, width=SCALE)


def _door(pen: ImageDraw.ImageDraw, unit: int, door_open: bool) -> None:
    left, top = DOOR[0] * unit, DOOR[1] * unit
    if door_open:  # swung against the upper side of its cell
        pen.rectangle((left, top, left + unit, top + unit // 8), fill=DOOR_COLOR, outline=DOOR_EDGE, width=SCALE)
        return
    edge = unit // 12
    pen.rectangle((left, top, left + unit - 1, top + unit - 1), fill=DOOR_EDGE)
    pen.rectangle((left + edge, top + edge, left + unit - edge, top + unit - edge), fill=DOOR_COLOR)
    x, y, r = left + 0.5 * unit, top + 0.45 * unit, 0.11 * unit
    pen.polygon([(x, y), (x - r, y + 2.4 * r), (x + r, y + 2.4 * r)], fill=LOCK)
    pen.ellipse((x - r, y - r, x + r, y + r), fill=LOCK)


def _flag(pen: ImageDraw.ImageDraw, unit: int) -> None:
    left, top = GOAL[0] * unit, GOAL[1] * unit
    x = left + 0.36 * unit
    pen.line((x, top + 0.18 * unit, x, top + 0.84 * unit), fill=POLE, width=unit // 18)
    pen.polygon([(x, top + 0.18 * unit), (x + 0.36 * unit, top + 0.32 * unit), (x, top + 0.47 * unit)], fill=FLAG)


def _key(pen: ImageDraw.ImageDraw, x: float, y: float, size: float) -> None:
    """A ring, a shaft to the right and two teeth, `2 size` long and centred on (x, y)."""
    ring, thick = 0.42 * size, 0.2 * size
    centre = x - size + ring
    for grow, color in ((0.07 * size, KEY_EDGE), (0.0, KEY)):
        pen.rectangle((centre, y - thick / 2 - grow, x + size + grow, y + thick / 2 + grow), fill=color)
        for tooth in (0.55, 0.85):
            place = x + tooth * size
            pen.rectangle((place - thick / 2 - grow, y, place + thick / 2 + grow, y + 0.42 * size + grow), fill=color)
        pen.ellipse((centre - ring - grow, y - ring - grow, centre + ring + grow, y + ring + grow), fill=color)
    hole = 0.45 * ring
    pen.ellipse((centre - hole, y - hole, centre + hole, y + hole), fill=KEY_EDGE)


def _agent(pen: ImageDraw.ImageDraw, state: GridState, unit: int) -> None:
    x, y = (state.agent[0] + 0.5) * unit, (state.agent[1] + 0.5) * unit
    r = 0.33 * unit
    pen.ellipse((x - r, y - r, x + r, y + r), fill=AGENT, outline=AGENT_EDGE, width=unit // 24)
    for side in (-1, 1):
        ex, ey, er = x + side * 0.12 * unit, y - 0.1 * unit, 0.055 * unit
        pen.ellipse((ex - er, ey - er, ex + er, ey + er), fill="white")
    if state.has_key:
        _key(pen, x, y + 0.12 * unit, 0.2 * unit)
