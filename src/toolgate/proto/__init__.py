"""Message code for gRPC. `proto/generate.py` writes it; do not edit it by hand."""
