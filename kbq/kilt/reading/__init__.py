"""Reading: KILT files become gold records and predictions, every problem gathered."""
