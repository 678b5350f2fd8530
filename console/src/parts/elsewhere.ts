/** The ways out of the console, to a page of somebody else where one logs in. What leads there must be a page: an
 *  authorization server says itself where that is, and might say anything. */

/** `url`, if a browser would load it, and not run it. */
export function pageOf(url: string): string {
  const page = URL.canParse(url) ? new URL(url) : null;
  if (page?.protocol === "https:" || page?.protocol === "http:") return page.href;
  throw new Error("The page to log in at is no page of the web.");
}

/** This tab goes there. */
export function goTo(url: string): void {
  window.location.assign(pageOf(url));
}

/** Another tab does, which knows nothing of this one. */
export function openAside(url: string): void {
  window.open(pageOf(url), "_blank", "noopener");
}
