#!/bin/sh
# sglang-router (PyPI, 0.3.2) in front of two Penstock servers, either of which may be restarted without a lost request. Change the
# addresses; further flags may follow. docs/operations.md, "Behind a proxy", explains the connection with --drain-delay.
#
# Servers are checked every second instead of every minute, and one failure suffices. The router reads /health/ready, which says no
# as soon as a server drains. The circuit breaker would exclude a restarted server for a minute.
exec sglang-router launch \
    --host 127.0.0.1 --port 8080 \
    --worker-urls http://127.0.0.1:8081 http://127.0.0.1:8082 \
    --health-check-endpoint /health/ready \
    --health-check-interval-secs 1 --health-failure-threshold 1 --health-success-threshold 1 \
    --retry-initial-backoff-ms 250 --disable-circuit-breaker \
    "$@"
