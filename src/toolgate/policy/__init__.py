"""Policy as pure functions: layers in, one compiled scope with its reasons out.

Five layers narrow each other: platform, key, caller, task, request. `compose` decides which tools, prompts
and resources a caller sees, and every exclusion has exactly one reason.

- `layers`     the texts of tasks and requests, parsed strictly
- `patterns`   which names and effects a rule matches
- `rules`      layers as lists of rules, and what servers offer to them
- `resolve`    a key, a caller, a task and a request against one snapshot
- `compose`    the scope, the scope spelled out, and all that a task or a key could get
- `admission`  approvals and quotas that come before a call
- `rollouts`   which version of a profile a caller has
- `plan`       the effect of a change on every task
- `lint`       rules without effect
- `learn`      the least policy by what was used

The gateway lists and calls through a scope; `govern` plans and explains with the same functions. Nothing here
reads a clock, logs or does I/O.
"""
