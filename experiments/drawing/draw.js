// The page of experiments/draw.py. DATA: what it knows of the net, and test digits.

const SIDE = 29; // of what the net sees; MNIST's images have 28
const MARGIN = 10, TAPS = 2 * MARGIN + 1; // of the Gaussian, in cells
const FAINT = 0.1; // of the ink; less is paper

// --- the net

const bytes = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

/** Numbers of half precision, base64, as Float32Array. */
function halves(base64) {
  const raw = new Uint16Array(bytes(base64).buffer);
  return Float32Array.from(raw, (bits) => {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    return exponent === 0
      ? sign * fraction * 2 ** -24
      : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  });
}

const WEIGHTS = DATA.weights.map(halves); // row 0 of each matrix has the biases

/** Class probabilities of an image, 841 numbers from -1 to 1. */
function classify(image) {
  let states = image;
  WEIGHTS.forEach((W, layer) => {
    const width = DATA.sizes[layer + 1];
    const sums = W.slice(0, width);
    for (let i = 0; i < states.length; i++)
      for (let k = 0, at = (i + 1) * width; k < width; k++) sums[k] += states[i] * W[at + k];
    const isLast = layer === WEIGHTS.length - 1;
    states = isLast ? softmax(sums) : sums.map((a) => DATA.A * Math.tanh(DATA.B * a));
  });
  return states;
}

function softmax(sums) {
  const most = Math.max(...sums);
  const terms = sums.map((a) => Math.exp(a - most));
  const total = terms.reduce((a, b) => a + b);
  return terms.map((term) => term / total);
}

// --- from ink to what the net sees

/** An image of MNIST, 784 numbers from 0 to 255, as 841 from -1 to 1; corners on corners. */
function to29(pixels) {
  const image = new Float32Array(SIDE * SIDE);
  const between = (k) => [Math.floor((k * 27) / 28), ((k * 27) % 28) / 28];
  for (let y = 0; y < SIDE; y++)
    for (let x = 0; x < SIDE; x++) {
      const [top, down] = between(y), [left, right] = between(x);
      const low = Math.min(top + 1, 27), end = Math.min(left + 1, 27);
      const at = (row, column) => pixels[28 * row + column];
      const upper = at(top, left) + down * (at(low, left) - at(top, left));
      const lower = at(top, end) + down * (at(low, end) - at(top, end));
      image[SIDE * y + x] = (upper + right * (lower - upper)) / 127.5 - 1;
    }
  return image;
}

/** Ink of any size, from 0 to 1, as MNIST has its digits: 784 numbers to 255; null without ink. */
function centred(ink, width) {
  const height = ink.length / width;
  let [top, bottom, left, right] = [height, -1, width, -1];
  ink.forEach((value, k) => {
    if (value <= FAINT) return;
    const y = Math.floor(k / width), x = k % width;
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
    [left, right] = [Math.min(left, x), Math.max(right, x)];
  });
  if (bottom < 0) return null;
  const factor = 20 / Math.max(bottom - top + 1, right - left + 1);
  const rows = Math.max(1, Math.round(factor * (bottom - top + 1)));
  const columns = Math.max(1, Math.round(factor * (right - left + 1)));
  const digit = new Float32Array(rows * columns);
  let total = 0, momentY = 0, momentX = 0;
  for (let y = 0; y < rows; y++)
    for (let x = 0; x < columns; x++) {
      const down = (bottom + 1 - top) / rows, across = (right + 1 - left) / columns;
      const value = mean(ink, width, top + y * down, left + x * across, down, across);
      digit[y * columns + x] = value;
      [total, momentY, momentX] = [total + value, momentY + y * value, momentX + x * value];
    }
  const place = (moment, n) => Math.min(Math.max(Math.round(14 - moment / total), 0), 28 - n);
  const offset = 28 * place(momentY, rows) + place(momentX, columns);
  const strongest = Math.max(...digit), pixels = new Uint8ClampedArray(784);
  digit.forEach((value, k) => {
    pixels[offset + 28 * Math.floor(k / columns) + (k % columns)] = (255 * value) / strongest;
  });
  return pixels;
}

/** The mean of a rectangle, whose edges may lie within pixels. */
function mean(ink, width, top, left, height, across) {
  let sum = 0;
  for (let y = Math.floor(top); y < top + height - 1e-9; y++)
    for (let x = Math.floor(left); x < left + across - 1e-9; x++) {
      const part = (k, from, n) => Math.min(k + 1, from + n) - Math.max(k, from);
      sum += part(y, top, height) * part(x, left, across) * (ink[y * width + x] ?? 0);
    }
  return sum / (height * across);
}

// --- the deformation: deform_gpu/field.py and deform_gpu/warp.py

/** alpha times the field, smoothed by a Gaussian: 49x49 random cells become 29x29 pixels. */
function displacement(field, sigma, alpha) {
  const steps = Array.from({ length: TAPS }, (_, i) => Math.exp(-0.5 * ((i - MARGIN) / sigma) ** 2));
  const total = steps.reduce((a, b) => a + b), weights = steps.map((step) => step / total);
  const wide = SIDE + 2 * MARGIN, found = new Float32Array(SIDE * SIDE);
  const sums = new Float32Array(SIDE * wide);
  for (let y = 0; y < SIDE; y++)
    for (let x = 0; x < wide; x++)
      weights.forEach((weight, i) => (sums[y * wide + x] += weight * field[(y + i) * wide + x]));
  for (let y = 0; y < SIDE; y++)
    for (let x = 0; x < SIDE; x++)
      weights.forEach((weight, i) => {
        found[y * SIDE + x] += alpha * weight * sums[y * wide + x + i];
      });
  return found;
}

/** The inverse of scaling, then rotation or shear, as [yy, yx, xy, xx]. u: four from -1 to 1. */
function inverseAffine(u, beta, gamma) {
  const angle = (u[1] * beta * Math.PI) / 180;
  const scaleX = 1 + (u[2] * gamma) / 100, scaleY = 1 + (u[3] * gamma) / 100;
  const [yy, yx, xy, xx] = u[0] < 0
    ? [1, 0, -Math.tan(angle), 1]
    : [Math.cos(angle), -Math.sin(angle), Math.sin(angle), Math.cos(angle)];
  return [yy / scaleY, yx / scaleY, xy / scaleX, xx / scaleX];
}

/** An image with each pixel taken from where matrix and displacements lead; -1 outside. */
function warp(image, [yy, yx, xy, xx], downs, rights) {
  const value = (y, x) => (y >= 0 && x >= 0 && y < SIDE && x < SIDE ? image[SIDE * y + x] : -1);
  return image.map((_, k) => {
    const row = Math.floor(k / SIDE), column = k % SIDE, dy = row - 14, dx = column - 14;
    const y = row + (yy - 1) * dy + yx * dx + downs[k];
    const x = column + xy * dy + (xx - 1) * dx + rights[k];
    const top = Math.floor(y), left = Math.floor(x), right = x - left;
    const upper = value(top, left) + right * (value(top, left + 1) - value(top, left));
    const lower = value(top + 1, left) + right * (value(top + 1, left + 1) - value(top + 1, left));
    return upper + (y - top) * (lower - upper);
  });
}

// --- the page

const byId = (id) => document.getElementById(id);
const make = (tag, parent, properties = {}) =>
  parent.appendChild(Object.assign(document.createElement(tag), properties));
const paper = byId("paper"), pen = paper.getContext("2d", { willReadFrequently: true });
const PEN_WIDTH = 22, KEY_STEP = 8; // pixels of the paper
const SPOKEN_AFTER = 600; // milliseconds without a change, so that not every stroke is read aloud
let shown = null; // the image that the net sees, null for none
let random = null; // the random numbers of the deformation
let keys = null; // where the arrow keys have led the pen
let speaking = 0;

/** Draw an image of numbers from -1, paper, to 1, ink. */
function paint(canvas, image) {
  const side = canvas.width, picture = new ImageData(side, side);
  for (let k = 0; k < side * side; k++)
    picture.data.set([0, 0, 0, image ? 127.5 * (image[k] + 1) : 0], 4 * k);
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

/** Move the ring that shows where the keys' pen is. */
function moveKeys(to) {
  keys = to;
  Object.assign(byId("ring").style, { left: `${to.x}px`, top: `${to.y}px` });
}

/** Say to a screen reader what the page shows, once it does not change any more. */
function speak() {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    const said = byId("answer").textContent, deformed = byId("deformed-answer").textContent;
    byId("spoken").textContent = deformed ? `The net says ${said}; deformed: ${deformed}` : said;
  }, SPOKEN_AFTER);
}

const percent = (p) => `${(100 * p).toFixed(1)} %`;
const likeliest = (found) => found.indexOf(Math.max(...found));

function show(image) {
  shown = image;
  paint(byId("seen"), image);
  const found = image && classify(image);
  byId("answer").textContent = found
    ? `${likeliest(found)}, ${percent(Math.max(...found))}`
    : "Draw a digit, or load one below.";
  [...byId("bars").rows].forEach((row, digit) => {
    row.cells[1].textContent = found ? percent(found[digit]) : "";
    row.cells[2].firstChild.style.width = `${found ? 100 * found[digit] : 0}%`;
  });
  showDeformed();
}

function showDeformed() {
  const strength = Object.fromEntries(DATA.sliders.map(({ name }) => [name, +byId(name).value]));
  for (const { name, unit } of DATA.sliders)
    byId(`${name}-value`).textContent = `${strength[name]} ${unit}`;
  const [downs, rights] = random.fields.map((f) => displacement(f, strength.sigma, strength.alpha));
  const matrix = inverseAffine(random.affine, strength.beta, strength.gamma);
  const image = shown && warp(shown, matrix, downs, rights);
  paint(byId("deformed"), image);
  const found = image && classify(image);
  byId("deformed-answer").textContent = found
    ? `${likeliest(found)}, ${percent(Math.max(...found))}`
    : "";
  speak();
}

function drawRandom() {
  const uniform = (length) => Float32Array.from({ length }, () => 2 * Math.random() - 1);
  const cells = (SIDE + 2 * MARGIN) ** 2;
  random = { affine: uniform(4), fields: [uniform(cells), uniform(cells)] };
}

/** What is on the paper, seen by the net. */
function look() {
  const { data } = pen.getImageData(0, 0, paper.width, paper.height);
  const ink = Float32Array.from({ length: data.length / 4 }, (_, k) => data[4 * k + 3] / 255);
  const pixels = centred(ink, paper.width);
  show(pixels && to29(pixels));
}

function stroke(from, to) {
  Object.assign(pen, { lineWidth: PEN_WIDTH, lineCap: "round", strokeStyle: "#000" });
  pen.beginPath();
  pen.moveTo(from.x, from.y);
  pen.lineTo(to.x + 0.01, to.y); // of a line without length nothing would be drawn
  pen.stroke();
}

function clear() {
  pen.clearRect(0, 0, paper.width, paper.height);
  moveKeys({ x: paper.width / 2, y: paper.height / 2 });
  show(null);
}

function load(image) {
  pen.clearRect(0, 0, paper.width, paper.height);
  show(image);
}

const where = (event) => {
  const box = paper.getBoundingClientRect(), scale = paper.width / box.width;
  return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
};

let last = null, waits = false;
paper.addEventListener("pointerdown", (event) => {
  if (!event.isPrimary || event.button !== 0) return; // one finger, one button
  paper.setPointerCapture(event.pointerId);
  last = where(event);
  stroke(last, last);
  look();
});
paper.addEventListener("pointermove", (event) => {
  if (!event.isPrimary || !last) return;
  if (!event.buttons) {
    last = null; // it went up where nobody told the page
    return;
  }
  const next = where(event);
  stroke(last, next);
  last = next;
  if (waits) return;
  waits = true;
  requestAnimationFrame(() => {
    waits = false;
    look();
  });
});
for (const end of ["pointerup", "pointercancel"])
  paper.addEventListener(end, (event) => {
    if (event.isPrimary) last = null; // a palm that leaves ends no stroke
  });
paper.addEventListener("keydown", (event) => {
  const steps = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
  if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's
  if (event.key === "Delete" || event.key === "Backspace") clear();
  if (!(event.key in steps)) return;
  event.preventDefault(); // the page does not scroll
  const [x, y] = steps[event.key].map((step) => step * KEY_STEP);
  const inside = (k, step) => Math.min(Math.max(k + step, 0), paper.width);
  const next = { x: inside(keys.x, x), y: inside(keys.y, y) };
  if (event.shiftKey) stroke(keys, next);
  moveKeys(next);
  if (event.shiftKey) look();
});
byId("clear").addEventListener("click", clear);
byId("again").addEventListener("click", () => {
  drawRandom();
  showDeformed();
});

byId("net").textContent = DATA.title;
for (let digit = 0; digit < 10; digit++) {
  const row = make("tr", byId("bars"));
  make("th", row, { scope: "row", textContent: digit });
  make("td", row);
  make("span", make("td", row, { className: "bar" }));
}
for (const { name, label, unit, low, high, step, value } of DATA.sliders) {
  const line = make("label", byId("sliders"));
  make("span", line, { textContent: label });
  const settings = { id: name, type: "range", min: low, max: high, step, value };
  make("input", line, settings).addEventListener("input", showDeformed);
  make("span", line, { id: `${name}-value`, textContent: `${value} ${unit}` });
}
DATA.examples.forEach(({ pixels, label, guess }) => {
  const name = `a ${label} that the net takes for ${guess}`;
  const button = make("button", byId("examples"), { type: "button", title: name });
  button.setAttribute("aria-label", `Load ${name}`);
  const image = Float32Array.from(bytes(pixels), (value) => value / 127.5 - 1);
  paint(make("canvas", button, { width: SIDE, height: SIDE }), image);
  button.addEventListener("click", () => load(image));
});
drawRandom();
clear();
