//! Locks of a client: enqueue, match, cache, callbacks, replay. On `ptlrpc`.
