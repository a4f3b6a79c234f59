/* What the suites of traces share: a parent, and an environment without variables of traces. */
#ifndef TESTS_SUPPORT_TRACES_SCENE_H
#define TESTS_SUPPORT_TRACES_SCENE_H

#include <stdlib.h>

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"
#define PARENT "00-" TRACE "-" SPAN "-01"

static void clear_environment(void) {
    static const char *const names[] = {"OTEL_EXPORTER_OTLP_HEADERS",
                                        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
                                        "OTEL_EXPORTER_OTLP_TIMEOUT",
                                        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
                                        "OTEL_EXPORTER_OTLP_CERTIFICATE",
                                        "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
                                        "OTEL_SERVICE_NAME",
                                        "OTEL_RESOURCE_ATTRIBUTES",
                                        "SSL_CERT_FILE",
                                        "http_proxy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

#endif
