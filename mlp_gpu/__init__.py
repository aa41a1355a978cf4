"""On-line back-propagation for plain multi-layer perceptrons."""
