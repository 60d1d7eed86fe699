"use strict";
const at = id => document.getElementById(id);
const SETTINGS = ["system", "temperature", "top_k", "top_p", "min_p", "max_tokens", "seed"];
const SAMPLING = {temperature: "temperature", top_k: "top-k", top_p: "top-p", min_p: "min-p", repetition_penalty: "repetition penalty"};
const UNLOADED = ["unloaded", "waiting", "loading"];  // states of models on demand, which a message loads
const POLL_MS = 1000;  // while models are loaded
const RETRY_MS = 3000;  // while the server does not answer
const SIDES = [2048, 1024, 512];  // longest sides, in pixels, to which a picture is made smaller
const OTHER_BYTES = 4096;  // of a request, beside its messages and pictures
let messages = [], running = null;
let follows = true;  // the end of the conversation is in view, and stays there while an answer grows
let listed = {};  // models of /v1/models, by id
let pending = [], reading = 0;  // data URIs of the next message's pictures; pictures that are still read

function headers() {
  const key = at("key").value.trim();
  return {"content-type": "application/json", ...(key ? {"authorization": "Bearer " + key} : {})};
}

async function refused(response) {
  try { return (await response.json()).error.message; } catch { return `${response.status} ${response.statusText}`; }
}

// Shows the models, or the progress until they are loaded.
async function listModels() {
  clearTimeout(listModels.timer);
  const again = ms => { listModels.timer = setTimeout(listModels, ms); };
  try {
    const health = await fetch("health", {headers: headers()});
    const state = await health.json();
    if (state.status === "loading" || state.status === "failed") {
      showProgress(state);
      return again(POLL_MS);
    }
    if (state.status === "draining") {
      empty("The server ends, and takes no more messages.");
      return again(RETRY_MS);
    }
    const response = await fetch("v1/models", {headers: headers()});
    if (!response.ok) return empty(await refused(response));
    showModels((await response.json()).data);
  } catch {
    empty("The server does not answer. Is it running? Its log says why it ended.");
    again(RETRY_MS);
  }
}

function showModels(models) {
  const chosen = at("model").value;
  const chats = models.filter(model => model.chat || UNLOADED.includes(model.state));
  at("model").replaceChildren(...chats.map(model => new Option(model.id, model.id)));
  if (chats.some(model => model.id === chosen)) at("model").value = chosen;
  listed = Object.fromEntries(models.map(model => [model.id, model]));
  showStates(models);
  showModel();
  at("send").disabled = reading > 0;
  empty(chats.length ? "Say something to the model." : "The server has no model to chat with.");
}

function showStates(models) {
  at("models").replaceChildren(...models.map(model => {
    const row = document.createElement("li"), name = document.createElement("b");
    name.textContent = model.id;
    const told = model.reload_failed ? "; a newer bundle could not be loaded: see the server's log" : "";
    const parts = [[model.state + told, `state ${model.state}`]];
    if (model.step) parts.push([model.step, ""]);
    if (model.task) parts.push([model.chat || model.task !== "generate" ? model.task : "generate, no chat template", ""]);
    if (model.max_model_len) parts.push([`context ${model.max_model_len} tokens`, ""]);
    row.append(name, ...parts.map(([text, kind]) => {
      const part = document.createElement("span");
      part.className = kind;
      part.textContent = text;
      return part;
    }));
    return row;
  }));
}

const seconds = number => number >= 90 ? `${Math.floor(number / 60)} min ${Math.round(number % 60)} s` : `${Math.round(number)} s`;

function showProgress(state) {
  const models = state.models ?? [];
  const running = models.find(model => ["loading", "failed"].includes(model.state)) ?? state;
  showStates(models);
  at("model").replaceChildren(...models.map(model => new Option(`${model.id} (${model.state})`, model.id)));
  at("send").disabled = true;
  if (messages.length) return note(`The model is loaded again: ${running.step ?? "loading"}`);
  let box = document.querySelector(".progress");
  if (!box) {
    at("turns").replaceChildren();
    box = element("progress", "");
    box.append(document.createElement("h2"), document.createElement("progress"), document.createElement("p"), document.createElement("p"));
  }
  const [title, bar, step, time] = box.children;
  const write = (place, text) => { if (place.textContent !== text) place.textContent = text; };
  const fault = state.verification === "failed" ? "is not verified" : "could not be loaded";
  write(title, state.status === "failed" ? `${running.id ?? "The model"} ${fault}: see the server's log`
    : `Loading ${running.id ?? "the model"}`);
  if (running.total) { bar.max = running.total; bar.value = running.done; } else bar.removeAttribute("value");
  bar.setAttribute("aria-label", "Progress of the step");
  write(step, running.step ?? "");
  const known = running.seconds_left !== null && running.seconds_left !== undefined;
  const left = known ? `, about ${seconds(running.seconds_left)} left in this step`
    : running.step?.startsWith("compiling") ? "; the compiler does not report the time left" : "";
  write(time, `${seconds(running.seconds ?? 0)} so far${left}`);
}

// Shows what the chosen model takes, and the sampling of the next request.
function showModel() {
  const sampling = listed[at("model").value]?.sampling ?? {};
  for (const id of Object.keys(SAMPLING)) if (at(id)) at(id).placeholder = sampling[id] ?? "the model's";
  at("max_tokens").placeholder = "until it ends";
  showPending();
  showUsing();
}

function using() {
  const sampling = listed[at("model").value]?.sampling ?? {};
  const values = Object.keys(SAMPLING).map(id => [SAMPLING[id], at(id)?.value || sampling[id]]);
  const chosen = values.filter(([, value]) => value !== undefined && value !== "");
  if (chosen.length && Number(chosen.find(([name]) => name === "temperature")?.[1]) === 0) return "temperature 0 (greedy)";
  return chosen.map(([name, value]) => `${name} ${value}`).join(" \u00b7 ");
}

function showUsing() {
  const parts = [using()];
  if (at("max_tokens").value) parts.push(`at most ${at("max_tokens").value} tokens`);
  if (at("seed").value) parts.push(`seed ${at("seed").value}`);
  at("using").textContent = parts.filter(Boolean).join(" \u00b7 ");
}

function element(kind, text) {
  const made = document.createElement("div");
  made.className = kind;
  made.textContent = text;
  at("turns").append(made);
  return made;
}

function empty(text) {
  if (!messages.length) { at("turns").replaceChildren(); element("empty", text); }
}

function scrollDown() {
  if (follows) at("scroll").scrollTop = at("scroll").scrollHeight;
}

function requestBody() {
  const number = id => at(id).value === "" ? {} : {[id]: Number(at(id).value)};
  const system = at("system").value.trim();
  return {
    model: at("model").value, stream: true, stream_options: {include_usage: true},
    messages: [...(system ? [{role: "system", content: system}] : []), ...messages],
    ...Object.assign({}, ...SETTINGS.filter(id => id !== "system").map(number)),
  };
}

const mebibytes = bytes => (bytes / 1048576).toFixed(1) + " MiB";

function note(text, wrong) {
  at("note").textContent = text;
  at("note").hidden = !text;
  at("note").classList.toggle("wrong", Boolean(wrong));
}

function shown(url) {
  const image = document.createElement("img");
  image.src = url;
  image.alt = "picture";
  return image;
}

function showPending() {
  const limits = listed[at("model").value]?.images;
  at("attach").hidden = !limits;
  at("pending").hidden = !pending.length;
  at("pending").replaceChildren(...pending.map((url, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-label", `Remove picture ${place + 1}`);
    button.append(shown(url));
    button.addEventListener("click", () => { pending.splice(place, 1); showPending(); });
    return button;
  }));
  if (!pending.length) note("");
  else if (!limits) note("This model takes no pictures: choose another one, or remove them.", true);
  else note(`${countPictures()} of ${limits.max_images} pictures, ${mebibytes(used())} of ${mebibytes(limits.max_body_bytes)}`);
}

function countPictures() {
  return pending.length + messages.flatMap(message => message.content).filter(part => part.type === "image_url").length;
}

// Every request has the pictures of the whole conversation.
const used = () => JSON.stringify(requestBody()).length + pending.reduce((sum, url) => sum + url.length, 0) + OTHER_BYTES;

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}

function smaller(bitmap, side, pixels) {
  const {width, height} = bitmap;
  const scale = Math.min(1, side / Math.max(width, height), Math.sqrt(pixels / (width * height)));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.floor(width * scale));
  canvas.height = Math.max(1, Math.floor(height * scale));
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", .9);
}

// The file as it is where the server takes it, else a smaller copy.
async function picture(file, limits) {
  const bitmap = await createImageBitmap(file).catch(() => { throw new Error(`${file.name}: no picture that this browser can read.`); });
  const room = limits.max_body_bytes - used();
  const fits = url => url.length <= room && url.length / 4 * 3 <= limits.max_image_bytes;
  const whole = await dataUrl(file);
  if (bitmap.width * bitmap.height <= limits.max_image_pixels && fits(whole)) return whole;
  for (const side of SIDES) {
    const url = smaller(bitmap, side, limits.max_image_pixels);
    if (fits(url)) return url;
  }
  throw new Error(`${file.name}: too large: this conversation has room for ${mebibytes(Math.max(0, Math.min(room, limits.max_image_bytes)))}.`);
}

async function attach(files) {
  const limits = listed[at("model").value]?.images, wrong = [];
  if (!files.length) return;
  if (!limits) return note("This model takes no pictures.", true);
  reading += 1;
  at("send").disabled = true;
  for (const file of files) {
    try {
      if (countPictures() >= limits.max_images) throw new Error(`${file.name}: a conversation has at most ${limits.max_images} pictures.`);
      pending.push(await picture(file, limits));
    } catch (error) { wrong.push(error.message); }
  }
  reading -= 1;
  at("send").disabled = reading > 0;
  showPending();
  if (wrong.length) note(wrong.join(" "), true);
}

function filesOf(transfer) {
  return [...transfer?.files ?? []].filter(file => file.type.startsWith("image/"));
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: {")) yield JSON.parse(part.slice(6));
  }
}

async function answer() {
  const said = messages;  // "New" begins another list while this one still grows
  const turn = element("turn assistant", "");
  const view = new MarkdownView(turn);
  const figures = element("figures", "");
  const speed = document.createElement("span");
  speed.textContent = "waiting";
  figures.append(speed);
  const began = performance.now();
  const request = {stop: new AbortController(), over: false};
  let first = 0, pieces = 0, usage = null, reason = "", wrong = "", thinking = null, framed = false;
  running = request;
  at("send").hidden = true; at("stop").hidden = false;
  turn.setAttribute("aria-busy", "true");
  request.finish = () => {
    if (request.over) return;
    request.over = true;
    view.finish();
    turn.removeAttribute("aria-busy");
    show(speed, began, first, usage ? usage.completion_tokens : pieces, usage, reason === "length" && !request.stopped);
    if (request.stopped) speed.append(speed.textContent ? " \u00b7 stopped" : "stopped");
    if (wrong) element("turn wrong", wrong);
    if (view.text) said.push({role: "assistant", content: view.text});
    else { said.pop(); if (wrong) { turn.remove(); figures.remove(); } }
    if (view.text) figures.append(copyButton("Copy answer", () => view.text));
    running = null;
    at("send").hidden = false; at("stop").hidden = true;
    at("text").focus();
    scrollDown();
  };
  try {
    const response = await fetch("v1/chat/completions",
      {method: "POST", headers: headers(), body: JSON.stringify(requestBody()), signal: request.stop.signal});
    if (!response.ok) {
      wrong = await refused(response);
      if (response.status === 503) listModels();
    } else for await (const event of events(response)) {
      if (request.over) break;
      if (event.error) throw new Error(event.error.message);
      usage = event.usage || usage;
      reason = event.choices[0]?.finish_reason || reason;
      const delta = event.choices[0]?.delta ?? {};
      if (delta.reasoning_content) {
        thinking = thinking ?? thoughts(turn);
        thinking.append(delta.reasoning_content);
      }
      if (!delta.content) continue;
      first = first || performance.now();
      pieces += 1;
      view.append(delta.content);
      if (framed) continue;
      framed = true;
      requestAnimationFrame(() => {
        framed = false;
        if (!request.over) show(speed, began, first, pieces);
        scrollDown();
      });
    }
  } catch (error) {
    wrong = error.name === "AbortError" ? "" : error.message || "The connection was lost.";
  }
  request.finish();
}

// Stops the answer: the page is free at once, and the server cancels the request when its connection closes.
function stop() {
  const request = running;
  if (!request) return;
  request.stopped = true;
  request.stop.abort();
  request.finish();
}

function thoughts(turn) {
  const box = document.createElement("details"), title = document.createElement("summary");
  const text = document.createTextNode("");
  box.className = "thinking";
  title.textContent = "Thinking";
  box.append(title, text);
  turn.before(box);
  return {append: more => text.appendData(more)};
}

async function copy(button) {
  const text = button.copied();
  try { await navigator.clipboard.writeText(text); } catch { copyBySelection(text); }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// For pages that are not in a secure context: those have no clipboard.
function copyBySelection(text) {
  const box = document.createElement("textarea"), focused = document.activeElement;
  box.value = text;
  box.className = "offscreen";
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
  focused?.focus();
}

function show(figures, began, first, tokens, usage, cut) {
  const seconds = (performance.now() - first) / 1000;
  const parts = first ? [`${tokens} tokens`] : [];
  if (first && tokens > 1 && seconds > 0) parts.push(`${(Math.max(1, tokens - 1) / seconds).toFixed(1)} tokens/s`);
  if (first) parts.push(`first after ${((first - began) / 1000).toFixed(2)} s`);
  if (usage?.prompt_tokens_details?.cached_tokens) parts.push(`${usage.prompt_tokens_details.cached_tokens} of the prompt reused`);
  if (cut) parts.push(at("max_tokens").value ? "cut off: raise Maximum new tokens" : "cut off: the context is full");
  figures.textContent = parts.join(" · ");
}

function grow() {
  const box = at("text");
  box.style.height = "auto";
  box.style.height = box.scrollHeight + 2 + "px";
}

at("form").addEventListener("submit", event => {
  event.preventDefault();
  const text = at("text").value;
  if (!(text.trim() || pending.length) || running || at("send").disabled) return;
  if (!messages.length) at("turns").replaceChildren();
  const parts = pending.map(url => ({type: "image_url", image_url: {url}}));
  if (text.trim()) parts.push({type: "text", text});
  messages.push({role: "user", content: pending.length ? parts : text});
  const turn = element("turn user", text);
  if (pending.length) {
    const pictures = document.createElement("div");
    pictures.className = "pictures";
    pictures.append(...pending.map(shown));
    turn.prepend(pictures);
  }
  pending = [];
  showPending();
  at("text").value = "";
  grow();
  follows = true;
  scrollDown();
  answer();
});
at("text").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); at("form").requestSubmit(); }
});
at("text").addEventListener("input", grow);
at("scroll").addEventListener("scroll", () => {
  const box = at("scroll");
  follows = box.scrollHeight - box.scrollTop - box.clientHeight < 120;
});
at("attach").addEventListener("click", () => at("file").click());
at("file").addEventListener("change", () => { attach([...at("file").files]); at("file").value = ""; });
at("model").addEventListener("change", showModel);
document.addEventListener("click", event => {
  const button = event.target.closest?.("button.copy");
  if (button?.copied) copy(button);
});
document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || event.isComposing) return;
  if (running) { event.preventDefault(); stop(); } else if (at("settings").open) { at("open").click(); at("open").focus(); }
});
document.addEventListener("paste", event => {
  const files = filesOf(event.clipboardData);
  if (files.length) { event.preventDefault(); attach(files); }
});
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) document.addEventListener(kind, event => {
  if (!event.dataTransfer?.types.includes("Files")) return;
  event.preventDefault();
  document.body.classList.toggle("dropping", kind === "dragenter" || kind === "dragover");
  if (kind === "drop") attach(filesOf(event.dataTransfer));
});
at("stop").addEventListener("click", stop);
at("fresh").addEventListener("click", () => { stop(); messages = []; pending = []; showPending(); at("turns").replaceChildren(); listModels(); at("text").focus(); });
at("open").addEventListener("click", () => {
  at("settings").open = !at("settings").open;
  at("open").setAttribute("aria-expanded", at("settings").open);
  if (at("settings").open && !running) listModels();
});
at("key").addEventListener("change", () => { sessionStorage.setItem("key", at("key").value); listModels(); });
for (const id of SETTINGS) {
  at(id).value = localStorage.getItem(id) ?? "";
  at(id).addEventListener("change", () => { localStorage.setItem(id, at(id).value); showUsing(); });
}
at("key").value = sessionStorage.getItem("key") ?? "";
listModels();
