/* String formats as regular expressions: the forms of each RFC, except parts that a pattern cannot
 * check (that a host exists) and obsolete forms. */
#include <string.h>

#include "engine/grammar/schema/internal.h"

#define DIGIT2 "[0-9]{2}"
/* All years except 0000; 29 February only in leap years. */
#define YEAR "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP "(?:" DIGIT2 "(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"                                 \
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"                                 \
    "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define GROUP "[0-9a-fA-F]{1,4}"
#define LAST32 "(?:" GROUP ":" GROUP "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" GROUP ":){6}" LAST32 "|::(?:" GROUP ":){5}" LAST32 "|(?:" GROUP ")?::(?:" GROUP       \
    ":){4}" LAST32 "|(?:(?:" GROUP ":){0,1}" GROUP ")?::(?:" GROUP ":){3}" LAST32 "|(?:(?:" GROUP  \
    ":){0,2}" GROUP ")?::(?:" GROUP ":){2}" LAST32 "|(?:(?:" GROUP ":){0,3}" GROUP ")?::" GROUP    \
    ":" LAST32 "|(?:(?:" GROUP ":){0,4}" GROUP ")?::" LAST32 "|(?:(?:" GROUP ":){0,5}" GROUP       \
    ")?::" GROUP "|(?:(?:" GROUP ":){0,6}" GROUP ")?::)"
#define ANY_UUID "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
/* A UUID of one version. */
#define UUID(version)                                                                              \
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-" version "[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{"  \
    "12}"
#define LABEL "[0-9a-zA-Z](?:[0-9a-zA-Z-]{0,61}[0-9a-zA-Z])?"
#define HOSTNAME LABEL "(?:\\." LABEL "){0,3}"
#define ATOM "[0-9a-zA-Z!#$%&'*+/=?^_`{|}~-]{1,64}"
#define ESCAPED "%[0-9a-fA-F]{2}"
#define PATH_CHARACTER "(?:[0-9a-zA-Z._~!$&'()*+,;=:@-]|" ESCAPED ")"
#define AUTHORITY                                                                                  \
    "(?:(?:[0-9a-zA-Z._~!$&'()*+,;=:-]|" ESCAPED ")*@)?(?:" HOSTNAME "|\\[" IPV6                   \
    "\\])(?::[0-9]{1,5})?"

const struct string_format schema_formats[] = {
    {"date", DATE, DATE},
    {"time", TIME, "(?s:[0-9]{2}:.*)"},
    {"date-time", DATE "[Tt]" TIME, "(?s:[0-9]{4}-[0-9]{2}-[0-9]{2}[^0-9].*)"},
    {"duration",
     "P(?:[0-9]{1,9}W|(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:"
     "[0-9]{1,9}D)?|[0-9]{1,9}D)(?:T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|"
     "[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S))?|T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]"
     "{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S))",
     "(?s:[+-]?[Pp].*)"},
    {"email", ATOM "(?:\\." ATOM "){0,3}@" HOSTNAME, "(?s:.*@.*)"},
    {"hostname", HOSTNAME, "[^\\s/:@\\[\\]]*"},
    {"ipv4", IPV4, IPV4},
    {"ipv6", IPV6, IPV6},
    {"ipvanyaddress", "(?:" IPV4 "|" IPV6 ")"},
    {"ipv4network", IPV4 "/(?:[12]?[0-9]|3[0-2])"},
    {"ipv6network", IPV6 "/(?:[1-9]?[0-9]|1[01][0-9]|12[0-8])"},
    {"uuid", ANY_UUID, ANY_UUID},
    {"uuid1", UUID("1")},
    {"uuid3", UUID("3")},
    {"uuid4", UUID("4")},
    {"uuid5", UUID("5")},
    {"uuid7", UUID("7")},
    {"base64", "(?:[A-Za-z0-9+/]{4})*"
               "(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?"},
    {"uri",
     "[a-zA-Z][0-9a-zA-Z+.-]*:(?://(?:" AUTHORITY ")?(?:/" PATH_CHARACTER "*)*|/?(?:" PATH_CHARACTER
     "+(?:/" PATH_CHARACTER "*)*)?)(?:\\?(?:[/?]|" PATH_CHARACTER ")*)?(?:#(?:[/?]|" PATH_CHARACTER
     ")*)?",
     "(?s:[a-zA-Z][0-9a-zA-Z+.-]*:.*)"},
    {"password", NULL},
    {"binary", NULL},
    {"path", NULL},
    {"file-path", NULL},
    {"directory-path", NULL},
    {NULL, NULL},
};

const char *format_pattern(struct schema_reader *r, const struct json *format) {
    for (const struct string_format *known = schema_formats; known->name; known++) {
        if (json_is_text(format, known->name)) return known->pattern;
    }
    if (r->mode == SCHEMA_STRICT)
        schema_fail(r, format,
                    "is not an enforced format; the formats are date-time, date, time, duration, "
                    "email, hostname, ipv4, ipv6, uuid, uri and base64.");
    return NULL;
}

const char *format_widest(const struct json *format) {
    for (const struct string_format *known = schema_formats; known->name; known++) {
        if (json_is_text(format, known->name)) return known->widest;
    }
    return NULL;
}
