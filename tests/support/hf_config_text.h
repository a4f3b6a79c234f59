/* A config.json from a text. */
#ifndef PENSTOCK_TESTS_HF_CONFIG_TEXT_H
#define PENSTOCK_TESTS_HF_CONFIG_TEXT_H

#include "engine/files/hf_config.h"

/* Parses the text of a config.json. Fails with STATUS_BAD_FILE. */
enum status hf_config_parse(struct hf_config **out, const char *text, size_t length,
                            struct err *err);

#endif
