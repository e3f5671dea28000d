"""Handwritten digits: the data, and the weights that were trained on them here (``python -m models.train_digits``).

``data.npz`` holds the 1797 images of the test part of E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten
Digits", UCI Machine Learning Repository, 1998 (CC BY 4.0), https://doi.org/10.24432/C50P49, as scikit-learn
distributes them: 8 x 8 pixels of 0..16, each the count of set pixels in a 4 x 4 block of the scan.
"""
