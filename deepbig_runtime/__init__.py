"""What every package stands on: GPUs, compiled code, files. No net and no image is known here."""
