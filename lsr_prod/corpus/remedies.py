"""The setting that may solve what is wrong with a row, for refusals and previews."""

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.rows import BadRow

_SETTINGS = {
    "missing_id": "source.id_field (now {id})",
    "control_characters": "source.id_field (now {id})",
    "duplicate_id": "source.id_field (now {id}) or encode.on_duplicate",
    "id_too_long": "source.max_id_bytes",
    "empty_text": "source.text_fields (now {texts})",
    "text_too_long": "source.max_text_bytes",
    "row_too_long": "source.max_text_bytes",
    "wrong_type": "source.columns, source.types or source.stored_fields",
    "invalid_utf8": "source.csv.encoding",
    "wrong_field_count": "source.csv.delimiter or source.csv.escape",
    "damaged_row": "source.csv.escape, source.csv.quotes or source.on_damage",
    "damaged_file": "source.on_damage",
    "broken_json": "source.format (json: values of several lines)",
    "not_an_object": "source.format (json: an array of objects)",
}


def remedy(reason: str, source: SourceSettings) -> str | None:
    """Return the settings that decide whether a row is bad for a reason; None: no setting does."""
    found = _SETTINGS.get(reason)
    texts = ", ".join(map(source.column, source.text_fields))
    return found and found.format(id=source.column(source.id_field), texts=texts)


def column_of(row: BadRow, source: SourceSettings) -> str:
    """Return the column with the problem; empty: it is a problem of the whole row."""
    if row.reason in ("missing_id", "control_characters", "id_too_long", "duplicate_id"):
        return source.column(source.id_field)
    if row.reason in ("empty_text", "text_too_long"):
        return ", ".join(map(source.column, source.text_fields))
    columns = sorted(map(source.column, source.fields), key=len, reverse=True)
    return next((name for name in columns if row.detail.startswith((f"field {name} ", f"field {name}:"))), "")
