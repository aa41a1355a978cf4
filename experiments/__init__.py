"""One script a table or figure, and what the scripts share."""
