// Loads an agent and its environment, and plays: one action after the other, as fast as the speed and the page allow.
import { Actor, returnToGo } from "./acting.js";
import { generator, makeEnvironment } from "./environments.js";

const GRID_SECONDS = 0.5;  // between two moves of a grid
const MAX_THREADS = 4;  // of a network
const FRAME_MILLIS = 12;  // of a frame may go to steps
const MAX_POSES = 300;  // the first steps after loading, as goals for agents that take a pose

// The three libraries, fetched when they are first needed.
let mujoco, runtime;
async function libraries(scene) {
  const base = new URL("./", import.meta.url).href;
  if (!runtime) {
    runtime = await import("./ort.wasm.min.mjs");
    runtime.env.wasm.wasmPaths = base;
    // threads share memory, which a browser allows on isolated pages alone; MuJoCo's step is serial
    runtime.env.wasm.numThreads = crossOriginIsolated ? Math.min(MAX_THREADS, navigator.hardwareConcurrency) : 1;
  }
  if (!mujoco && scene.kind !== "grid") mujoco = await (await import("./mujoco.js")).default();
}

export class Player {
  // onChange(player) is called after each frame, and when playing starts or stops.
  constructor(canvases, onChange) {
    this.canvases = canvases;
    this.onChange = onChange;
    this.speed = 1;
    this.playing = false;
    this.stages = {};
    this.seed = Math.floor(1e9 * Math.random());
  }

  // One after the other, so that the agent chosen last stays.
  load(facts) {
    const before = this.loading ?? Promise.resolve();
    this.loading = before.catch(() => {}).then(() => this.replace(facts));
    return this.loading;
  }

  async replace(facts) {
    this.stop();
    this.problem = null;
    const file = (name) => new URL(name, import.meta.url).href;
    const scene = await (await fetch(file(facts.scene))).json();
    await libraries(scene);
    const session = await runtime.InferenceSession.create(file(facts.network), { executionProviders: ["wasm"] });
    this.stop();
    await this.stepping;
    this.stage = null;  // it shows the previous environment
    this.environment?.close();
    this.actor = new Actor(runtime, session, facts);
    this.environment = makeEnvironment(mujoco, scene);
    this.facts = facts;
    this.target = facts.target_return;
    this.poses = [];
    this.goal = null;
    this.reset();
    await this.setStage(scene.kind === "grid" ? "grid" : "world");
  }

  async setStage(kind) {
    for (const [name, canvas] of Object.entries(this.canvases)) canvas.hidden = name !== kind;
    try {
      this.stages[kind] ??= kind === "grid"
        ? new (await import("./grid.js")).GridStage(this.canvases.grid)
        : new (await import("./drawing.js")).Stage(this.canvases.world, (place) => {
            this.aim(place);
            this.stage.draw();
          });
      this.stage = this.stages[kind];
      this.stage.show(this.environment);
      this.stage.draw();
    } catch (error) {
      this.stage = null;  // without WebGL it plays unseen
      this.problem = `This browser cannot draw it: ${error.message}`;
    }
  }

  // A new episode; from this state if one is given, as `environment.place` takes it.
  reset(place = null) {
    this.seed += 1;
    this.observation = this.environment.reset(generator(this.seed));
    if (place) {
      place(this.environment);
      this.observation = this.environment.observe();
    }
    this.actor.forget();
    this.episode = {};
    Object.assign(this, { earned: 0, steps: 0, over: null, last: null, millis: 0 });
  }

  // The return that the agent is still asked for; null if it reads none.
  get left() {
    return this.facts.asks ? returnToGo(this.facts, this.target, this.earned) : null;
  }

  // What kind of goal this agent can be given: "maze", "cell", "pose" or null.
  get aims() {
    const { takes_goals: takes } = this.facts;
    const { kind } = this.environment.scene;
    if (kind === "maze") return "maze";
    return takes ? { grid: "cell", runner: "pose" }[kind] : null;
  }

  // How many goals there are to choose from.
  get goals() {
    return this.aims === "pose" ? this.poses.length : this.aims ? this.environment.places().length : 0;
  }

  // Aim for one of them, from 1; for none with 0.
  aimAt(number) {
    if (number === 0) this.clearGoal();
    else if (this.aims === "pose") {
      this.goal = this.poses[number - 1];
      this.environment.ghost = this.environment.pose(this.goal);
    } else this.aim(this.environment.places()[number - 1]);
  }

  // Aim for a place: the maze's own goal moves, or a cell becomes the waypoint.
  aim(place) {
    if (this.aims === "maze") this.environment.aim(place);
    if (this.aims === "cell") {
      this.goal = this.environment.encode(place, place);
      this.environment.waypoint = place;
    }
  }

  clearGoal() {
    this.goal = this.environment.waypoint = this.environment.ghost = null;
  }

  async step() {
    const { episode } = this;
    const began = performance.now();
    const last = await this.actor.act(this.observation, this.target, this.earned, this.goal);
    if (episode !== this.episode) return;  // another one has begun meanwhile
    this.last = last;
    const took = performance.now() - began;
    if (this.poses.length < MAX_POSES) this.poses.push(this.observation);
    this.millis = this.steps ? 0.95 * this.millis + 0.05 * took : took;
    this.stage?.push();
    const { observation, reward, terminated, truncated } = this.environment.step(this.last.action);
    this.observation = observation;
    this.earned += reward;
    this.steps += 1;
    if (terminated || truncated) this.over = terminated ? "ended" : "at its time limit";
  }

  // `count` steps without waiting or drawing, or fewer if the episode ends.
  async run(count) {
    for (let i = 0; i < count && !this.over; i++) await this.step();
    return { earned: this.earned, steps: this.steps, over: this.over, millis: this.millis };
  }

  async play() {
    if (this.playing) return;
    this.playing = true;
    const loop = this.loop = {};  // frames of an earlier one end
    await this.stepping;
    this.rest = 0;
    this.before = performance.now();
    this.frame(loop);
  }

  stop() {
    this.playing = false;
  }

  async frame(loop) {
    if (!this.playing || loop !== this.loop) return;
    const { environment } = this;
    const now = performance.now();
    const each = environment.model ? environment.model.opt.timestep * environment.scene.frame_skip : GRID_SECONDS;
    this.rest = Math.min(this.rest + (this.speed * (now - this.before)) / 1000, 10 * each + 0.05);
    this.before = now;
    try {
      while (this.playing && this.rest >= each && !this.over && performance.now() - now < FRAME_MILLIS) {
        this.stepping = this.step();
        await this.stepping;
        this.rest -= each;
      }
    } catch (error) {
      this.problem = error.message;
      this.stop();
    }
    if (loop !== this.loop || environment !== this.environment) return;
    this.stage?.draw();
    this.onChange(this);
    if (this.over) {
      setTimeout(() => {
        if (this.playing && this.over && loop === this.loop) this.reset();
        this.before = performance.now();
        this.frame(loop);
      }, 1500);
    } else {
      requestAnimationFrame(() => this.frame(loop));
    }
  }
}
