"""On-line convolutional nets of any description (2011): a net as data, and a CPU engine."""
