"""Tools as agents with several MCP servers send them: two hundred, in the forms that the generators of such schemas write (zod 3 and
4, pydantic, OpenAPI converters, and by hand)."""
DRAFT7, DRAFT2020 = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"
SAFE = 9007199254740991  # zod 4 writes it as the bounds of each integer
EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
UUID = r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000)$"
DATE = (r"(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|"
        r"[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))")
TIME = rf"^{DATE}T(?:(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z))$"


def text(description="A text.", **more):
    return {"type": "string", "description": description, **more}


def zod3(properties, *required, **more):
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False, "$schema": DRAFT7, **more}


def zod4(properties, *required, **more):
    return {"$schema": DRAFT2020, "type": "object", "properties": properties, "required": list(required), **more}


def optional(schema, title):
    """A field of pydantic that may be None."""
    return {"anyOf": [schema, {"type": "null"}], "default": None, "title": title}


def pydantic(properties, *required, **more):
    named = {name: {"title": name.title(), **schema} for name, schema in properties.items()}
    return {"type": "object", "properties": named, "required": list(required), "title": "Arguments", **more}


RICH_TEXT = {"type": "object", "properties": {
    "type": {"type": "string", "enum": ["text", "mention", "equation"]},
    "text": {"type": "object", "properties": {"content": {"type": "string", "maxLength": 2000},
                                              "link": {"type": ["object", "null"], "properties": {"url": {"type": "string", "format": "uri"}}}}},
    "annotations": {"type": "object", "properties": {"bold": {"type": "boolean", "default": False}, "color": {"type": "string"}}}}}
BLOCK = {"type": "object", "properties": {
    "object": {"const": "block"}, "type": {"type": "string"},
    "children": {"type": "array", "items": {"$ref": "#/$defs/block"}, "maxItems": 100},
    "paragraph": {"type": "object", "properties": {"rich_text": {"type": "array", "items": {"$ref": "#/$defs/richText"}}}}},
    "required": ["type"]}
FILTER = {"anyOf": [
    {"type": "object", "properties": {"and": {"type": "array", "items": {"$ref": "#/$defs/filter"}}}, "required": ["and"]},
    {"type": "object", "properties": {"or": {"type": "array", "items": {"$ref": "#/$defs/filter"}}}, "required": ["or"]},
    {"type": "object", "properties": {"property": {"type": "string"}, "equals": {"type": ["string", "number", "boolean"]}},
     "required": ["property"]}]}
REPOSITORY = {"owner": text("Repository owner"), "repo": text("Repository name")}
PAGES = {"page": {"type": "number", "minimum": 1, "description": "Page number (min 1)"},
         "perPage": {"type": "number", "minimum": 1, "maximum": 100, "description": "Results per page (max 100)"}}
MONEY = {"amount": {"type": "integer", "exclusiveMinimum": 0, "maximum": SAFE}, "currency": {"type": "string", "pattern": "^[a-z]{3}$"}}
ELEMENT = {"element": text("Human-readable element description"), "ref": text("Exact target element reference from the page snapshot")}

SHAPES = {
    "list_issues": {"type": "object", "properties": {**REPOSITORY, **PAGES, "state": text(enum=["open", "closed", "all"]),
                                                     "labels": {"type": "array", "items": {"type": "string"}}}, "required": ["owner", "repo"]},
    "create_or_update_file": {"type": "object", "properties": {**REPOSITORY, "path": text(), "content": text(), "message": text(),
                                                              "sha": text("Required if the file exists")},
                              "required": ["owner", "repo", "path", "content", "message"]},
    "create_review": {"type": "object", "properties": {**REPOSITORY, "pullNumber": {"type": "number"},
                      "comments": {"type": "array", "items": {"type": "object", "additionalProperties": False, "required": ["path", "body"],
                                   "properties": {"path": text(), "body": text(), "line": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                                                  "position": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}},
                      "event": text(enum=["APPROVE", "REQUEST_CHANGES", "COMMENT"])}, "required": ["owner", "repo", "pullNumber"]},
    "browser_click": zod3({**ELEMENT, "doubleClick": {"type": "boolean"}, "button": text(enum=["left", "right", "middle"]),
                           "modifiers": {"type": "array", "items": {"type": "string", "enum": ["Alt", "Control", "Meta", "Shift"]}}}, "element", "ref"),
    "browser_fill_form": zod3({"fields": {"type": "array", "items": zod3({"name": text(), "type": text(enum=["textbox", "checkbox", "slider"]),
                                                                         "ref": text(), "value": text()}, "name", "type", "ref", "value")}}, "fields"),
    "browser_evaluate": zod3({"function": text("() => { /* code */ }"), **ELEMENT}, "function"),
    "browser_snapshot": zod3({}),
    "read_file": zod3({"path": text(), "tail": {"type": "number", "description": "last N lines"}, "head": {"type": "number"}}, "path"),
    "edit_file": zod3({"path": text(), "edits": {"type": "array", "items": zod3({"oldText": text(), "newText": text()}, "oldText", "newText")},
                       "dryRun": {"type": "boolean", "default": False}}, "path", "edits"),
    "read_multiple_files": zod3({"paths": {"type": "array", "items": {"type": "string"}, "minItems": 1}}, "paths"),
    "create_entities": zod3({"entities": {"type": "array", "items": zod3({"name": text(), "entityType": text(), "observations": {
        "type": "array", "items": {"type": "string"}}}, "name", "entityType", "observations")}}, "entities"),
    "sequentialthinking": zod4({"thought": text(), "nextThoughtNeeded": {"type": "boolean"},
                                "thoughtNumber": {"type": "integer", "minimum": 1, "maximum": SAFE}, "isRevision": {"type": "boolean"}},
                               "thought", "nextThoughtNeeded", "thoughtNumber"),
    "send_email": zod4({"to": {"type": "array", "items": {"type": "string", "format": "email", "pattern": EMAIL}, "minItems": 1},
                        "cc": {"type": "array", "items": {"type": "string", "format": "email", "pattern": EMAIL}},
                        "subject": text(minLength=1, maxLength=998), "body": text(maxLength=100000),
                        "mimeType": text(enum=["text/plain", "text/html"], default="text/plain")}, "to", "subject", "body"),
    "create_event": zod4({"id": {"type": "string", "format": "uuid", "pattern": UUID}, "start": {"type": "string", "format": "date-time", "pattern": TIME},
                          "end": {"type": "string", "format": "date-time", "pattern": TIME}, "attendees": {"type": "array", "maxItems": 200, "items": zod4(
                              {"email": {"type": "string", "format": "email", "pattern": EMAIL}, "optional": {"type": "boolean"}}, "email")},
                          "reminders": {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "integer",
                                        "minimum": -SAFE, "maximum": SAFE}}}, "start", "end"),
    "retrieve_page": {"type": "object", "properties": {"page_id": {"type": "string", "format": "uuid"}, "filter_properties": text()},
                      "required": ["page_id"], "$defs": {}},
    "append_block_children": {"type": "object", "$defs": {"block": BLOCK, "richText": RICH_TEXT},
                              "properties": {"block_id": text(), "children": {"type": "array", "items": {"$ref": "#/$defs/block"}}},
                              "required": ["block_id", "children"]},
    "query_database": {"type": "object", "$defs": {"filter": FILTER}, "required": ["database_id"], "properties": {
        "database_id": text(), "filter": {"$ref": "#/$defs/filter"}, "page_size": {"type": "integer", "default": 100, "format": "int32"},
        "sorts": {"type": "array", "items": {"type": "object", "properties": {"property": text(), "direction": text(enum=["ascending", "descending"])}}}}},
    "patch_page": {"type": "object", "properties": {"page_id": text(), "properties": {"type": "object", "additionalProperties": True},
                   "in_trash": {"type": "boolean"}, "icon": {"oneOf": [{"type": "object", "properties": {"emoji": text()}, "required": ["emoji"]},
                                                                  {"type": "object", "properties": {"external": {"type": "object"}}}, {"type": "null"}]}}},
    "post_message": {"type": "object", "properties": {"channel_id": text(), "text": text(), "thread_ts": text(pattern=r"^\d+\.\d{6}$")},
                     "required": ["channel_id", "text"]},
    "create_payment_link": zod3({"price": text(), "quantity": {"type": "integer", "minimum": 1}, **MONEY}, "price", "quantity"),
    "search_customers": pydantic({"query": text(), "limit": {"type": "integer", "default": 10, "minimum": 1, "maximum": 100},
                                  "starting_after": optional({"type": "string"}, "Starting After")}, "query"),
    "run_query": pydantic({"sql": text("The statement"), "params": optional({"type": "array", "items": {}}, "Params"),
                           "timeout_s": optional({"type": "number", "exclusiveMinimum": 0}, "Timeout S")}, "sql"),
    "deploy": pydantic({"environment": {"$ref": "#/$defs/Environment"}, "replicas": {"type": "integer", "default": 1},
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}}}, "environment",
                       **{"$defs": {"Environment": {"enum": ["dev", "staging", "production"], "title": "Environment", "type": "string"}}}),
    "get_weather": pydantic({"latitude": {"type": "number", "minimum": -90, "maximum": 90}, "longitude": {"type": "number", "minimum": -180,
                             "maximum": 180}, "hourly": optional({"type": "array", "items": {"enum": ["rain", "wind", "temperature_2m"]}}, "Hourly")},
                            "latitude", "longitude"),
    "get_current_time": {"type": "object", "properties": {"timezone": text("IANA name")}, "required": ["timezone"]},
    "fetch": {"description": "Parameters for fetching a URL.", "properties": {
        "url": {"description": "URL to fetch", "format": "uri", "minLength": 1, "title": "Url", "type": "string"},
        "max_length": {"default": 5000, "exclusiveMaximum": 1000000, "exclusiveMinimum": 0, "title": "Max Length", "type": "integer"},
        "raw": {"default": False, "title": "Raw", "type": "boolean"}}, "required": ["url"], "title": "Fetch", "type": "object"},
    "kubectl_apply": {"type": "object", "properties": {"manifest": {"type": "object"}, "namespace": text(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")}},
    "ping": {"type": "object"},
    "list_all": {"type": "object", "properties": {}},
}
COUNTS = 200


def mcp_tools(n=COUNTS):
    """n tools of OpenAI's form; each shape comes under the names of several servers."""
    names = [f"{server}__{name}" for server in ("work", "home", "team", "cloud", "local", "shop", "staging", "old") for name in SHAPES]
    assert n <= len(names)
    return [{"type": "function", "function": {"name": name, "description": f"Runs {name} on its server. " * 3,
                                              "parameters": SHAPES[name.split("__")[1]]}} for name in names[:n]]


def renamed(schema, prefix):
    """The same schema with other names of all properties, so that nothing in it equals a part of the first."""
    if isinstance(schema, list):
        return [renamed(one, prefix) for one in schema]
    if not isinstance(schema, dict):
        return schema
    names = {"properties": lambda value: {prefix + name: renamed(one, prefix) for name, one in value.items()},
             "required": lambda value: [prefix + name for name in value]}
    return {key: names.get(key, lambda value: renamed(value, prefix))(value) for key, value in schema.items()}


def differing(tools):
    """The tools with names of properties that no two servers share."""
    return [{"type": "function", "function": {**tool["function"], "parameters": renamed(
        tool["function"]["parameters"], tool["function"]["name"].split("__")[0] + "_")}} for tool in tools]
