"""Images and labels: MNIST, small NORB, CIFAR-10, load_digits, and pictures of digits."""
