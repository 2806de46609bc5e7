"""What becomes of an instant: begun, decided by a claim, published, or taken back."""
