"""What every package stands on: GPUs, compiled code, files, checks of arrays. No net is known."""
