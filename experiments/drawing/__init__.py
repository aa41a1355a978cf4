"""Figures, and the page that shows them all."""
