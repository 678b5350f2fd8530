"""The gRPC surface: SPEAR's registry service, services for policy and nodes, health and reflection."""
