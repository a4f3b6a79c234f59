"""Mutants of answers as messages: calls of tools and thoughts; tests/mutate.py says what the names mean."""
M, G = "server/message/", "server/generation/"
SUITES = {
    M: ["server_message", "server_tool_grammar"],
    G + "choice.c": ["server_choice_message", "server_choice"],
    G + "prompt.c": ["server_choice_message"],
    "engine/text/template/template.c": ["server_choice_message"],
    "server/openai/request_tools.c": ["server_request_tools", "server_request_refused", "server_request", "server_fields"],
}

MUTANTS = [
    # JSON byte by byte
    (M + "json_scan.c", "if (in_object(scan) != object) return READ_BROKEN;", ""),
    (M + "json_scan.c", "return scan->depth == 0 ? READ_DONE : READ_MORE;", "return scan->depth <= 1 ? READ_DONE : READ_MORE;"),
    (M + "json_scan.c", "return c == '.' ? POINT : e ? EXPONENT : VALUE;", "return is_digit(c) ? DIGITS : c == '.' ? POINT : e ? EXPONENT : VALUE;"),
    (M + "json_scan.c", "if (!c || !strchr(\"\\\"\\\\/bfnrtu\", c)) return READ_BROKEN;", ""),
    (M + "json_scan.c", "if (++scan->count == 4)", "if (++scan->count == 3)"),
    # one object with name and arguments
    (M + "call_object.c", "bool right = c == '\"' && !object->has_name;", "bool right = c == '\"';"),
    (M + "call_object.c", "if (c == 'n') object->member = OTHER_MEMBER;", ""),
    (M + "call_object.c", "return repeated || wrong ? READ_BROKEN : READ_MORE;", "return wrong ? READ_BROKEN : READ_MORE;"),
    (M + "call_object.c", "bool wrong = c == '\\\\' ||", "bool wrong ="),
    # Python
    (M + "python.c", "if (python->has_item) buf_puts(out, \", \");", ""),
    (M + "python.c", "if (python->is_key && !quoted) return READ_BROKEN;", ""),
    (M + "python.c", "python->key_ended = true;\n", ""),
    (M + "python.c", "if (is_digit(c)) return READ_BROKEN;", ""),
    (M + "python.c", "python->count = c == 'x' ? 2 : c == 'u' ? 4 : 8;", "python->count = c == 'x' ? 2 : 4;"),
    # XML
    (M + "xml.c", "if (xml->state == FIRST && c == '\\n' && style_of(xml)->has_breaks) {", "if (false) {"),
    (M + "xml.c", "xml->placeholder == 'l' ? &seed : &qwen;", "&qwen;"),
    (M + "xml.c", "if (is_python && (xml->json_ended || !python", "if (is_python && (!python"),
    (M + "python.c", " && python->state == COMMA_OR_END &&\n           python->depth == 0;", ";"),
    (M + "xml.c", "bool right = xml->types >> json->type & 1;", "bool right = true;"),
    (M + "xml.c", "for (int i = 0; i < xml->matched; i++) add_to_value(xml, end[i], out);", ""),
    (M + "xml.c", "if (in_string || c != end[xml->matched])", "if (c != end[xml->matched])"),
    # the grammar: what passes though it is no call, what a tool does not take, a call too many
    (M + "grammar.c", "return tool_filter_passes(&asked->filter, function);", "return true;"),
    (M + "grammar.c", "    if (is_closed(schema)) buf_puts(out, \",\\\"additionalProperties\\\":false\");\n", ""),
    (M + "grammar.c", "if (schema_types(property) != 1 << JSON_STRING) continue;", "if (!(schema_types(property) & 1 << JSON_STRING)) continue;"),
    (M + "grammar.c", "if (n == length && memcmp(marker, other, n) == 0) return true;", "if (false) return true;"),
    (M + "grammar.c", "    if (!asked->parallel) buf_puts(out, \",\\\"stop_after_first\\\":true\");\n", ""),
    (M + "grammar.c", "if (strchr(\"xkl\", placeholder)) buf_puts(behind, \"<\");", ""),
    (M + "grammar.c", "if (asked->reasoning && asked->reasoning->begin) write_thoughts", "if (false) write_thoughts"),
    (M + "grammar.c", "if (form->open) add_to_pattern(&pattern, form->open, strlen(form->open));", ""),
    (M + "grammar.c", "        if (asked->must_call)\n            write_run(asked, first, out);\n        else if (is_free)", "        if (is_free)"),
    (M + "tools.c", "return 1 << JSON_STRING;", "return ALL_TYPES;"),
    (M + "tools.c", "return !tools || find(tools, name) != NULL;", "return true;"),
    # patterns
    (M + "pattern.c", "return may_be_space && is_space(c) ? READ_MORE : READ_BROKEN;", "return is_space(c) ? READ_MORE : READ_BROKEN;"),
    (M + "pattern.c", "if (!is_part) return READ_BEFORE;", "return READ_BEFORE;"),
    (M + "pattern.c", "strchr(\"ni\", reader->pattern[1])", "strchr(\"n\", reader->pattern[1])"),
    # the parser: a delta that is taken back, bytes that are lost, a run that ends early
    (M + "parser.c", "if (length <= MAX_READ_AGAIN) length = 1;", ""),
    (M + "parser.c", "    bool was_whole = reader->is_whole;\n", "    bool was_whole = false;\n"),
    (M + "parser.c", "parser->drops_space = !parser->has_content;", "parser->drops_space = true;"),
    (M + "parser.c", "    } else if (!begin_run(parser, form + 1)) {", "    } else {"),
    (M + "parser.c", "if (!parser->reader.has_arguments) buf_puts(&parser->reader.arguments, \"{}\");", ""),
    (M + "parser.c", "bool misplaced = form->at_start && (parser->has_content || parser->n_calls > 0);", "bool misplaced = false;"),
    (M + "parser.c", "if (is_whole) parser_end_call(parser);", ""),
    (M + "parser.c", "if (!parser->is_behind_call)", "if (true)"),
    (M + "parser.c", "settings->starts_behind = settings->continues = true;", "settings->continues = true;"),
    # harmony
    (M + "harmony.c", "if (parser->body == BODY_REASONING) parser_drop_space(parser);", ""),
    (M + "harmony.c", "if (name.length == 0 || !tool_set_has(parser->settings.known, name.text)) return false;", ""),
    # choices
    (G + "choice.c", "if (choice->parser) read_text(choice, request);", ""),
    (G + "choice.c", "if (!request->include_reasoning) buf_clear(&choice->message.reasoning);", ""),
    (G + "prompt.c", "if (can_stop && strcmp(effort, \"none\") == 0) return STATUS_OK;", "if (can_stop) return STATUS_OK;"),
    ("engine/text/template/template.c", "if (starts && (at + length == end || !is_name_char(at[length]))) return true;",
     "if (starts) return true;"),
    (G + "choice.c", "return hash + (uint64_t)index * 0x9E3779B97F4A7C15u;", "return hash;"),
    (G + "choice.c", "return choice->parser && !request->parallel_tool_calls &&", "return choice->parser &&"),
    (G + "choice.c", ".finish_reason = stopped && called ? \"tool_calls\" : choice->finish_reason,", ".finish_reason = choice->finish_reason,"),
    (G + "choice.c", "choice->n_reasoning += was_reasoning ||", "choice->n_reasoning += "),
    # requests
    ("server/openai/request_tools.c", "if (is_known && (allowed || !named || request->callable.only)) return STATUS_OK;", "return STATUS_OK;"),
    ("server/openai/request_tools.c", "if (!find_tool(tools, json_member(one, \"function\"))) is_known = false;", ""),
    (M + "tools.c", "    return !filter->allowed;\n", "    return true;\n"),
    (M + "pattern.c", "return name_add(&reader->id, c) ? READ_MORE : READ_BROKEN;", "return READ_MORE;"),
    (M + "grammar.c", "        parts->has_id = true;\n", ""),
    ("server/openai/request_tools.c", "request->tool_choice = is_auto ? TOOL_CHOICE_AUTO : TOOL_CHOICE_REQUIRED;", "request->tool_choice = TOOL_CHOICE_AUTO;"),
    ("server/openai/request_tools.c", "if (status != STATUS_OK || none) return status;", "if (status != STATUS_OK) return status;"),
    ("server/openai/request_tools.c", "if (tool_name_is_right(name->string, name->length)) return STATUS_OK;", "return STATUS_OK;"),
]
