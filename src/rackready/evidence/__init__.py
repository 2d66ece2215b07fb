"""Evidence: append-only records of what was measured, raw outputs by hash, and the reports made of them."""
