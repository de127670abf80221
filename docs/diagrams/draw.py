"""Draw the pictures of docs/architecture.md as SVG: ``python docs/diagrams/draw.py``.

``artifacts.svg`` is drawn from ``artifacts.txt``. ``packages.svg`` is drawn from the layers in ``pyproject.toml`` (the
contract that `make lint` enforces) and the first sentence of each package's docstring, so it cannot be out of date.
"""

import ast
import tomllib
from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 190, 58, 84, 58, 20
STYLE = (
    "text{font-family:Helvetica,Arial,sans-serif;font-size:14px;fill:#1b1f24}"
    ".note{font-size:11px;fill:#57606a}.label{font-size:12px;fill:#0a58a6}"
    ".box{fill:#f6f8fa;stroke:#8c959f}.arrow{stroke:#0a58a6;fill:none;stroke-width:1.4;marker-end:url(#tip)}"
)
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" fill="#0a58a6"/></marker></defs>'
)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of the grid with a title and a note."""

    column: int
    row: int
    title: str
    note: str

    @property
    def x(self) -> int:
        """Left edge, pixels."""
        return MARGIN + self.column * (WIDTH + GAP_X)

    @property
    def y(self) -> int:
        """Upper edge, pixels."""
        return MARGIN + self.row * (HEIGHT + GAP_Y)


def artifacts(source: str) -> str:
    """Draw boxes and arrows of a text source."""
    boxes: dict[str, Box] = {}
    arrows: list[tuple[str, str, str]] = []
    for line in source.splitlines():
        match line.split(maxsplit=4):
            case ["box", name, column, row, text]:
                title, _, note = text.partition(" | ")
                boxes[name] = Box(int(column), int(row), title, note)
            case ["arrow", start, end, *label]:
                arrows.append((start, end, " ".join(label)))
    shapes = [_box(box.x, box.y, WIDTH, box.title, box.note) for box in boxes.values()]
    shapes += [_arrow(boxes[start], boxes[end], label) for start, end, label in arrows]
    width = max(box.x for box in boxes.values()) + WIDTH + MARGIN
    height = max(box.y for box in boxes.values()) + HEIGHT + MARGIN
    return _picture(shapes, width, height)


def packages() -> str:
    """Draw the layers of packages, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    shapes, width, y = [], 1000, MARGIN
    for layer in layers:
        names = [name.strip() for name in layer.split("|")]
        each = (width - 2 * MARGIN - 10 * (len(names) - 1)) // len(names)
        for place, name in enumerate(names):
            shapes.append(_box(MARGIN + place * (each + 10), y, each, name, _summary(name, each // 7), height=42))
        y += 48
    return _picture(shapes, width, y + MARGIN)


def _summary(package: str, letters: int) -> str:
    """First sentence of a package's or module's docstring, cut at a word where it is too long for the box."""
    path = ROOT / "lsr_prod" / package
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    sentence = (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0].replace("\n", " ").split(". ")[0]
    sentence = sentence.replace("``", "").rstrip(".")
    return sentence if len(sentence) <= letters else sentence[:letters].rsplit(" ", 1)[0] + " …"


def _box(x: int, y: int, width: int, title: str, note: str, height: int = HEIGHT) -> str:
    middle = x + width // 2
    return (
        f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        f'<text x="{middle}" y="{y + height // 2 - 3}" text-anchor="middle">{escape(title)}</text>'
        f'<text class="note" x="{middle}" y="{y + height // 2 + 14}" text-anchor="middle">{escape(note)}</text>'
    )


def _arrow(start: Box, end: Box, label: str) -> str:
    """A straight line between the facing edges of two boxes, with its label near the middle."""
    if start.row == end.row:
        x1, x2 = (start.x + WIDTH, end.x) if start.x < end.x else (start.x, end.x + WIDTH)
        y1 = y2 = start.y + HEIGHT // 2
    else:
        x1, x2 = start.x + WIDTH // 2, end.x + WIDTH // 2
        y1, y2 = (start.y + HEIGHT, end.y) if start.y < end.y else (start.y, end.y + HEIGHT)
        if start.column != end.column:
            x1, x2 = (x1 + 40, x2 - 40) if start.column < end.column else (x1 - 40, x2 + 40)
    text = f'<text class="label" x="{(x1 + x2) // 2 + 6}" y="{(y1 + y2) // 2 - 6}">{escape(label)}</text>'
    return f'<path class="arrow" d="M{x1},{y1} L{x2},{y2}"/>' + (text if label else "")


def _picture(shapes: list[str], width: int, height: int) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", TIP, ground, *shapes, "</svg>"]) + "\n"


def pictures() -> dict[Path, str]:
    """Every picture with its file."""
    return {
        FOLDER / "artifacts.svg": artifacts((FOLDER / "artifacts.txt").read_text()),
        FOLDER / "packages.svg": packages(),
    }


if __name__ == "__main__":
    for file, svg in pictures().items():
        file.write_text(svg)
