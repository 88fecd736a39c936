//! HTTP in, SSE out: accept, session, admission, prepare, route, dispatch, respond, finish. Knows nothing of etcd, ZMQ or frame layout.
