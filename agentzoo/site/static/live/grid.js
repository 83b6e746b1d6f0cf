// Draws DoorKey on a plain canvas, and finds the cell under the pointer.

export class GridStage {
  constructor(canvas) {
    this.canvas = canvas;
  }

  show(environment) {
    this.environment = environment;
  }

  // The cell [x, y] under the pointer, from 1; null on a wall.
  placeAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const { left, top, tile } = this.measures(box.width, box.height);
    const cell = [event.clientX - box.left - left, event.clientY - box.top - top].map((v) => Math.floor(v / tile) + 1);
    return this.environment.isWall(cell) ? null : cell;
  }

  measures(width, height) {
    const tile = Math.min(width, height) / (this.environment.scene.side + 1);
    const wide = tile * this.environment.scene.side;
    return { tile, left: (width - wide) / 2, top: (height - wide) / 2 };
  }

  draw() {
    const { canvas, environment } = this;
    const { side, door, goal } = environment.scene;
    const ratio = Math.min(2, window.devicePixelRatio);
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    Object.assign(canvas, { width: width * ratio, height: height * ratio });
    const pen = canvas.getContext("2d");
    const paper = getComputedStyle(canvas);
    const color = (name) => paper.getPropertyValue(name).trim();
    pen.scale(ratio, ratio);
    const { tile, left, top } = this.measures(width, height);
    const middle = ([x, y]) => [left + (x - 0.5) * tile, top + (y - 0.5) * tile];
    const square = ([x, y], fill, inset = 1) => {
      pen.fillStyle = fill;
      pen.fillRect(left + (x - 1) * tile + inset, top + (y - 1) * tile + inset, tile - 2 * inset, tile - 2 * inset);
    };
    for (let x = 1; x <= side; x++) {
      for (let y = 1; y <= side; y++) square([x, y], color(environment.isWall([x, y]) ? "--soft" : "--card"));
    }
    square(goal, color("--own-soft"));
    square(door, color(environment.open ? "--card" : "--published"), tile * 0.12);
    if (environment.waypoint) {
      pen.strokeStyle = color("--published");
      pen.lineWidth = 3;
      pen.setLineDash([6, 5]);
      const [x, y] = middle(environment.waypoint);
      pen.strokeRect(x - 0.42 * tile, y - 0.42 * tile, 0.84 * tile, 0.84 * tile);
      pen.setLineDash([]);
    }
    const letter = (text, cell) => {
      pen.fillStyle = color("--soft");
      pen.font = `${tile * 0.16}px ${paper.fontFamily}`;
      pen.textAlign = "center";
      pen.fillText(text, middle(cell)[0], middle(cell)[1] + 0.42 * tile);
    };
    letter("goal", goal);
    letter("door", door);
    const disc = (cell, fill, radius) => {
      pen.fillStyle = fill;
      pen.beginPath();
      pen.arc(...middle(cell), radius * tile, 0, 2 * Math.PI);
      pen.fill();
    };
    disc(environment.agent, color("--own"), 0.3);
    disc(environment.key, color("--c3"), environment.hasKey() ? 0.12 : 0.16);
  }

  push() {}

  kick() {}
}
