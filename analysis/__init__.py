"""From records to tables and figures; needs no torch and no GPU."""
