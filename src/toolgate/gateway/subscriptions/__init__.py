"""Who is notified when a list or a resource changes.

A client listens on a GET stream (session-based) or by `subscriptions/listen` (stateless). `Subscriptions`
wakes exactly those listeners whose own lists changed with a new snapshot. `ResourceSubscriptions` resolves
each resource against the caller's view, and subscribes upstream once per resource, however many clients
listen.

- `listeners`  the streams, and what each has seen
- `resources`  watched resources, audited before their server gets the subscription

Never notifies a client of a server outside its scope. No principal can take all slots of a node.
"""
