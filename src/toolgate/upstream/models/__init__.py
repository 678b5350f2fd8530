"""The servers of models (chat upstreams): sending prompts, reading their streams, listing their models.

`Models` has one `ModelEndpoint` for each upstream, which has the event streams. The chat endpoints and guests
call it through `gateway`.

Never sends a caller's credential to a model's server, nor shows the upstream's key to a caller.
"""
