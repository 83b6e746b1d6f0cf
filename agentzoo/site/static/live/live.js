// The page around the player: what is chosen, what is shown.
import { Player } from "./player.js";

const $ = (id) => document.getElementById(id);
const agents = JSON.parse($("facts").textContent);
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : 0 });
const LIBRARIES = 27e6;  // bytes of MuJoCo, ONNX Runtime and three.js

function chosen() {
  return agents[$("agent").value];
}

// Numbers between `low` and `high` as bars around zero. The elements stay, so that they can move.
function bars(where, values, low, high, names) {
  while (where.children.length > values.length) where.lastChild.remove();
  while (where.children.length < values.length) {
    where.append(Object.assign(document.createElement("div"), { innerHTML: "<span></span><i><b></b></i><em></em>" }));
  }
  values.forEach((value, i) => {
    const [name, track, shown] = where.children[i].children;
    const place = (one) => (100 * (Math.min(high[i], Math.max(low[i], one)) - low[i])) / (high[i] - low[i]);
    const [from, to] = [place(Math.max(low[i], 0)), place(value)];
    name.textContent = names ? names[i] : i + 1;
    Object.assign(track.firstChild.style, { left: `${Math.min(from, to)}%`, width: `${Math.abs(to - from)}%` });
    shown.textContent = value.toFixed(2);
  });
}

function showAction(player) {
  const { facts, last } = player;
  if (facts.discrete) {
    const most = Math.max(...last.output);
    const odds = last.output.map((value) => Math.exp(value - most));
    const sum = odds.reduce((a, b) => a + b);
    bars($("actions"), odds.map((value) => value / sum), odds.map(() => 0), odds.map(() => 1),
      facts.scene_kind === "grid" ? ["right", "down", "left", "up"] : null);
  } else {
    const size = last.action.length;
    bars($("actions"), last.action, facts.low ?? new Array(size).fill(-1), facts.high ?? new Array(size).fill(1));
  }
}

function showLooks(player) {
  const { attention, gates } = player.last;
  $("looks").hidden = !attention;
  $("weighs").hidden = !gates;
  if (attention) {
    const most = Math.max(...attention);
    const strip = $("attention");
    while (strip.children.length > attention.length) strip.lastChild.remove();
    while (strip.children.length < attention.length) strip.append(document.createElement("i"));
    attention.forEach((value, i) => { strip.children[i].style.height = `${(100 * value) / most}%`; });
  }
  if (gates) bars($("gates"), gates, gates.map(() => 0), gates.map(() => 1), gates.map((_, i) => `head ${i + 1}`));
}

// The slider of goals: as many as there are now. 0 is none, which a maze does not have.
function showGoals(player) {
  const range = $("goal-number");
  range.max = player.goals;
  if (player.aims === "maze") return;
  const none = player.aims === "pose" ? "none" : "no waypoint";
  $("goal-chosen").textContent = player.goal ? range.value > 0 ? `${range.value} of ${player.goals}` : "chosen" : none;
}

const GOALS = {
  maze: ["Goal", "Drag the goal, or press where it shall be."],
  cell: ["Waypoint", "Press on a free cell: the agent plans to hold the key there at the end."],
  pose: ["Goal", "A pose of its first steps, drawn pale: the agent is shown it as the end of its window."],
};

function startGoals(player) {
  $("goal").hidden = !player.aims;
  if (!player.aims) return;
  [$("goal-name").textContent, $("goal-words").textContent] = GOALS[player.aims];
  $("no-goal").hidden = player.aims === "maze";
  $("goal-chosen").textContent = "";
  Object.assign($("goal-number"), { min: player.aims === "maze" ? 1 : 0, max: player.goals, step: 1 });
  $("goal-number").value = 0;
}

function show(player) {
  $("earned").textContent = number(player.earned);
  $("left").textContent = player.left === null ? "–" : number(player.left);
  $("step").textContent = number(player.steps);
  $("millis").textContent = player.steps ? player.millis.toFixed(1) : "–";
  if (player.last) {
    showAction(player);
    showLooks(player);
  }
  const over = player.over ? `The episode ${player.over === "ended" ? "ended" : "is at its time limit"}: return ${number(player.earned)} in ${player.steps} steps.` : "";
  const said = player.problem ?? over;
  if ($("status").textContent !== said) $("status").textContent = said;
  if (player.aims) showGoals(player);
  $("pause").textContent = player.playing ? "Pause" : "Go on";
}

const player = new Player({ world: $("stage"), grid: $("grid") }, show);
$("live").player = player;  // for the console and for tests

function choose() {
  const facts = chosen();
  const range = $("target");
  $("measured").textContent = `Measured: ${facts.measured}. `;
  $("measured").append(Object.assign(document.createElement("a"), { href: facts.page, textContent: "Its page" }));
  $("weight").textContent = `loads ${Math.round(((player.facts ? 0 : LIBRARIES) + facts.bytes) / 1e6)} MB`;
  range.disabled = !facts.asks;
  const most = Math.max(1.5 * facts.target_return, 0.5 * Math.abs(facts.target_return));
  Object.assign(range, { min: Math.min(0, 3 * facts.target_return), max: most, step: "any" });
  range.value = facts.target_return;
  $("asked").textContent = facts.asks ? number(facts.target_return) : "– (this agent reads no return)";
  $("start").hidden = Boolean(player.facts);
  $("poster").hidden = Boolean(player.facts) || !facts.poster;
  if (facts.poster && !player.facts) $("poster").src = facts.poster;
}

async function start() {
  const facts = chosen();
  $("start").disabled = true;
  $("status").textContent = "Loading …";
  try {
    await player.load(facts);
    if (facts !== chosen()) return;  // another one was chosen meanwhile
    player.target = facts.asks ? Number($("target").value) : facts.target_return;
    startGoals(player);
    $("start").hidden = $("poster").hidden = true;
    for (const name of ["pause", "reset"]) $(name).disabled = false;
    $("kick").disabled = facts.scene_kind === "grid" || !player.stage;
    player.play();
  } catch (error) {
    $("status").textContent = `It could not be loaded: ${error.message}`;
  }
  $("start").disabled = false;
}

$("agent").addEventListener("change", () => {
  choose();
  if (player.loading) start();  // play was pressed
});
$("start").addEventListener("click", start);
$("pause").addEventListener("click", () => {
  if (player.playing) player.stop();
  else player.play();
  show(player);
});
$("reset").addEventListener("click", () => {
  player.reset();
  redraw();
});
$("speed").addEventListener("change", () => { player.speed = Number($("speed").value); });
$("target").addEventListener("input", () => {
  $("asked").textContent = number(Number($("target").value));
  player.target = Number($("target").value);
  if (player.facts) show(player);
});
$("grid").addEventListener("click", (event) => {
  const cell = player.stage?.placeAt?.(event);
  if (!cell || player.aims !== "cell") return;
  player.aim(cell);
  $("goal-number").value = 1 + player.environment.places().findIndex(([x, y]) => x === cell[0] && y === cell[1]);
  redraw();
});
$("goal-number").addEventListener("input", () => {
  player.aimAt(Number($("goal-number").value));
  redraw();
});
$("no-goal").addEventListener("click", () => {
  $("goal-number").value = 0;
  player.clearGoal();
  redraw();
});
$("kick").addEventListener("click", () => player.stage?.kick());
function redraw() {
  player.stage?.draw();
  show(player);
}
choose();
