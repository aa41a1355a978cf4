"""A file here is a command that the Makefile or the README names; a folder, what commands share."""
