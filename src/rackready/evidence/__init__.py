"""Evidence: append-only records of measurements, raw outputs by hash, and reports made of them."""
