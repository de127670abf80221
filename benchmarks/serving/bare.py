"""The baseline: a FastAPI application that answers a constant of the size of a search result."""

from typing import Any

from fastapi import FastAPI

app = FastAPI()
_HIT = {"doc_id": "package.module.Class.method_of_usual_length", "score": 12.345678, "overlap": 3, "fields": {}}
_ANSWER: dict[str, Any] = {"hits": [_HIT] * 10, "matched": 1234, "query": [["word", 2.5, "terms"]] * 8}


@app.get("/search")
async def search(q: str) -> dict[str, Any]:  # noqa: ARG001 - parsed, as a backend does
    """Answer any query."""
    return _ANSWER
