// Gymnasium's environments in JavaScript, on MuJoCo's own WebAssembly build. No page and no drawing in here.
//
// An environment has reset(random) -> observation, step(action) -> {observation, reward, terminated, truncated}, and
// the constants of its scene, which `agentzoo site --live` reads from Gymnasium's own objects.

// A seeded generator of numbers in [0, 1): mulberry32.
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

function normal(random) {  // Box-Muller
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

const between = (value, bounds) => bounds[0] < value && value < bounds[1];
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

class Simulated {
  constructor(mujoco, scene) {
    this.mujoco = mujoco;
    this.scene = scene;
    this.model = mujoco.MjModel.from_xml_string(scene.xml);
    this.data = new mujoco.MjData(this.model);
    this.start = Array.from(this.model.qpos0);
    this.steps = 0;
  }

  // Put the bodies somewhere at the start of an episode: positions and velocities, as in `MujocoEnv.set_state`.
  place(positions, velocities) {
    this.mujoco.mj_resetData(this.model, this.data);
    this.steps = 0;
    this.set(positions, velocities);
  }

  set(positions, velocities) {
    this.data.qpos.set(positions);
    this.data.qvel.set(velocities);
    this.mujoco.mj_forward(this.model, this.data);
  }

  simulate(action) {
    this.data.ctrl.set(action);
    for (let i = 0; i < this.scene.frame_skip; i++) this.mujoco.mj_step(this.model, this.data);
    this.steps += 1;
  }

  // Where a goal can be put: places of a maze; none elsewhere.
  places() {
    return [];
  }

  // (nq + nv) numbers that `place` restores.
  state() {
    return { positions: Array.from(this.data.qpos), velocities: Array.from(this.data.qvel) };
  }

  close() {
    this.data.delete();
    this.model.delete();
  }
}

// Hopper, HalfCheetah and Walker2d: forward progress less effort, and a body that must stay healthy.
class Runner extends Simulated {
  reset(random) {
    const { position, velocity, normal: drawn } = this.scene.noise;
    const around = (scale) => scale * (2 * random() - 1);
    const positions = this.start.map((value) => value + around(position));
    const velocities = Array.from(this.data.qvel, () => (drawn ? velocity * normal(random) : around(velocity)));
    this.place(positions, velocities);
    return this.observe();
  }

  observe() {
    const limit = this.scene.velocity_limit;
    const velocities = Array.from(this.data.qvel, (value) => (limit ? clamp(value, -limit, limit) : value));
    return [...this.data.qpos.slice(1), ...velocities];  // the place on the track is not observed
  }

  // Where the bodies are in an observation, for drawing: positions and rotations of all geoms, at 0 on the track.
  pose(observation) {
    const data = new this.mujoco.MjData(this.model);
    data.qpos.set([0, ...observation.slice(0, this.start.length - 1)]);
    this.mujoco.mj_kinematics(this.model, data);
    const found = { positions: Array.from(data.geom_xpos), rotations: Array.from(data.geom_xmat) };
    data.delete();
    return found;
  }

  healthy() {
    const { height, angle, state } = this.scene.healthy;
    const [, high, lean] = this.data.qpos;
    const others = [...this.data.qpos.slice(2), ...this.data.qvel];
    return between(high, height) && between(lean, angle) && (!state || others.every((value) => between(value, state)));
  }

  step(action) {
    const before = this.data.qpos[0];
    this.simulate(action);
    const speed = (this.data.qpos[0] - before) / (this.model.opt.timestep * this.scene.frame_skip);
    const effort = Array.from(action).reduce((sum, value) => sum + value * value, 0);
    const healthy = !this.scene.healthy || this.healthy();
    const alive = this.scene.healthy && healthy ? this.scene.healthy.reward : 0;
    return {
      observation: this.observe(),
      reward: alive + this.scene.forward_weight * speed - this.scene.effort_weight * effort,
      terminated: !healthy,
      truncated: this.steps >= this.scene.most_steps,
    };
  }
}

// PointMaze: a ball that is pushed to a goal; reward 1 there, and the episode ends.
class Maze extends Simulated {
  reset(random) {
    const near = (cell) => cell.map((value) => value + this.scene.noise * (2 * random() - 1));
    const pick = (cells) => cells[Math.floor(random() * cells.length)];
    this.goal = near(pick(this.scene.goals));
    let begin = this.goal;
    while (this.distance(begin) <= 0.5) begin = pick(this.scene.starts);
    this.place(near(begin), [0, 0]);
    return this.observe();
  }

  places() {
    return this.scene.starts;
  }

  // Move the goal to a place [x, y], or as close to it as goals can be.
  aim(place) {
    const far = (cell) => Math.hypot(cell[0] - place[0], cell[1] - place[1]);
    const cell = this.places().reduce((best, one) => (far(one) < far(best) ? one : best));
    const { noise } = this.scene;
    this.goal = cell.map((value, i) => clamp(place[i], value - noise, value + noise));
  }

  distance(position) {
    return Math.hypot(position[0] - this.goal[0], position[1] - this.goal[1]);
  }

  observe() {
    return [...this.data.qpos, ...this.data.qvel, ...this.goal];
  }

  step(action) {
    const most = this.scene.velocity_limit;
    this.set(Array.from(this.data.qpos), Array.from(this.data.qvel, (value) => clamp(value, -most, most)));
    this.simulate(action);
    const reached = this.distance(this.data.qpos) <= this.scene.radius;
    return {
      observation: this.observe(),
      reward: reached ? 1 : 0,
      terminated: reached,
      truncated: this.steps >= this.scene.most_steps,
    };
  }
}

// DoorKey, a 4 x 4 grid: the rules of agentzoo/envs/doorkey_rules.py.
class Grid {
  constructor(mujoco, scene) {
    this.scene = scene;
    this.reset(generator(0));
  }

  reset(random) {
    const cells = this.scene.left_cells;
    const first = Math.floor(random() * cells.length);
    const second = (first + 1 + Math.floor(random() * (cells.length - 1))) % cells.length;
    this.place(cells[first], cells[second]);
    return this.observe();
  }

  place(agent, key) {
    [this.agent, this.key, this.steps, this.open] = [[...agent], [...key], 0, false];
  }

  isWall([x, y]) {
    const { side, door } = this.scene;
    return !(x >= 1 && x <= side && y >= 1 && y <= side) || (x === door[0] && y !== door[1]);
  }

  // The free cells.
  places() {
    const { side } = this.scene;
    const all = Array.from({ length: side * side }, (_, i) => [1 + (i % side), 1 + Math.floor(i / side)]);
    return all.filter((cell) => !this.isWall(cell));
  }

  hasKey() {
    return same(this.agent, this.key);
  }

  // Steps to the goal through the door, as if it were open.
  distance([x, y] = this.agent) {
    const { door, goal } = this.scene;
    if (x >= door[0]) return Math.abs(goal[0] - x) + Math.abs(goal[1] - y);
    return Math.abs(door[0] - 1 - x) + Math.abs(door[1] - y) + 1 + this.distance(door);
  }

  encode(agent, key) {
    const { side } = this.scene;
    const values = new Array(2 * side * side).fill(0);
    values[side * (agent[0] - 1) + agent[1] - 1] = 1;
    values[side * side + side * (key[0] - 1) + key[1] - 1] = 1;
    return values;
  }

  observe() {
    return this.encode(this.agent, this.key);
  }

  step(action) {
    const before = this.distance();
    const move = this.scene.moves[action];
    const target = [this.agent[0] + move[0], this.agent[1] + move[1]];
    if (!this.isWall(target) && (!same(target, this.scene.door) || this.hasKey())) {
      if (this.hasKey()) this.key = target;
      this.agent = target;
    }
    this.open ||= same(this.agent, this.scene.door);
    this.steps += 1;
    return {
      observation: this.observe(),
      reward: before - this.distance(),
      terminated: false,
      truncated: this.steps >= this.scene.most_steps,
    };
  }

  close() {}
}

const same = (one, other) => one[0] === other[0] && one[1] === other[1];
const KINDS = { runner: Runner, maze: Maze, grid: Grid };

// The environment of a scene. `mujoco` is the loaded module; a grid needs none.
export function makeEnvironment(mujoco, scene) {
  return new KINDS[scene.kind](mujoco, scene);
}
