// Looks through a whole page for what must not be in it: raw characters that hide, ways to anybody else, and
// elements and attributes that act. Tables are scrolled through. What is typed into fields stays as it is: who
// edits it must not change what they cannot see.
async () => {
  const RAW =
    /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u00a0\u2000-\u200a\u202f\u205f\u3000\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/u;
  const ACTS = /^(iframe|object|embed|base|math|foreignobject|audio|video|portal|applet)$/i;
  const LEADS = /^(href|src|srcset|action|formaction|poster|xlink:href|data|ping)$/;
  const PIXELS = /^data:image\/(png|jpeg|gif|webp);base64,/;
  const found = new Set();
  const isRaw = (text) => RAW.test(text.replaceAll(/[\n\t]/g, ""));
  const say = (what, text) => found.add(`${what}: ${JSON.stringify(text).slice(0, 200)}`);

  function lookAtAttribute(element, name, value) {
    const isTyped = name === "value" && element.tagName === "INPUT";
    if (name.startsWith("on") || name === "srcdoc" || (isRaw(value) && !isTyped))
      say(`${element.tagName} ${name}`, value);
    if (!LEADS.test(name) || (element.tagName === "IMG" && PIXELS.test(value))) return;
    if (new URL(value, location.href).origin !== location.origin) say(`${element.tagName} ${name}`, value);
  }

  function look() {
    const texts = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const within = texts.currentNode.parentElement.tagName;
      if (!["STYLE", "SCRIPT", "TEXTAREA"].includes(within) && isRaw(texts.currentNode.data))
        say(within, texts.currentNode.data);
    }
    for (const element of document.querySelectorAll("*")) {
      if (ACTS.test(element.tagName)) say(element.tagName, element.outerHTML);
      for (const { name, value } of element.attributes) lookAtAttribute(element, name, value);
    }
  }

  look();
  for (const frame of document.querySelectorAll("section[tabindex]"))
    while (frame.scrollTop + frame.clientHeight + 1 < frame.scrollHeight) {
      frame.scrollTop += frame.clientHeight;
      await new Promise(requestAnimationFrame);
      await new Promise(requestAnimationFrame);
      look();
    }
  return [...found];
}
