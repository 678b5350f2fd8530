"""The pictures, sessions and figures of README.md, made from one real run: `make readme`.

`record.py` starts the demo, types the commands and takes everything from what they print. It writes the
pictures next to itself and the same sessions and figures into README.md, so text and pictures agree.

- `terminal.py`  output of a terminal as rows of styled text
- `film.py`      those rows over time as one animated SVG
- `layers.py`    the picture of the four layers
- `text.py`      sessions and figures in Markdown
"""
