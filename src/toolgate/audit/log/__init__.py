"""The audit log: hash-chained lines in files, written ahead, recovered, verified and followed."""
