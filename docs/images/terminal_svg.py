"""Draws a terminal's screen, as `tmux capture-pane -e -p` prints it, as an SVG on standard output."""

import html
import re
import sys

COLUMN, ROW, MARGIN, BAR = 8.4, 19, 16, 34
BACKGROUND, FOREGROUND = "#1c1f26", "#d7dae0"
# The sixteen colours; others are not used by our output.
PALETTE = ["#3b4048", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#abb2bf"]
BRIGHT = ["#5c6370", "#ff7b86", "#b1e18b", "#efb074", "#67cdff", "#e48bff", "#63d4e0", "#ffffff"]


def spans(line):
    """Yields (column, text, colour, bold, dim)."""
    colour, bold, dim, column = FOREGROUND, False, False, 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        sequence = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if not sequence:
            text = re.sub(r"\x1b[^m]*?[\x0e\x0f\\]", "", part)
            if text:
                yield column, text, colour, bold, dim
            column += len(text)
            continue
        for code in (int(code or 0) for code in sequence[1].split(";")):
            if code == 0:
                colour, bold, dim = FOREGROUND, False, False
            elif code in (1, 2):
                bold, dim = bold or code == 1, dim or code == 2
            elif code == 39:
                colour = FOREGROUND
            elif 30 <= code <= 37:
                colour = PALETTE[code - 30]
            elif 90 <= code <= 97:
                colour = BRIGHT[code - 90]


def main():
    lines = sys.stdin.read().rstrip("\n ").split("\n")
    # The last line is a prompt at which nothing was typed.
    plain = re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]).strip()
    lines = lines[:-1] if plain == "$" else lines
    columns = max(sum(len(text) for _, text, *_ in spans(line)) for line in lines)
    width, height = columns * COLUMN + 2 * MARGIN, len(lines) * ROW + BAR + MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">')
    print(f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>')
    for number, dot in enumerate(["#ff5f57", "#febc2e", "#28c840"]):
        print(f'<circle cx="{20 + 20 * number}" cy="18" r="6" fill="{dot}"/>')
    print('<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14" xml:space="preserve">')
    for number, line in enumerate(lines):
        y = BAR + ROW * number + 14
        for column, text, colour, bold, dim in spans(line):
            style = ' font-weight="bold"' * bold + ' opacity="0.6"' * dim
            # The length is given, so that every font keeps the columns.
            size = f'textLength="{len(text) * COLUMN:.1f}" lengthAdjust="spacingAndGlyphs"'
            print(f'<text x="{MARGIN + column * COLUMN:.1f}" y="{y}" fill="{colour}"{style} {size}>{html.escape(text)}</text>')
    print("</g>\n</svg>")


if __name__ == "__main__":
    main()
