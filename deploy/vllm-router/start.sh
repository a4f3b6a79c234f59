#!/bin/sh
# vllm-router (PyPI, 0.1.17) in front of two Penstock servers, either of which may be restarted without a lost request. Change the
# addresses; further flags may follow. docs/operations.md, "Behind a proxy", explains the connection with --drain-delay.
#
# Its policy cache_aware retries the server that has the prompt's prefix in its cache, until a health check has failed. So checks
# run every second instead of every minute, one failure suffices, and retries last longer than a second. The circuit breaker would
# exclude a restarted server for a minute; if the other server restarts meanwhile, no server is left.
exec vllm-router \
    --host 127.0.0.1 --port 8080 \
    --worker-urls http://127.0.0.1:8081 http://127.0.0.1:8082 \
    --health-check-interval-secs 1 --health-failure-threshold 1 --health-success-threshold 1 \
    --retry-initial-backoff-ms 250 --disable-circuit-breaker \
    "$@"
