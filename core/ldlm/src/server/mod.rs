//! Locks of a server: requests, replies and callbacks around the lock machine of `space`. On `ptlrpc`.
