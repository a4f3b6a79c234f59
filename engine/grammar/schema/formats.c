/* The formats of strings, as regular expressions: what each RFC allows, without the parts that a
 * pattern cannot check (that a host exists) and without obsolete forms. */
#include <string.h>

#include "engine/grammar/schema/schema.h"

#define DIGIT2 "[0-9]{2}"
/* All years but 0000, and of 29 February only those that have one. */
#define YEAR "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP "(?:" DIGIT2 "(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"                                 \
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?"                                 \
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
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
#define LABEL "[0-9a-zA-Z](?:[0-9a-zA-Z-]{0,61}[0-9a-zA-Z])?"
#define HOSTNAME LABEL "(?:\\." LABEL "){0,3}"
#define ATOM "[0-9a-zA-Z!#$%&'*+/=?^_`{|}~-]{1,64}"
#define ESCAPED "%[0-9a-fA-F]{2}"
#define PATH_CHARACTER "(?:[0-9a-zA-Z._~!$&'()*+,;=:@-]|" ESCAPED ")"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(?:[0-9]{1,9}W|(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:"
                 "[0-9]{1,9}D)?|[0-9]{1,9}D)(?:T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|"
                 "[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S))?|T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]"
                 "{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S))"},
    {"email", ATOM "(?:\\." ATOM "){0,3}@" HOSTNAME},
    {"hostname", HOSTNAME},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri", "[a-zA-Z][0-9a-zA-Z+.-]*:(?://(?:" HOSTNAME "|\\[" IPV6
            "\\])(?::[0-9]{1,5})?(?:/" PATH_CHARACTER "*)*|" PATH_CHARACTER "+(?:/" PATH_CHARACTER
            "*)*)(?:\\?(?:[/?]|" PATH_CHARACTER ")*)?(?:#(?:[/?]|" PATH_CHARACTER ")*)?"},
};

const char *format_pattern(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) return formats[i].pattern;
    }
    return NULL;
}
