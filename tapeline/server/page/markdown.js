"use strict";
// Markdown of answers: marked turns it into HTML, DOMPurify makes DOM of that, of the tags and attributes below only.
// HTML in an answer is text, and images are links: nothing is fetched that an answer names.

const EAGER_CHARACTERS = 2000;  // an open block up to this length is rendered at each frame
const GROWTH = 8;  // a longer one when it has grown by an eighth, so the whole cost stays linear
const CLEAN = {
  ALLOWED_TAGS: ["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["align", "class", "href", "start", "title"],
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
const LANGUAGE = /^language-([\w+#.-]{1,40})$/;
const VOID = new Set(["BR", "HR"]);

const escaped = text => text.replace(/[&<>"']/g, character => `&#${character.charCodeAt(0)};`);
const parser = new marked.Marked({
  gfm: true,
  breaks: true,
  tokenizer: {
    html: () => undefined,
    tag(source) {
      const raw = /^<br\s*\/?>/i.exec(source)?.[0];
      return raw ? {type: "br", raw} : undefined;
    },
  },
  renderer: {
    checkbox: ({checked}) => checked ? "\u2611 " : "\u2610 ",
    image: ({href, text}) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
  },
});

DOMPurify.addHook("uponSanitizeAttribute", (node, attribute) => {
  if (attribute.attrName === "class") attribute.keepAttr = node.nodeName === "CODE" && LANGUAGE.test(attribute.attrValue);
});

// Returns HTML as a fragment of allowed tags, with a copy button on each block of code.
function sanitised(html) {
  const fragment = DOMPurify.sanitize(html, CLEAN);
  for (const link of fragment.querySelectorAll("a[href]")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const block of fragment.querySelectorAll("pre")) frameCode(block);
  for (const table of fragment.querySelectorAll("table")) {
    const box = document.createElement("div");
    box.className = "scrolled";
    box.tabIndex = 0;
    table.replaceWith(box);
    box.append(table);
  }
  return fragment;
}

function frameCode(block) {
  const code = block.querySelector("code") ?? block;
  const box = document.createElement("div"), head = document.createElement("div"), name = document.createElement("span");
  box.className = "code";
  head.className = "codehead";
  name.textContent = LANGUAGE.exec(code.className)?.[1] ?? "";
  head.append(name, copyButton("Copy code", () => code.textContent.replace(/\n$/, "")));
  block.tabIndex = 0;
  block.replaceWith(box);
  box.append(head, block);
}

function copyButton(label, copied) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", label);
  button.copied = copied;
  return button;
}

// Text that grows, rendered as Markdown into an element. Blocks that are complete are rendered once.
class MarkdownView {
  constructor(root, schedule = requestAnimationFrame.bind(window)) {
    this.root = root;
    this.schedule = schedule;
    this.text = "";
    this.tail = "";  // the open block, and what is not cut into blocks yet
    this.fresh = 0;  // characters of the tail that are not rendered as Markdown yet
    this.parsed = 0;  // characters that were parsed, for tests
    this.waiting = false;
    this.defines = false;  // has definitions of links, which hold for the whole text
    this.end = document.createElement("div");
    this.end.className = "tail";
    root.classList.add("markdown");
    root.append(this.end);
  }

  append(text) {
    const plain = text.replaceAll("\r", "");
    this.text += text;
    this.tail += plain;
    this.fresh += plain.length;
    if (this.tail.length > EAGER_CHARACTERS && this.fresh * GROWTH < this.tail.length) return this.addPlain(plain);
    if (this.waiting) return;
    this.waiting = true;
    this.schedule(() => { this.waiting = false; this.render(); });
  }

  finish() {
    this.render();
    if (!this.defines) return;
    this.parsed += this.text.length;
    this.root.replaceChildren(sanitised(parser.parse(this.text)));
  }

  render() {
    if (!this.fresh) return;
    const tokens = parser.lexer(this.tail);
    this.parsed += this.tail.length;
    this.defines ||= tokens.some(token => token.type === "def");
    let last = tokens.length - 1;
    while (last > 0 && tokens[last].type === "space") last -= 1;
    const complete = tokens.slice(0, Math.max(0, last)), open = tokens.slice(Math.max(0, last));
    if (complete.length) {
      this.end.before(sanitised(parser.parser(complete)));
      this.tail = this.tail.slice(complete.reduce((length, token) => length + token.raw.length, 0));
    }
    this.end.replaceChildren(sanitised(parser.parser(open)));
    this.fresh = 0;
    this.plain = null;
  }

  // Shows text at the end of the open block as it is, until the block is rendered again.
  addPlain(text) {
    if (!this.plain) {
      let place = this.end;
      while (place.lastElementChild && !VOID.has(place.lastElementChild.nodeName)) place = place.lastElementChild;
      this.plain = document.createTextNode("");
      place.append(this.plain);
    }
    this.plain.appendData(text);
  }
}
