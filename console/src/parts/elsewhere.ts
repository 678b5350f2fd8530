/** Navigation to login pages outside of the console. The URL comes from an authorization server, so it is checked. */

/** `url`, if a browser would load it, and not run it. */
export function pageOf(url: string): string {
  const page = URL.canParse(url) ? new URL(url) : null;
  if (page?.protocol === "https:" || page?.protocol === "http:") return page.href;
  throw new Error("The login URL is not an http or https URL.");
}

/** Opens it in this tab. */
export function goTo(url: string): void {
  window.location.assign(pageOf(url));
}

/** Opens it in another tab, without a reference to this one. */
export function openAside(url: string): void {
  window.open(pageOf(url), "_blank", "noopener");
}
