"""Reading what was printed: the tables of Markdown."""


def cells_of(line):
    """The cells of a row."""
    return [cell.strip() for cell in line.strip("|").split("|")]
