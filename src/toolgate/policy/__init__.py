"""Policy as pure functions: five layers go in, one compiled scope with its reasons comes out.

The layers narrow each other: platform, key, caller, task, request. `compose` decides which tools, prompts and
resources a caller sees. Every exclusion has exactly one reason.

- `layers`     the config of tasks and the fields of requests, parsed strictly
- `patterns`   which names and effects a rule matches
- `rules`      layers as lists of rules, and what servers offer to them
- `resolve`    a key, a caller, a task and a request against one snapshot
- `compose`    the scope, its explanation, and the reach of a task or a key
- `admission`  approvals and quotas before a call
- `rollouts`   which version of a profile a caller has
- `plan`       the effect of a change on every task
- `lint`       rules without effect
- `learn`      the least policy for the tools that a task used

The gateway lists and calls through a scope; `govern` plans and explains with the same functions. This package
never reads a clock, logs or does I/O.
"""
