"""Mutants of engine/grammar; tests/mutate.py says what the names mean."""
G = "engine/grammar/"
SUITES = {
    G: ["engine_grammar", "engine_grammar_masks"],
}

MUTANTS = [
    # masks
    (G + "matcher.c", "if (!state->mask || state->mask_of != v->id) find_mask",
     "if (!state->mask) state = matcher->states[0];\n    if (!state->mask || state->mask_of != v->id) find_mask"),
    (G + "matcher.c", "            i = node->skip;\n", "            i++;\n"),
    (G + "matcher.c", "    matcher->n -= (size_t)n;", "    matcher->n -= (size_t)(n > 1 ? n - 1 : n);"),
    (G + "matcher.c", "return here(matcher)->may_end;", "return true;"),
    (G + "matcher.c", "    if (state->may_end) return -1;\n", ""),
    (G + "matcher.c", "if (found >= 0 || network->size_of[class] != 1) return -1;", "if (found >= 0) return -1;"),
    (G + "matcher.c", "for (int32_t id = node->token; id >= 0; id = v->same_next[id])", "for (int32_t id = node->token; id >= 0; id = -1)"),
    # states
    (G + "states.c", "            if (rule->is_nullable) add_item(a, edge->to, item.frame);\n", ""),
    (G + "states.c", "if (s->hash == hash && s->may_end == may_end &&", "if (s->hash == hash &&",
     "may_end is a part of the hash too, so this needs two equal hashes"),
    (G + "states.c", "    if (node->is_end) complete(a, item.frame);\n", ""),
    (G + "collect.c", "        for (size_t i = 0; i < matcher->n; i++) mark(", "        for (size_t i = 0; i < 1; i++) mark("),
    (G + "slices.c", "        if (next == a->dead) return false;\n", "", "a walk through dead states ends in dead again"),
    (G + "slices.c", "if (found && found != next) return a->dead;\n        found = next;\n    }\n    return found;\n}\n\n/* The one",
     "found = next;\n    }\n    return found;\n}\n\n/* The one",
     "no grammar of the suites tells apart the last bytes of characters where it takes all others"),
    # reading
    (G + "draft.c", "        if (goes_on) draft_empty(draft, path[length], to);\n", ""),
    (G + "read/structural_tag.c", "    if (r->end) add_texts(r, ends, r->end);\n    if (b->status", "    if (b->status"),
    (G + "schema/object.c", "    if (o->n) expr_add(all, expr_of(b, EXPR_NOT, own, NULL));\n", ""),
    (G + "read/structural_tag.c", "return expr_of(b, EXPR_AND, text, expr_of(b, EXPR_NOT, begins, NULL), NULL);", "return text;"),
    (G + "schema/arguments.c", "expr_text(b, behind ? a->style->between : \"\"),", "expr_text(b, a->style->between),"),
    (G + "schema/arguments.c", "bool may_lack = is_again || !is_required(root, property->name);", "bool may_lack = true;"),
    (G + "schema/arguments.c", "return expr_add(schema_text(a->r, conj), expr_of(b, EXPR_NOT, ends, NULL));", "return schema_text(a->r, conj);"),
    (G + "schema/arguments.c", "    json_spell_python(b, a.style->is_python);\n", ""),
    (G + "schema/string.c", "    if (schema_has_values(conj)) expr_add(all, schema_text_values(r, conj));\n", ""),
    (G + "schema/number.c", "bool above, bool strict) {\n    size_t n", "bool above, bool strict) {\n    strict = false;\n    size_t n"),
    (G + "schema/object.c", "bool may_add = k->max == NO_MAX || count < k->max;", "bool may_add = true;"),
    (G + "schema/object.c", "if (count >= k->min) expr_add", "expr_add"),
    (G + "schema/object.c", "        if (!o->properties[i].is_required) expr_add(all, counted_rest",
     "        expr_add(all, counted_rest"),
    (G + "schema/object.c", "o->n_patterns ? \"(?:\" PLAIN_KEY \")*\" : \"(?:\" OTHER_KEY \")*\"", "\"(?:\" PLAIN_KEY \")*\""),
    (G + "schema/object.c", "    if (named) expr_add(all, named);\n", "    (void)named;\n"),
    (G + "dfa.c", "        if (place > scale) next['0'] = behind + remainder;\n", ""),
    (G + "dfa.c", "    for (; digits > 0; digits--)\n", "    for (; digits > 1; digits--)\n"),
    (G + "dfa.c", "bool is_over = repeat->max != NO_MAX && count == most;", "bool is_over = false;"),
    (G + "dfa.c", "key[1] == unit->start && key[2] >= min", "key[1] == unit->start"),
    (G + "dfa.c", "bool is_same = byte && p[byte] == p[byte - 1] && q[byte]", "bool is_same = byte && q[byte]"),
    (G + "read/ranges.c", "        if (is_ecma) add_ecma_blanks(&named);\n", ""),
    (G + "schema/string.c", "is_uri && n > 0 && min <= 5 ?", "n > 0 && min <= 5 ?"),
    (G + "schema/json_rules.c", "[JSON_RULE_SPACE] = \"\\\\n?", "[JSON_RULE_SPACE] = \"\\\\n*"),
]
