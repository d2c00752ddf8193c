"""The schemas of the tools' arguments and results."""

import pytest

from steno_mcp.tools import TOOLS, Tool
from steno_mcp.values import schema_of


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_schema_is_an_object_that_contains_all_that_it_refers_to(tool: Tool) -> None:
    for kind in (tool.arguments, tool.result):
        schema = schema_of(kind)
        assert schema["type"] == "object"
        assert set(schema["properties"]) == set(kind.__struct_fields__)
        for name in _references(schema):
            assert name in schema["$defs"]
    assert schema_of(tool.arguments)["additionalProperties"] is False


def _references(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].removeprefix("#/$defs/")] if "$ref" in value else []
        return own + [name for each in value.values() for name in _references(each)]
    if isinstance(value, list):
        return [name for each in value for name in _references(each)]
    return []
