"""How answers are shown: text, HTML, plots."""
