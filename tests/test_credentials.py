import pytest

from lsr_prod.credentials import without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://alice:hunter2@host:80/path?x=a@b", "https://...@host:80/path?x=a@b"),
        ("https://alice@host, and s3://key:secret@bucket/x", "https://...@host, and s3://...@bucket/x"),
        ("{'mlflow': 'http://a:b@c'}", "{'mlflow': 'http://...@c'}"),
        ("a//b c@d https://host/@me", "a//b c@d https://host/@me"),
    ],
)
def test_users_and_passwords_are_removed(text: str, shown: str):
    assert without_credentials(text) == shown
