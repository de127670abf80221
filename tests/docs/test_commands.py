"""docs/commands.md names every command with its options."""

from infra.site.commands import PAGE, page


def test_page_of_commands_is_what_its_script_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m infra.site.commands"
