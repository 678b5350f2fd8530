/** A text, or an element: its tag, its attribute (the target of a link, the ID of a heading) and what is in it. */
export type GuideNode = string | readonly [tag: string, value: string, children: readonly GuideNode[]];
