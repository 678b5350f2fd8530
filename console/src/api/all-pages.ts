/** Lists come page by page; most views want them whole. */

interface Page {
  readonly next_cursor: string | null;
}

/** All pages of a list, in order, up to a bound that no installation should meet. */
export async function allPages<P extends Page>(
  get: (cursor: string | undefined) => Promise<P>,
): Promise<P[]> {
  const pages: P[] = [];
  let cursor: string | undefined;
  do {
    const page = await get(cursor);
    pages.push(page);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined && pages.length < 100);
  return pages;
}
