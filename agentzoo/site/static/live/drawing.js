// Draws a MuJoCo model with three.js, and turns a drag with the pointer into a force on a body.
import * as three from "./three.module.js";

const PLANE = 0, SPHERE = 2, CAPSULE = 3, ELLIPSOID = 4, CYLINDER = 5, BOX = 6;  // mjtGeom
const PULL = 60;  // newtons for each metre between the pointer and the body
const KICK = 40, KICK_STEPS = 5;  // newtons against the direction of travel, and for how many steps

function shapeOf(type, [a, b, c]) {
  if (type === SPHERE) return new three.SphereGeometry(a, 32, 24);
  if (type === CAPSULE) return new three.CapsuleGeometry(a, 2 * b, 12, 24).rotateX(Math.PI / 2);
  if (type === ELLIPSOID) return new three.SphereGeometry(1, 32, 24).scale(a, b, c);
  if (type === CYLINDER) return new three.CylinderGeometry(a, a, 2 * b, 32).rotateX(Math.PI / 2);
  if (type === BOX) return new three.BoxGeometry(2 * a, 2 * b, 2 * c);
  return null;
}

function checker(light, dark) {
  const canvas = Object.assign(document.createElement("canvas"), { width: 2, height: 2 });
  const pen = canvas.getContext("2d");
  pen.fillStyle = light;
  pen.fillRect(0, 0, 2, 2);
  pen.fillStyle = dark;
  pen.fillRect(0, 0, 1, 1);
  pen.fillRect(1, 1, 1, 1);
  const texture = new three.CanvasTexture(canvas);
  texture.magFilter = three.NearestFilter;
  texture.wrapS = texture.wrapT = three.RepeatWrapping;
  texture.repeat.set(40, 40);
  texture.colorSpace = three.SRGBColorSpace;
  return texture;
}

// Move a mesh to where its geom is, `along` further on the track.
function put(mesh, positions, rotations, along) {
  const { geom } = mesh.userData;
  const [x, y, z] = positions.slice(3 * geom, 3 * geom + 3);
  const m = rotations.slice(9 * geom, 9 * geom + 9);
  mesh.matrix.set(m[0], m[1], m[2], x + along, m[3], m[4], m[5], y, m[6], m[7], m[8], z, 0, 0, 0, 1);
}

export class Stage {
  // onAim([x, y]) is called when the pointer drags a maze's goal, or presses on its floor.
  constructor(canvas, onAim) {
    this.canvas = canvas;
    this.onAim = onAim;
    this.renderer = new three.WebGLRenderer({ canvas, antialias: true });
    this.renderer.shadowMap.enabled = true;
    this.camera = new three.PerspectiveCamera(40, 1, 0.05, 100);
    this.camera.up.set(0, 0, 1);
    this.pull = null;
    this.kicks = 0;
    canvas.addEventListener("pointerdown", (event) => this.grab(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { this.pull = this.aiming = null; });
  }

  // The bodies of another environment.
  show(environment) {
    const { model } = environment;
    this.forget();
    this.environment = environment;
    this.scene = new three.Scene();
    this.meshes = [];
    this.ghosts = [];
    const paper = getComputedStyle(this.canvas);
    const color = (name) => paper.getPropertyValue(name).trim();
    this.scene.background = new three.Color(color("--sunk"));
    this.scene.fog = new three.Fog(color("--sunk"), 9, 24);
    this.scene.add(new three.HemisphereLight(0xffffff, 0x999080, 1.6));
    this.sun = new three.DirectionalLight(0xffffff, 2.2);
    this.sun.castShadow = true;
    this.sun.shadow.mapSize.set(1024, 1024);
    for (const side of ["left", "bottom"]) this.sun.shadow.camera[side] = -6;
    for (const side of ["right", "top"]) this.sun.shadow.camera[side] = 6;
    this.scene.add(this.sun, this.sun.target);
    for (let i = 0; i < model.ngeom; i++) {
      const type = model.geom_type[i];
      const [red, green, blue, alpha] = model.geom_rgba.slice(4 * i, 4 * i + 4);
      const flat = type === PLANE;
      const shape = flat ? new three.PlaneGeometry(40, 40) : shapeOf(type, model.geom_size.slice(3 * i, 3 * i + 3));
      if (!shape || (!flat && alpha === 0)) continue;
      const look = flat
        ? { map: checker(color("--card"), color("--line")) }
        : { color: new three.Color().setRGB(red, green, blue, three.SRGBColorSpace), roughness: 0.6 };
      this.add(new three.Mesh(shape, new three.MeshStandardMaterial(look)), i);
      if (!flat && environment.pose) this.addGhost(shape, i, color("--published"));
    }
    if (environment.goal) {
      const ball = (name, radius) => new three.Mesh(
        new three.SphereGeometry(radius, 32, 24), new three.MeshStandardMaterial({ color: color(name) }));
      this.ball = ball("--own", 0.2);
      this.goal = ball("--published", 0.2);
      this.ball.castShadow = this.goal.castShadow = true;
      this.ball.userData.body = 1;
      this.scene.add(this.ball, this.goal);
    } else {
      this.ball = this.goal = null;
    }
  }

  // Frees what the renderer keeps of the present scene.
  forget() {
    this.sun?.dispose();
    this.scene?.traverse(({ geometry, material }) => {
      geometry?.dispose();
      material?.map?.dispose();
      material?.dispose();
    });
  }

  add(mesh, geom) {
    const body = this.environment.model.geom_bodyid[geom];
    mesh.userData = { geom, body };
    mesh.castShadow = body > 0;
    mesh.receiveShadow = true;
    mesh.matrixAutoUpdate = false;
    this.meshes.push(mesh);
    this.scene.add(mesh);
  }

  // A pale copy of a part of the body, for the pose to reach.
  addGhost(shape, geom, color) {
    const look = { color, transparent: true, opacity: 0.35, depthWrite: false };
    const mesh = new three.Mesh(shape, new three.MeshStandardMaterial(look));
    mesh.userData = { geom, body: 0 };
    mesh.matrixAutoUpdate = false;
    this.ghosts.push(mesh);
    this.scene.add(mesh);
  }

  draw() {
    const { data, goal, ghost } = this.environment;
    for (const mesh of this.meshes) put(mesh, data.geom_xpos, data.geom_xmat, 0);
    for (const mesh of this.ghosts) {
      mesh.visible = Boolean(ghost);
      if (ghost) put(mesh, ghost.positions, ghost.rotations, data.qpos[0]);
    }
    if (goal) {
      this.ball.position.set(data.qpos[0], data.qpos[1], 0.2);
      this.goal.position.set(goal[0], goal[1], 0.2);
      const wide = this.canvas.clientWidth / this.canvas.clientHeight;
      this.look([0, -2.5, Math.max(9, 13 / wide)], [0, 0, 0]);
    } else {
      const along = data.qpos[0];
      this.look([along + 0.5, -4.6, 1.5], [along + 0.3, 0, 0.75]);
    }
    this.renderer.render(this.scene, this.camera);
  }

  look(from, to) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const ratio = Math.min(2, window.devicePixelRatio);
    if (this.canvas.width !== Math.floor(width * ratio)) {  // as three.js rounds it
      this.renderer.setPixelRatio(ratio);
      this.renderer.setSize(width, height, false);
    }
    this.camera.aspect = width / height;
    this.camera.position.set(...from);
    this.camera.lookAt(...to);
    this.camera.updateProjectionMatrix();
    this.sun.position.set(to[0] - 2, -4, 7);
    this.sun.target.position.set(...to);
  }

  ray(event) {
    const box = this.canvas.getBoundingClientRect();
    const at = new three.Vector2(
      (2 * (event.clientX - box.left)) / box.width - 1, 1 - (2 * (event.clientY - box.top)) / box.height);
    const ray = new three.Raycaster();
    ray.setFromCamera(at, this.camera);
    return ray;
  }

  grab(event) {
    if (!this.environment) return;
    const [hit] = this.ray(event).intersectObjects(this.scene.children).filter((one) => one.object.userData.body > 0);
    if (!hit && !this.goal) return;
    this.canvas.setPointerCapture(event.pointerId);
    if (!hit) {  // a maze's floor or its goal
      this.aiming = new three.Plane(new three.Vector3(0, 0, 1), -0.2);
      this.drag(event);
      return;
    }
    const facing = this.camera.getWorldDirection(new three.Vector3()).negate();
    this.pull = {
      body: hit.object.userData.body,
      plane: new three.Plane().setFromNormalAndCoplanarPoint(facing, hit.point),
      to: hit.point.clone(),
    };
  }

  drag(event) {
    if (this.pull) this.ray(event).ray.intersectPlane(this.pull.plane, this.pull.to);
    const found = this.aiming && this.ray(event).ray.intersectPlane(this.aiming, new three.Vector3());
    if (found) this.onAim([found.x, found.y]);
  }

  // A short push on the body, for those without a pointer.
  kick() {
    this.kicks = KICK_STEPS;
  }

  // The pull of the pointer as a force on its body, for the next step.
  push() {
    const { data } = this.environment;
    data.xfrc_applied.fill(0);
    if (this.kicks > 0) {
      this.kicks -= 1;
      data.xfrc_applied[6] = -KICK;  // along the track, on body 1
    }
    if (!this.pull) return;
    const { body, to } = this.pull;
    const at = data.xpos.slice(3 * body, 3 * body + 3);
    [to.x, to.y, to.z].forEach((value, i) => { data.xfrc_applied[6 * body + i] = PULL * (value - at[i]); });
  }
}
