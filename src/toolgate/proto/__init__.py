"""Message code for gRPC, written by `proto/generate.py`. Nothing here is edited by hand."""
