"""Identity: fingerprints, digests, and the published documents that hold them."""
