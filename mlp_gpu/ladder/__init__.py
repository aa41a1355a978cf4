"""A ladder of kernels that train one small net, each rung a small step from the one before.

After a blog, *Parallelizing Handwritten Digit Recognition Neural Network Training*: the net has 784
inputs, 128 hidden neurons and 10 outputs, and learns on-line, one image and one update at a time.
Rungs 1 to 5 are the blog's, 6 and 7 go on from there. All compute the same, up to the order of
sums.
"""
