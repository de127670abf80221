"""Convert an Arrow schema between the string types of stored rows and of rows in memory.

Tables store columns of the type ``string``, whose offsets address 2 GiB of text per Arrow array. Rows in memory have
``large_string`` instead, so that arrays can be joined and rows taken however much text there is.
"""

import pyarrow as pa


def large_strings(schema: pa.Schema) -> pa.Schema:
    """Return the schema with ``large_string`` in place of ``string``: that of rows in memory."""
    return _with_strings(schema, pa.large_string())


def stored_strings(schema: pa.Schema) -> pa.Schema:
    """Return the schema with ``string`` in place of ``large_string``: that of stored rows."""
    return _with_strings(schema, pa.string())


def _with_strings(schema: pa.Schema, kind: pa.DataType) -> pa.Schema:
    for place, field in enumerate(schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            schema = schema.set(place, field.with_type(kind))
    return schema
