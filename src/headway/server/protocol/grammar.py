"""grammar_of: the grammar of an answer, from response_format or structured_outputs."""

import json
from typing import Any

from headway.core.grammar import Grammar
from headway.server.protocol.fields import GenerationBody, ResponseFormat, StructuredOutputs
from headway.server.protocol.problem import wrong

SHAPE, OUTPUTS = "response_format", "structured_outputs"
FREE = Grammar()


def grammar_of(body: GenerationBody, most: int) -> Grammar:
    """The grammar that a body asks for; it is compiled later. most: the bytes its text may have.
    Raises Problem."""
    shape = _shape(body.response_format) if body.response_format else FREE
    given = _outputs(body.structured_outputs) if body.structured_outputs else FREE
    if shape and given:
        raise wrong(f"'{OUTPUTS}' and '{SHAPE}' both shape the answer: give one of them", OUTPUTS)
    found = given or shape
    if (size := len(found.text.encode())) > most:
        raise wrong(f"a grammar has {size} bytes, where {most} are the most", field_of(body))
    if found and body.ignore_eos:
        raise wrong("'ignore_eos': an answer with a grammar ends where that does", "ignore_eos")
    return found


def field_of(body: GenerationBody) -> str:
    """The field of the body that holds the grammar."""
    return OUTPUTS if body.structured_outputs else SHAPE


def _shape(form: ResponseFormat) -> Grammar:
    if form.type != "json_schema" and form.json_schema is not None:
        why = f"'{SHAPE}.json_schema' is not obeyed with 'type': '{form.type}'; say 'json_schema'"
        raise wrong(why, f"{SHAPE}.json_schema")
    if form.type == "text":
        return FREE
    if form.type == "json_object":
        return Grammar("json_object")
    if form.json_schema is None:
        raise wrong("'response_format.json_schema' is missing", f"{SHAPE}.json_schema")
    return Grammar("json_schema", _written(form.json_schema.schema_))


def _outputs(outputs: StructuredOutputs) -> Grammar:
    given = [name for name in FORMS if getattr(outputs, name) not in (None, False)]
    if len(given) != 1:
        names = ", ".join([name.rstrip("_") for name in FORMS])
        raise wrong(f"'{OUTPUTS}' needs exactly one of {names}", OUTPUTS)
    kind, value = FORMS[given[0]], getattr(outputs, given[0])
    if kind == "json_object":
        return Grammar(kind)
    text = value if isinstance(value, str) else _written(value)
    if not text:
        raise wrong(f"'{OUTPUTS}.{given[0].rstrip('_')}' is empty", OUTPUTS)
    return Grammar(kind, text)


FORMS = {
    "regex": "regex",
    "choice": "choice",
    "grammar": "lark",
    "json_": "json_schema",
    "json_object": "json_object",
}


def _written(value: Any) -> str:
    """The value as JSON, in the given order: answers keep the order of a schema's properties."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
