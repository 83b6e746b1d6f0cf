// `Agent.predict` in JavaScript, through the exported network: the last K steps in a window padded on the right, or the
// newest step and the network's memory.

// What is left of the target, in raw units; all of it until the end where rewards are delayed.
export function returnToGo({ rewards }, target, earned) {
  return rewards === "delayed" ? target : target - earned;
}

// Stands for the action of a step that has none yet.
function noAction({ discrete, action_size: size }) {
  return discrete ? 0 : new Array(size).fill(0);
}

// The last K steps of one episode. As `AgentState`: returns-to-go are kept in raw units.
export class History {
  constructor(spec) {
    this.spec = spec;
    this.steps = [];  // {observation, action, returnToGo}
    this.timestep = -1;
    this.target = null;
  }

  // One more step. `target` is the target return now; a changed one shifts the whole history, as in Python.
  push(observation, target, earned) {
    if (this.target !== null && target !== this.target) {
      for (const step of this.steps) step.returnToGo += target - this.target;
    }
    this.target = target;
    this.steps.push({ observation, action: noAction(this.spec), returnToGo: returnToGo(this.spec, target, earned) });
    if (this.steps.length > this.spec.context) this.steps.shift();
    this.timestep += 1;
  }

  remember(action) {
    this.steps.at(-1).action = action;
  }

  // How many steps the network reads.
  seen(goal) {
    return Math.min(this.steps.length, this.spec.history, this.spec.context - (goal ? 1 : 0));
  }

  // The network's inputs by name, {type, data, shape} each.
  // `goal` is an observation that the last place of the window shows; the oldest step makes room for it.
  inputs(goal = null) {
    const { context, observation_size: wide, action_size: size, discrete, rtg_scale: scale } = this.spec;
    const steps = this.steps.slice(-this.seen(goal));
    const observations = new Float32Array(context * wide);
    const actions = discrete ? new BigInt64Array(context) : new Float32Array(context * size);
    const returnsToGo = new Float32Array(context);
    const timesteps = new BigInt64Array(context);
    const valid = new Uint8Array(context);
    steps.forEach((step, place) => {
      observations.set(step.observation, place * wide);
      if (discrete) actions[place] = BigInt(step.action);
      else actions.set(step.action, place * size);
      returnsToGo[place] = step.returnToGo / scale;
      timesteps[place] = BigInt(this.timestep - steps.length + 1 + place);
      valid[place] = 1;
    });
    const known = new Float32Array(context * wide);
    const shown = new Uint8Array(context);
    if (goal) {
      known.set(goal, (context - 1) * wide);
      shown[context - 1] = 1;
    }
    return {
      observations: { type: "float32", data: observations, shape: [1, context, wide] },
      actions: discrete
        ? { type: "int64", data: actions, shape: [1, context] }
        : { type: "float32", data: actions, shape: [1, context, size] },
      returns_to_go: { type: "float32", data: returnsToGo, shape: [1, context] },
      timesteps: { type: "int64", data: timesteps, shape: [1, context] },
      valid: { type: "bool", data: valid, shape: [1, context] },
      known_observations: { type: "float32", data: known, shape: [1, context, wide] },
      known_shown: { type: "bool", data: shown, shape: [1, context] },
    };
  }
}

// The past of a recurrent network: its own state, all zeros before the first step. As `MemoryState` in Python.
export class Memory {
  constructor(spec) {
    this.spec = spec;
    this.timestep = -1;
    this.action = noAction(spec);
    this.state = {};
    for (const [name, { type, shape }] of Object.entries(spec.memory)) {
      const size = shape.reduce((product, side) => product * side, 1);
      this.state[name] = { type, data: type === "int64" ? new BigInt64Array(size) : new Float32Array(size), shape };
    }
  }

  push(observation, target, earned) {
    this.observation = observation;
    this.returnToGo = returnToGo(this.spec, target, earned);
    this.timestep += 1;
  }

  // The network's inputs by name, {type, data, shape} each.
  inputs() {
    const { discrete, rtg_scale: scale, action_size: size } = this.spec;
    const found = {
      returns_to_go: { type: "float32", data: new Float32Array([this.returnToGo / scale]), shape: [1] },
      observations: { type: "float32", data: new Float32Array(this.observation), shape: [1, this.observation.length] },
      previous_actions: discrete
        ? { type: "int64", data: new BigInt64Array([BigInt(this.action)]), shape: [1] }
        : { type: "float32", data: new Float32Array(this.action), shape: [1, size] },
      timesteps: { type: "int64", data: new BigInt64Array([BigInt(this.timestep)]), shape: [1] },
    };
    for (const [name, value] of Object.entries(this.state)) found[`state_${name}`] = value;
    return found;
  }

  // The chosen action, and the network's new state among its outputs.
  remember(action, outputs) {
    this.action = action;
    for (const name of Object.keys(this.state)) {
      const { type, data, dims } = outputs[`new_${name}`];
      this.state[name] = { type, data, shape: dims };
    }
  }

  seen() {
    return 1;
  }
}

// The exported network of one agent and its past.
export class Actor {
  constructor(runtime, session, spec) {
    this.runtime = runtime;
    this.session = session;
    this.spec = spec;
    this.forget();
  }

  // The action for one observation; the most likely one where there are logits.
  async act(observation, target, earned, goal = null) {
    const { past } = this;  // `forget` may replace it while the network runs
    past.push(observation, target, earned);
    const named = past.inputs(goal);
    const inputs = {};
    for (const name of this.session.inputNames) {  // the graph omits what the network does not read
      const { type, data, shape } = named[name];
      inputs[name] = new this.runtime.Tensor(type, data, shape);
    }
    const found = await this.session.run(inputs);
    const output = Array.from(found.action.data);
    const { low, high, discrete } = this.spec;
    const action = discrete
      ? output.indexOf(Math.max(...output))
      : output.map((value, i) => (low ? Math.min(high[i], Math.max(low[i], value)) : value));
    past.remember(action, found);
    return { action, output, attention: this.attention(found, past.seen(goal)), gates: this.gates(found) };
  }

  // The next action is the first of an episode.
  forget() {
    this.past = this.spec.memory ? new Memory(this.spec) : new History(this.spec);
  }

  // How much the newest token looks at each of the last `count` steps, the mean over heads, or null.
  attention(found, count) {
    const weights = found[this.spec.shows.attention];
    if (!weights) return null;
    const [, heads, rows, tokens] = weights.dims;
    const steps = new Array(this.spec.context).fill(0);
    const newest = rows === 1 ? 0 : count - 1;
    for (let head = 0; head < heads; head++) {
      const from = (head * rows + newest) * tokens;
      for (let i = 0; i < tokens; i++) {
        steps[Math.floor(i / (tokens / steps.length))] += weights.data[from + i] / heads;
      }
    }
    return steps.slice(0, count);
  }

  // The weight of each head in the last layer, or null.
  gates(found) {
    const weights = found[this.spec.shows.gates];
    return weights ? Array.from(weights.data) : null;
  }
}
