"use strict";
// The search of a site that is read from the disk: browsers start no worker there, so that a hidden frame does its work.
if (location.protocol === "file:") window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = Object.assign(document.createElement("iframe"), {hidden: true, srcdoc: "<!doctype html>"});
    this.inside = new Promise(resolve => frame.addEventListener("load", () => {
      const inside = frame.contentWindow, script = frame.contentDocument.createElement("script");
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      script.addEventListener("load", () => resolve(inside));
      script.src = url;
      frame.contentDocument.head.append(script);
    }, {once: true}));
    document.documentElement.append(frame);
  }

  postMessage(data) {
    this.inside.then(inside => inside.dispatchEvent(new MessageEvent("message", {data})));
  }
};
