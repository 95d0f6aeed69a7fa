"""The TFDS data set enwik8: 100,000,000 bytes of the English Wikipedia dump of 2006-03-03."""

SIZE = 100_000_000
DISTINCT_BYTES = 205  # distinct
SHA256 = "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"
